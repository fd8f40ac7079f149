"""Slash commands: one table for every surface. A surface reads a line, looks it up here and shows the answer."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct

from lmagent.app.host import Host
from lmagent.app.registry import SlashCommand
from lmagent.core.errors import ConfigError
from lmagent.core.view import View
from lmagent.engine.session import Session

# Headings of `/help`, in order.
CONVERSATION, CHANGES, WORK, SETTINGS, FACTS = GROUPS = (
    "Conversation",
    "Changes of files",
    "Long work",
    "Model and settings",
    "Facts",
)

OWN = "From files"  # the heading of the commands that are Markdown files

_LINE = re.compile(r"/([\w:?-]*)(?:\s+(.*))?", re.DOTALL)


class SlashContext(Struct, frozen=True):
    """The context of a command; the session is None before the first message."""

    host: Host
    session: Session | None
    view: View


def need_session(context: SlashContext) -> Session:
    if context.session is None:
        raise ConfigError("there is no session yet", fix="say something first, or /resume one")
    return context.session


class Choice(Struct, frozen=True):
    """One of several lines that the user can pick; `line` is the whole command, from the slash on."""

    line: str
    label: str
    current: bool = False


class SlashResult(Struct, frozen=True):
    """The result of a command."""

    text: str = ""
    diff: bool = False
    submit: str = ""  # sent to the model as if typed
    typed: str | None = None  # the part of `submit` whose `@` names attach files; None for all of it
    session: Session | None = None
    fresh: bool = False
    quit: bool = False
    run: bool = False  # the session has a turn to run
    copy: str = ""
    choices: tuple[Choice, ...] = ()
    theme: str = ""
    headed: bool = False  # lines of `text` that end with a colon are headings


def is_command(text: str) -> bool:
    """Return whether a text is meant as a command: a slash and one word; no path, and no blank before the slash."""
    return _LINE.fullmatch(text.rstrip()) is not None


def find_command(line: str, host: Host) -> tuple[SlashCommand, str]:
    """Return the command that a line names, by our name or another program's, and its arguments."""
    found = _LINE.fullmatch(line.strip())
    name, argument = (found[1], found[2] or "") if found else (line.strip().removeprefix("/"), "")
    known = all_commands(host)
    command = known.get(name) or known.get(SYNONYMS.get(name, ""))
    if command is None:
        from difflib import get_close_matches  # only a wrong name needs it

        near = " or ".join(f"/{match}" for match in get_close_matches(name.lower(), [*known, *SYNONYMS], n=3))
        meant = f"did you mean {near}? " if near else ""
        fix = f"{meant}/help lists them; a space before the slash sends it as a message"
        raise ConfigError(f"there is no command /{name}", fix=fix)
    return command, argument


def all_commands(host: Host) -> dict[str, SlashCommand]:
    known = dict(host.registry.commands)
    late = (command for source in host.registry.late_commands for command in source())
    for command in (*user_commands(host.workspace).values(), *late):
        known.setdefault(command.name, command)
    return known


async def dispatch(line: str, context: SlashContext) -> SlashResult:
    """Carry out a line that begins with a slash. Raise LmagentError if the command does not exist, or failed."""
    command, argument = find_command(line, context.host)
    return await command.run(context, argument)


def user_commands(workspace: Path) -> dict[str, SlashCommand]:
    """Return the commands that are Markdown files, of the workspace and of the user."""
    from lmagent.app.owncommands.expand import command_of  # a one-shot has no slash commands
    from lmagent.app.owncommands.files import command_files

    files = command_files(workspace).items()
    return {name: command_of(file) for name, file in files if file.own or name not in SYNONYMS}


# Names in other agents and model runners for commands of ours that do the same.
SYNONYMS = {
    "?": "help",
    "approvals": "permissions",
    "ask": "btw",
    "bye": "quit",
    "clear": "new",
    "continue": "resume",
    "cost": "usage",
    "exit": "quit",
    "history": "sessions",
    "map": "context",
    "models": "model",
    "q": "quit",
    "reset": "new",
    "sandbox": "status",
    "settings": "config",
    "show": "status",
    "side": "btw",
    "tasks": "todo",
    "todos": "todo",
    "tokens": "context",
}
