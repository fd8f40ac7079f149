"""JSON: a document with a table in it, or a value a line. Inner objects become columns with dots in their names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, cast

from .table import LOOKED_AT, Row, Rows, Table
from .textfile import TextFile
from .values import DataError

LARGEST = 64 << 20
"""Characters of a document, which is read as a whole."""

DEEPEST = 8
"""Inner objects that become columns; deeper ones are shown as text."""

COLUMNS = 2000
"""Columns at most: an object with more keys is no row."""


class JsonLines(Table):
    """A file with a JSON value on each line."""

    def __init__(self, file: TextFile) -> None:
        super().__init__()
        self.file = file
        self.kind = f"JSON lines ({file.encoding})"
        found = list(islice(self._records(), LOOKED_AT))
        if not found:
            raise DataError("it is empty: it has no line")
        self.names = _names(found)
        self._known = set(self.names)
        self._further: dict[str, int] = {}

    def rows(self) -> Iterator[Row]:
        self._further = {}
        for line, record in enumerate(self._records(), 1):
            if not record.keys() <= self._known:
                for name in record.keys() - self._known:
                    if len(self._further) < COLUMNS:
                        self._further.setdefault(name, line)
            yield [record.get(name) for name in self.names]

    def count(self) -> int:
        """Return the number of lines that are not empty; they are not parsed."""
        rows = 0
        for block in self.file.blocks():
            if "\n\n" in block or "\n\r" in block or block.startswith(("\n", "\r")):
                rows += sum(1 for line in block.split("\n") if line.strip())
            else:
                rows += block.count("\n") + (not block.endswith("\n"))
        return rows

    def remarks(self) -> list[str]:
        found = [*self.notes, *self.file.remarks()]
        if self._further:
            name, row = next(iter(self._further.items()))
            found.append(
                f"{len(self._further)} names that first come after row {LOOKED_AT:,} are left out: "
                f"{name[:80]} (row {row}) …"
            )
        return found

    def _records(self) -> Iterator[dict[str, Any]]:
        for number, line in enumerate(self.file.lines(), 1):
            if line.strip():
                yield _record(_parsed(line, number))


def read_document(file: TextFile) -> Table:
    """Return the table in a document: a list of objects, or an object of lists or of objects."""
    parts, length = list[str](), 0
    for block in file.blocks():
        parts.append(block)
        length += len(block)
        if length > LARGEST:
            raise DataError(
                f"it is one JSON document of more than {LARGEST >> 20} million characters, which is read as a whole. "
                "Make JSON lines of it: jq -c '.[]' FILE > FILE.jsonl"
            )
    document = _parsed("".join(parts), 1)
    notes = list[str]()
    records = _records_in(document, notes)
    names = _names(records)
    table = Rows(f"JSON ({file.encoding})", names, [[record.get(name) for name in names] for record in records])
    table.notes = [*notes, *file.remarks()]
    return table


def _records_in(document: Any, notes: list[str]) -> list[dict[str, Any]]:
    if isinstance(document, list):
        return [_record(item) for item in cast("list[Any]", document)]
    if not isinstance(document, dict) or not document:
        return [_record(document)]
    values = cast("dict[str, Any]", document)
    lists = {name: cast("list[Any]", value) for name, value in values.items() if isinstance(value, list)}
    if len(lists) == len(values):
        lengths = {len(items) for items in lists.values()}
        if len(lengths) == 1:
            return [_record(dict(zip(lists, items))) for items in zip(*lists.values())]  # noqa: B905  equal lengths
        if len(lists) > 1:
            told = ", ".join(f"{name[:40]}: {len(items)}" for name, items in list(lists.items())[:8])
            raise DataError(f"its lists have different lengths ({told}), so they are no columns of one table")
    tables = [name for name, items in lists.items() if items and all(isinstance(item, dict) for item in items)]
    if len(tables) == 1:
        others = [name for name in values if name != tables[0]]
        if others:
            notes.append(f"the rows are those of {tables[0]!r}; beside it: {', '.join(others)[:200]}")
        return [_record(item) for item in lists[tables[0]]]
    if all(isinstance(value, dict) for value in values.values()):
        return [_record({"key": key, **value}) for key, value in values.items()]
    return [_record(values)]


def _parsed(text: str, line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"line {line + error.lineno - 1}, character {error.colno}: {error.msg}") from None
    except RecursionError:
        raise DataError(f"line {line}: it is nested too deeply to be a table") from None
    except ValueError as error:  # an integer of thousands of digits
        raise DataError(f"line {line}: {error}") from None


def _record(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        if isinstance(value, list):
            return {f"column{at}": item for at, item in enumerate(cast("list[Any]", value)[:COLUMNS], 1)}
        return {"value": value}
    found: dict[str, Any] = {}
    _flatten(cast("dict[str, Any]", value), "", 0, found)
    return found


def _flatten(values: dict[str, Any], prefix: str, depth: int, found: dict[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, dict) and value and depth < DEEPEST and len(found) < COLUMNS:
            _flatten(cast("dict[str, Any]", value), f"{prefix}{key}.", depth + 1, found)
        else:
            found[f"{prefix}{key}"] = value


def _names(records: list[dict[str, Any]]) -> list[str]:
    names: dict[str, None] = {}
    for record in records:
        names |= dict.fromkeys(record)
        if len(names) > COLUMNS:
            raise DataError(f"it has more than {COLUMNS:,} different names, so its objects are no rows of one table")
    return list(names)
