"""Charts in text: the parts of the window, tokens by day, and the list of tools. Charts have at most 40 columns."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap

from lmagent.core.agent import Window
from lmagent.core.messages import Text
from lmagent.core.plurals import plural
from lmagent.core.tool import Tool
from lmagent.engine.state import SessionState, message_bytes
from lmagent.store.spent import UsageSums

DAYS = 14  # days that the bars of `/usage` show, today included

_CELLS = 36
_BAR = 20


def window_parts(state: SessionState) -> dict[str, int]:
    """Return the estimated tokens of each part of the prompt; the name's first letter is its sign in the map."""
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
    """Draw the window as one bar with a mark where the conversation will be shortened, and a row for each part."""

    def row(sign: str, name: str, tokens: int) -> str:
        return f"{sign} {name:<8} {tokens:>10,} tokens {tokens / window.tokens:>6.1%}"

    bar, used = "", 0
    for name, tokens in parts.items():
        used += tokens
        end = round(used * _CELLS / window.tokens)
        bar += name[0] * max(1 if tokens else 0, end - len(bar))  # a small part is visible, too
    bar = f"{bar[:_CELLS]:·<{_CELLS}}"
    cut = max(0, min(_CELLS - 1, round(window.trigger * _CELLS / window.tokens)))
    rows = [row(name[0], name, tokens) for name, tokens in parts.items()]
    rows.append(row("·", "Room", max(0, window.tokens - total)))
    rows.append(row("^", "Cut", window.trigger))
    return "\n".join(
        (
            f"[{bar}]",
            f"{' ' * (cut + 1)}^",
            *rows,
            "",
            f"in use: {total:,} of {window.tokens:,} tokens",
            f"At the cut the conversation is shortened\n(compacted {plural(compactions, 'time')} so far).",
        )
    )


def day_bars(days: Sequence[UsageSums], today: str) -> str:
    """Draw the tokens of each of the last days, the newest last; empty if none were used."""
    known = {row.key: row.prompt_tokens + row.completion_tokens for row in days}
    last = datetime.date.fromisoformat(today)
    shown = [(last - datetime.timedelta(days=back)).isoformat() for back in reversed(range(DAYS))]
    highest = max(known.get(day, 0) for day in shown)
    if not highest:
        return f"No tokens were used here in the last {DAYS} days."
    rows = [_day(day, known.get(day, 0), highest) for day in shown]
    return "\n".join((f"Tokens in this folder, last {DAYS} days:", *rows))


def _day(day: str, tokens: int, highest: int) -> str:
    length = max(1, round(tokens * _BAR / highest)) if tokens else 0
    return f"{day[5:]} {'#' * length:<{_BAR}} {tokens:>12,}"


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


# Tools whose description for the model begins with its arguments.
_ABOUT = {"todo_update": "Change the text or the status of a todo."}

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
