"""Hits as a model reads them: by session, in the order of time, amid their neighbours, within a budget. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from graphlib import TopologicalSorter
from itertools import pairwise

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
    chosen: dict[str, MemoryItem] = {}
    for hit in hits:
        item = _cut(hit, room) if not chosen and room < _cost(hit, hit.id) else hit
        room = _take(item, hit.id, chosen, room)
    marked = set(chosen)
    for hit in hits:
        if hit.id in marked:
            for item in neighbours.get(hit.id, ()):
                room = _take(item, "", chosen, room)
    return _text([hit for hit in hits if hit.id in marked], neighbours, chosen)


def _text(hits: Sequence[Hit], neighbours: Mapping[str, Sequence[MemoryItem]], chosen: Mapping[str, MemoryItem]) -> str:
    marked = {hit.id for hit in hits}
    order = _order(neighbours.values())
    lines: list[str] = []
    for session in dict.fromkeys(hit.session for hit in hits):
        items = [item for item in chosen.values() if item.session == session]
        items.sort(key=lambda item: (item.ts, order.get(item.id, 0)))
        lines.append(_head(session))
        lines += [_line(item, item.id if item.id in marked else "") for item in items]
    return "\n".join(lines)


def _order(runs: Iterable[Sequence[MemoryItem]]) -> dict[str, int]:
    """Return the places of items of which runs are known, for those that have the same time."""
    later: TopologicalSorter[str] = TopologicalSorter()
    for run in runs:
        for before, after in pairwise(run):
            later.add(after.id, before.id)
    return {id: place for place, id in enumerate(later.static_order())}


def _take(item: MemoryItem, mark: str, chosen: dict[str, MemoryItem], room: int) -> int:
    """Choose an item if there is room for it, and for its session's head; return the room that is left."""
    cost = _cost(item, mark)
    if any(other.session == item.session for other in chosen.values()):
        cost -= _size(_head(item.session))
    if item.id in chosen or cost > room:
        return room
    chosen[item.id] = item
    return room - cost


def _cost(item: MemoryItem, mark: str) -> int:
    return _size(_line(item, mark)) + _size(_head(item.session))


def _cut(item: MemoryItem, room: int) -> MemoryItem:
    """Return an item with the beginning of its text that fits."""
    rest = max(_LEAST, room - _cost(replace(item, text="…"), item.id))
    text = item.text.encode()[:rest].decode(errors="ignore")
    return replace(item, text=f"{text}…")


def _head(session: str) -> str:
    return f"session {session}:" if session else "notes:"


def _line(item: MemoryItem, mark: str) -> str:
    when = datetime.fromtimestamp(item.ts, UTC).strftime("%Y-%m-%d %H:%M ") if 0 < item.ts < 1e11 else ""
    return f"  {when}{f'[{mark}] ' if mark else ''}{f'{item.speaker}: ' if item.speaker else ''}{item.text}"


def _size(line: str) -> int:
    return len(line.encode()) + 1
