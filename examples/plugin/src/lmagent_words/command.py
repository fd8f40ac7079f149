"""The command `/words TEXT`: every surface has it."""

from __future__ import annotations

from lmagent.app.registry import SlashCommand
from lmagent.app.slash import SlashContext, SlashResult
from lmagent.core.errors import ConfigError


async def _words(context: SlashContext, text: str) -> SlashResult:
    if not text:
        raise ConfigError("/words counts the words of a text, and there is none", fix="/words TEXT")
    return SlashResult(f"{len(text.split())} words")


words_command = SlashCommand("words", "TEXT", "count the words of a text", _words)
