"""Charts in text: the parts of the window, tokens by day, and lists in columns. Charts have at most 40 columns."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from textwrap import fill

from lmagent.core.agent import Window
from lmagent.core.messages import Text
from lmagent.core.plurals import plural
from lmagent.core.tool import Tool
from lmagent.engine.state import SessionState, message_bytes
from lmagent.store.spent import UsageSums

DAYS = 14  # days that the bars of `/usage` show, today included

_BAR = 18


def window_parts(state: SessionState) -> dict[str, int]:
    """Return the estimated tokens of each part of the prompt; in the order of the prompt."""
    system = len(state.system.encode())
    notes = _note_bytes(state)
    return {
        "System": state.tokens(system),
        "Tools": state.tokens(state.fixed_bytes - system),
        "Notes": state.tokens(notes),
        "User": state.tokens(_role_bytes(state, "user") - notes),
        "Agent": state.tokens(_role_bytes(state, "assistant")),
        "Results": state.tokens(_role_bytes(state, "tool")),
    }


def window_map(parts: Mapping[str, int], window: Window, total: int, compactions: int) -> str:
    """Draw a bar for each part of the window, and for the room that is left."""
    rows = _bars({**parts, "Room": max(0, window.tokens - total)}, window.tokens)
    use = f"in use: {total:,} of {window.tokens:,} tokens"
    cut = f"shortened at: {window.trigger:,} ({plural(compactions, 'time')} so far)"
    return "\n".join((*rows, "", use, cut))


def day_bars(days: Sequence[UsageSums], today: str) -> str:
    """Draw the tokens of each of the last days, the newest last."""
    known = {row.key: row.prompt_tokens + row.completion_tokens for row in days}
    last = datetime.date.fromisoformat(today)
    shown = [(last - datetime.timedelta(days=back)).isoformat() for back in reversed(range(DAYS))]
    if not any(known.get(day, 0) for day in shown):
        return f"No tokens were used here in the last {DAYS} days."
    found = {day[5:]: known.get(day, 0) for day in shown}
    return "\n".join((f"Tokens in this folder, last {DAYS} days:", *_bars(found, max(found.values()))))


def _bars(rows: Mapping[str, int], most: int) -> list[str]:
    """Return a row for each number, with a bar that is as long as its share of `most`; a small one is visible, too."""
    lengths = {name: min(_BAR, max(1, round(tokens * _BAR / most))) if tokens else 0 for name, tokens in rows.items()}
    return [f"{name:<8} {'#' * lengths[name]:<{_BAR}} {tokens:>11,}" for name, tokens in rows.items()]


def _role_bytes(state: SessionState, role: str) -> int:
    return sum(message_bytes(message) for message in state.messages if message.role == role)


def _note_bytes(state: SessionState) -> int:
    """Return the bytes of the harness's notes, which are messages of the user in form."""
    begin = tuple(f"<{name}>" for name in state.notes)
    texts = (
        part.text
        for message in state.messages
        if message.role == "user"
        for part in message.parts
        if isinstance(part, Text) and part.text.startswith(begin)
    )
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


def columns(rows: Iterable[tuple[str, str]], begin: int, width: int = 80) -> list[str]:
    """Return each text beside its head, in columns from `begin` to `width`; a long head has a line of its own."""
    pad, found = " " * begin, list[str]()
    for head, text in rows:
        filled = fill(text, max(width, begin + 20), initial_indent=pad, subsequent_indent=pad)
        found.append(f"{head}\n{filled}" if len(head) > begin - 2 else f"{head:<{begin}}{filled[begin:]}")
    return found


def tool_rows(tools: Iterable[Tool], width: int) -> list[str]:
    """Return name, effect and first sentence of each tool, in aligned columns of `width` characters in all."""
    found = [(tool.name, tool.effect, re.split(r"(?<=[.!?])\s", tool.description, maxsplit=1)[0]) for tool in tools]
    longest = max((len(name) for name, _, _ in found), default=0)
    rows = ((f"{name:<{longest}}  {effect}", about) for name, effect, about in found)
    return columns(rows, longest + len("  write  "), width)
