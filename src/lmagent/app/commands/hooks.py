"""The slash command /hooks."""

from __future__ import annotations

from collections.abc import Iterator

from lmagent.app.registry import SlashCommand
from lmagent.app.slash import FACTS, SlashContext, SlashResult

NONE = "there are no hooks: docs/hooks.md shows how to write one"


def commands() -> Iterator[SlashCommand]:
    yield SlashCommand("hooks", "", "list the hooks: what runs when, and from which file", _hooks, FACTS)


async def _hooks(context: SlashContext, _: str) -> SlashResult:
    from lmagent.hooks.show import hook_lines

    hooks = context.host.registry.hooks
    return SlashResult("\n".join(hook_lines(hooks.files)) if hooks is not None else NONE)
