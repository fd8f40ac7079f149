"""The slash command /soul."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from lmagent.app.registry import SlashCommand
from lmagent.app.slash import FACTS, SlashContext, SlashResult
from lmagent.config.files import write_private
from lmagent.core.errors import ConfigError
from lmagent.identity.files import SOUL, find_identity
from lmagent.planning.editing import edit_file

NEXT = "New sessions begin with it; this one keeps what it began with: /new"


def commands() -> Iterator[SlashCommand]:
    yield SlashCommand("soul", "[edit|TEXT]", "show or write the agent's character for this folder", _soul, FACTS)


async def _soul(context: SlashContext, text: str) -> SlashResult:
    workspace = context.host.workspace
    found = next((file for file in find_identity(workspace) if file.kind == "Character"), None)
    path = workspace / (found.name if found is not None else "/".join(SOUL[0]))
    text = text.strip()
    if text == "edit":
        if not sys.stdin.isatty():
            raise ConfigError("there is no terminal for an editor", fix=f"/soul TEXT writes it, or edit {path}")
        await edit_file(path)
        return SlashResult(f"{path}\n{NEXT}")
    if text:
        if path.is_symlink():
            raise ConfigError(f"{path} is a link", fix="remove it, or edit its target")
        write_private(path, f"{text}\n")
        return SlashResult(f"written to {path}\n{NEXT}")
    if found is None:
        return SlashResult(f"the agent has no character of its own here: /soul TEXT writes {path}")
    return SlashResult(f"{found.name} ({found.size:,} bytes):\n\n{found.text or found.refused}")
