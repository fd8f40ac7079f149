"""Operations: each makes the answer for one table, in a form that the caller draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from .table import LOOKED_AT, Row, Table
from .values import TimeLimit, TimeUp, cell, guessed

Answer = dict[str, Any]


def _answer(table: Table, title: str, rows: Sequence[Row], types: list[str] | None = None) -> Answer:
    found = table.types() if types is None else types
    return {
        "kind": table.kind,
        "title": title,
        "columns": [[name, kind] for name, kind in zip(table.names, found)],  # noqa: B905  one type a column
        "rows": [[cell(value) for value in row] for row in rows],
        "notes": table.remarks(),
    }


def head(table: Table, number: int, _limit: TimeLimit) -> Answer:
    types = table.types()
    rows = list(islice(table.rows(), number))
    return _answer(table, "the first rows" if rows else "no rows", rows, types)


def tail(table: Table, number: int, _limit: TimeLimit) -> Answer:
    types = table.types()
    rows = table.tail(number)
    return _answer(table, "the last rows" if rows else "no rows", rows, types)


def shape(table: Table, _number: int, _limit: TimeLimit) -> Answer:
    try:
        rows = f"{table.count():,} rows"
    except TimeUp:
        if not table.reached:
            raise
        rows = f"more than {table.reached:,} rows (the time was up at that one)"
    names = [name[:80] for name in table.names[:200]]
    more = f" and {len(table.names) - 200:,} more" if len(table.names) > 200 else ""
    text = f"{rows}, {len(table.names):,} columns: {', '.join(names)}{more}"
    return {"kind": table.kind, "title": text, "columns": [], "rows": [], "notes": table.remarks()}


def columns(table: Table, _number: int, _limit: TimeLimit) -> Answer:
    rows = list(islice(table.rows(), LOOKED_AT))
    types = table.types() if not table.is_guessed else guessed(rows, len(table.names), table.judge)
    found = list[list[str | None]]()
    for at, name in enumerate(table.names):
        values = [row[at] for row in rows]
        nulls = sum(value is None for value in values)
        example = next((cell(value) for value in values if value is not None), None)
        found.append([name, types[at], str(nulls), example])
    seen = f"the first {len(rows):,} rows" if len(rows) == LOOKED_AT else f"all {len(rows):,} rows"
    guess = "types and nulls" if table.is_guessed else "nulls"
    return {
        "kind": table.kind,
        "title": f"{len(table.names):,} columns; {guess} of {seen}",
        "columns": [["column", ""], ["type", ""], ["nulls", ""], ["example", ""]],
        "rows": found,
        "notes": table.remarks(),
    }


def describe(table: Table, _number: int, limit: TimeLimit) -> Answer:
    from .describe import HEADINGS, Column

    types = table.types()
    found = [Column(name, kind, len(types)) for name, kind in zip(table.names, types)]  # noqa: B905
    adders = [column.add for column in found]

    def take(row: Row) -> None:
        for add, value in zip(adders, row):  # noqa: B905
            add(value)

    rows, partly = _each(table, take, limit)
    notes = [*table.remarks(), *partly]
    if odd := [f"{column.name} ({column.odd:,})" for column in found if column.odd]:
        notes.append(f"values that are no numbers, in columns of numbers: {', '.join(odd)[:300]}")
    return {
        "kind": table.kind,
        "title": f"{rows:,} rows{' (not all)' if partly else ''}; ~ marks estimates",
        "columns": [[heading, ""] for heading in HEADINGS],
        "rows": [column.facts() for column in found],
        "notes": notes,
    }


def sample(table: Table, number: int, limit: TimeLimit) -> Answer:
    """Choose rows at random, each with the same chance; the same file gives the same rows."""
    import random

    types = table.types()
    chosen: list[tuple[int, Row]] = []
    chance = random.Random(0)
    seen = 0

    def take(row: Row) -> None:
        nonlocal seen
        seen += 1
        if len(chosen) < number:
            chosen.append((seen, row))
        elif (place := chance.randrange(seen)) < number:
            chosen[place] = (seen, row)

    rows, partly = _each(table, take, limit)
    chosen.sort(key=lambda each: each[0])
    answer = _answer(table, f"{len(chosen):,} rows at random of {rows:,}", [row for _, row in chosen], types)
    answer["columns"] = [["row", ""], *answer["columns"]]
    answer["rows"] = [[str(at), *row] for (at, _), row in zip(chosen, answer["rows"])]  # noqa: B905
    answer["notes"] += partly
    return answer


def _each(table: Table, take: Callable[[Row], None], limit: TimeLimit) -> tuple[int, list[str]]:
    """Call a function with each row; return their number, and a note if the time was up before the end."""
    rows = 0
    try:
        for rows, row in enumerate(table.rows(), 1):
            take(row)
            if not rows & 1023:
                limit.check()
    except TimeUp:
        return rows, [f"the time was up after {rows:,} rows: this is about them only ({limit.seconds:g} s)"]
    return rows, []


OPERATIONS = {
    "head": head,
    "tail": tail,
    "shape": shape,
    "columns": columns,
    "describe": describe,
    "sample": sample,
}
