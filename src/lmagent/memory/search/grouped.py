"""Hits as a model reads them: by session, in the order of time, amid their neighbours, within a budget. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from lmagent.core.memory import Hit, MemoryItem

BYTES_PER_TOKEN = 4
"""The estimate that the engine uses for a model it does not know."""

_LEAST = 40
"""Bytes of the best hit that are shown in the smallest budget."""


def grouped(hits: Sequence[Hit], neighbours: Mapping[str, Sequence[MemoryItem]], budget_tokens: int) -> str:
    """Return hits as text: sessions in the order of their best hit, in each the items in the order of time.

    The best hits get room first, then the neighbours of the best. A hit is marked with its id in brackets.

    Args:
        hits: the result of a search, the best first.
        neighbours: the items around each hit's id, in order, as `MemoryIndex.around` returns them.
        budget_tokens: how long the text may be, counting 4 bytes as a token.
    """
    room = budget_tokens * BYTES_PER_TOKEN
    lines = dict[str, dict[str, tuple[float, str]]]()

    def add(item: MemoryItem, mark: str) -> bool:
        """Add an item if there is room for it, and for its session's head."""
        nonlocal room
        line, known = _line(item, mark), lines.get(item.session, {})
        cost = _size(line) + (0 if known else _size(_head(item.session)))
        if item.id in known or cost > room:
            return item.id in known
        room -= cost
        lines.setdefault(item.session, {})[item.id] = (item.ts, line)
        return True

    shown = [hit for place, hit in enumerate(hits) if add(hit if place else _cut(hit, room), hit.id)]
    for hit in shown:
        for item in neighbours.get(hit.id, ()):
            add(item, "")
    place = {item.id: number for number, item in enumerate(item for run in neighbours.values() for item in run)}
    text = list[str]()
    for session, found in lines.items():
        order = sorted(found, key=lambda id: (found[id][0], place.get(id, 0)))
        text += [_head(session), *(found[id][1] for id in order)]
    return "\n".join(text)


def _cut(item: MemoryItem, room: int) -> MemoryItem:
    """Return an item, with the beginning of its text if not all of it fits."""
    rest = max(_LEAST, room - _size(_line(replace(item, text="…"), item.id)) - _size(_head(item.session)))
    text = item.text.encode()
    return item if len(text) <= rest else replace(item, text=f"{text[:rest].decode(errors='ignore')}…")


def _head(session: str) -> str:
    return f"session {session}:" if session else "notes:"


def _line(item: MemoryItem, mark: str) -> str:
    when = datetime.fromtimestamp(item.ts, UTC).strftime("%Y-%m-%d %H:%M ") if 0 < item.ts < 1e11 else ""
    return f"  {when}{f'[{mark}] ' if mark else ''}{f'{item.speaker}: ' if item.speaker else ''}{item.text}"


def _size(line: str) -> int:
    return len(line.encode()) + 1
