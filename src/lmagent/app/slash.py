"""Slash commands: one table for every surface. A surface reads a line, looks it up here and shows the answer."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec import Struct

from lmagent.app.host import Host
from lmagent.app.registry import SlashCommand
from lmagent.core.errors import ConfigError
from lmagent.core.view import View
from lmagent.engine.session import Session


class SlashContext(Struct, frozen=True):
    """Where a command is given: the session may be None as long as nothing has been said."""

    host: Host
    session: Session | None
    view: View


class SlashResult(Struct, frozen=True):
    """What comes of a command.

    Attributes:
        text: shown to the person, as Markdown.
        submit: sent to the model as if typed.
        session: the surface goes on with this session.
        fresh: the surface goes on with a new session.
        quit: the surface ends.
        run: the session's lane has something to do.
    """

    text: str = ""
    submit: str = ""
    session: Session | None = None
    fresh: bool = False
    quit: bool = False
    run: bool = False


async def dispatch(line: str, context: SlashContext) -> SlashResult:
    """Carry out a line that begins with a slash.

    Raises:
        LmagentError: there is no such command, or it failed.
    """
    name, _, argument = line.strip().removeprefix("/").partition(" ")
    command = context.host.registry.commands.get(name) or user_commands(context.host.workspace).get(name)
    if command is None:
        raise ConfigError(f"there is no command /{name}", fix="/help lists them")
    return await command.run(context, argument.strip())


def user_commands(workspace: Path) -> dict[str, SlashCommand]:
    """Commands from `.lmagent/commands/*.md`: the file is sent as a prompt, `$ARGUMENTS` replaced."""
    found: dict[str, SlashCommand] = {}
    for path in sorted((workspace / ".lmagent" / "commands").glob("*.md")):
        if re.fullmatch(r"[A-Za-z0-9_-]+", path.stem):
            found[path.stem] = SlashCommand(path.stem, "[arguments]", _first_line(path), _sender(path))
    return found


def _first_line(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.readline().strip("# \n")[:80]


def _sender(path: Path) -> Callable[[SlashContext, str], Awaitable[SlashResult]]:
    async def run(context: SlashContext, argument: str) -> SlashResult:
        text = path.read_text(encoding="utf-8", errors="replace")
        filled = text.replace("$ARGUMENTS", argument) if "$ARGUMENTS" in text else f"{text}\n\n{argument}".strip()
        return SlashResult(submit=filled)

    return run
