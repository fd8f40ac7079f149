"""Tool rows: the tools as a list for the user."""

from __future__ import annotations

import re
from collections.abc import Iterable
from textwrap import wrap

from lmagent.core.tool import Tool

_ABOUT = {"todo_update": "Change the text or the status of a todo."}
"""Tools whose description for the model begins with its arguments."""

_SENTENCE = re.compile(r"(.+?[.!?])(?:\s|$)", re.DOTALL)


def tool_rows(tools: Iterable[Tool], width: int) -> list[str]:
    """Return name, effect and first sentence of each tool, in aligned columns of `width` characters in all."""
    found = [(tool.name, tool.effect, _about(tool)) for tool in tools]
    name_width = max((len(name) for name, _, _ in found), default=0)
    begin = name_width + len("  write  ")
    rows: list[str] = []
    for name, effect, about in found:
        first, *more = wrap(about, max(20, width - begin)) or [""]
        rows.append(f"{name:<{name_width}}  {effect:<5}  {first}")
        rows += [f"{'':<{begin}}{part}" for part in more]
    return rows


def _about(tool: Tool) -> str:
    sentence = _SENTENCE.match(tool.description)
    return _ABOUT.get(tool.name) or (sentence[1] if sentence else tool.description)
