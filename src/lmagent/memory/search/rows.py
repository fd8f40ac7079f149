"""The statements on items, and on the words in them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence

from lmagent.core.memory import Hit, MemoryItem
from lmagent.memory.search.query import asks, match_expression, named
from lmagent.memory.search.recipe import FoundItem

Times = tuple[float | None, float | None]
"""The first and the last Unix time of a search; None for no limit."""

_FIELDS = "id, text, ts, session, speaker"
_NEIGHBOUR = (
    "(SELECT near.number FROM item near WHERE near.session = item.session AND item.session != ''"
    " AND (near.ts, near.number) {0} (item.ts, item.number) ORDER BY near.ts {1}, near.number {1} LIMIT 1)"
)
_FOUND = (
    "SELECT number, session, speaker, asks, "
    f"{_NEIGHBOUR.format('<', 'DESC')}, {_NEIGHBOUR.format('>', 'ASC')} FROM item WHERE number IN "
)


def upsert(connection: sqlite3.Connection, items: Sequence[MemoryItem]) -> None:
    """Add or replace items; a changed text loses its vector."""
    for item in items:
        old = connection.execute("SELECT number, text FROM item WHERE id = ?", (item.id,)).fetchone()
        row = (item.text, item.ts, item.session, item.speaker, asks(item.text), item.id)
        if old is None:
            add = "INSERT INTO item (text, ts, session, speaker, asks, id) VALUES (?, ?, ?, ?, ?, ?)"
            _add_words(connection, connection.execute(add, row).lastrowid, item.text)
            continue
        number, text = old
        connection.execute("UPDATE item SET text = ?, ts = ?, session = ?, speaker = ?, asks = ? WHERE id = ?", row)
        if text != item.text:
            _remove_words(connection, number, text)
            _add_words(connection, number, item.text)
            _remove_vector(connection, number)


def delete(connection: sqlite3.Connection, ids: Iterable[str]) -> int:
    """Delete items and return how many there were."""
    count = 0
    for id in ids:
        found = connection.execute("SELECT number, text FROM item WHERE id = ?", (_clean(id),)).fetchone()
        if found:
            _remove_words(connection, *found)
            _remove_vector(connection, found[0])
            connection.execute("DELETE FROM item WHERE number = ?", found[:1])
            count += 1
    return count


def matches(connection: sqlite3.Connection, words: list[str], limit: int, times: Times | None) -> dict[int, float]:
    """Return the BM25 scores of the best items that hold any of the words; the higher the better."""
    within = f"AND rowid IN (SELECT number FROM item WHERE {_WITHIN})" if times else ""
    found = connection.execute(
        f"SELECT rowid, -rank FROM word WHERE word MATCH ? {within} ORDER BY rank, rowid LIMIT ?",
        (match_expression(words), *_limits(times), limit),
    )
    return dict(found.fetchall())


def speakers(connection: sqlite3.Connection) -> list[str]:
    """Return the speakers of all items, up to 1,000; each costs one step in the index, not one for each item."""
    next_one = "SELECT min(speaker) FROM item WHERE speaker >"
    found = connection.execute(
        f"WITH RECURSIVE one (speaker) AS ({next_one} '' UNION ALL"
        f" SELECT ({next_one} one.speaker) FROM one WHERE one.speaker IS NOT NULL)"
        " SELECT speaker FROM one WHERE speaker IS NOT NULL LIMIT 1000"
    )
    return [speaker for (speaker,) in found]


def numbers_within(connection: sqlite3.Connection, times: Times) -> list[int]:
    """Return the numbers of the items of a time."""
    return [number for (number,) in connection.execute(f"SELECT number FROM item WHERE {_WITHIN}", _limits(times))]


def candidates(connection: sqlite3.Connection, numbers: Iterable[int], words: frozenset[str]) -> dict[int, FoundItem]:
    """Return these items with their neighbours, which a search finds through them."""
    found: dict[int, FoundItem] = {}
    is_named: dict[str, bool] = {}

    def add(wanted: Iterable[int]) -> None:
        for number, session, speaker, is_question, before, after in connection.execute(_FOUND + in_list(wanted)):
            if speaker not in is_named:
                is_named[speaker] = named(speaker, words)
            found[number] = FoundItem(number, session, is_named[speaker], bool(is_question), before, after)

    add(numbers)
    add({number for item in found.values() for number in (item.before, item.after) if number} - found.keys())
    return found


def best_hits(
    connection: sqlite3.Connection, scores: Mapping[int, float], times: Times | None, k: int, now: float | None
) -> list[Hit]:
    """Return the `k` best. Of equal scores, the nearest to `now` comes first, else the newest, else the smaller id."""
    if len(scores) > 2 * k and not times:  # all that may be among the best, ties included
        least = sorted(scores.values(), reverse=True)[k - 1]
        scores = {number: score for number, score in scores.items() if score >= least}
    within = f"AND {_WITHIN}" if times else ""
    found = connection.execute(
        f"SELECT number, {_FIELDS} FROM item WHERE number IN {in_list(scores)} {within}", _limits(times)
    )
    hits = [Hit(*row, score=scores[number]) for number, *row in found]
    hits.sort(key=lambda hit: (-hit.score, -hit.ts if now is None else abs(hit.ts - now), hit.id))
    return hits[:k]


def around(connection: sqlite3.Connection, id: str, span: int) -> list[MemoryItem]:
    """Return an item amid its neighbours; nothing if it does not exist."""
    found = connection.execute(f"SELECT number, {_FIELDS} FROM item WHERE id = ?", (_clean(id),)).fetchone()
    if found is None:
        return []
    item = MemoryItem(*found[1:])
    if not item.session:
        return [item]
    where = "WHERE session = ? AND (ts, number) {0} (?, ?) ORDER BY ts {1}, number {1} LIMIT ?"
    place = (item.session, item.ts, found[0], span)
    before = connection.execute(f"SELECT {_FIELDS} FROM item {where.format('<', 'DESC')}", place).fetchall()
    after = connection.execute(f"SELECT {_FIELDS} FROM item {where.format('>', 'ASC')}", place).fetchall()
    return [MemoryItem(*row) for row in reversed(before)] + [item] + [MemoryItem(*row) for row in after]


def in_list(numbers: Iterable[int]) -> str:
    """Return numbers as the right side of IN: SQLite allows only so many parameters."""
    return f"({', '.join(map(str, numbers))})"


_WITHIN = "ts >= ? AND ts <= ?"


def _limits(times: Times | None) -> tuple[float, ...]:
    if times is None:
        return ()
    since, until = times
    return (-1e300 if since is None else since, 1e300 if until is None else until)


def _add_words(connection: sqlite3.Connection, number: int | None, text: str) -> None:
    connection.execute("INSERT INTO word (rowid, text) VALUES (?, ?)", (number, text))


def _remove_words(connection: sqlite3.Connection, number: int, text: str) -> None:
    """Remove the words of a text: FTS5 has to be given the text as it was."""
    connection.execute("INSERT INTO word (word, rowid, text) VALUES ('delete', ?, ?)", (number, text))


def _remove_vector(connection: sqlite3.Connection, number: int) -> None:
    if connection.execute("DELETE FROM vector WHERE number = ?", (number,)).rowcount:
        connection.execute("UPDATE counter SET stamp = stamp + 1")


def _clean(id: str) -> str:
    return id.encode("utf-8", "replace").decode()
