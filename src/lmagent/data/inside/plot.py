"""Plot: a picture of a table, drawn by Vega-Lite. Its kind follows from the types of the columns."""

from __future__ import annotations

import base64
import math
import random
import zlib
from collections.abc import Sequence
from typing import Any

from .binary import needed, one_line
from .formats import open_table
from .sql import is_sql, select
from .table import Row, Table
from .values import DataError, TimeLimit, TimeUp, is_number

KINDS = ("line", "bar", "scatter", "histogram", "box")
POINTS = 5_000
"""Rows that are drawn; of more, a random part."""

BARS = 30
"""Bars of a picture; the largest ones if there are more."""

RESULT = 100_000
"""Rows of a query that are taken."""

WIDTH, HEIGHT, LETTER = 560, 340, 14
"""Of the picture, and of its letters, which can still be read on a phone."""


def plot(path: str, name: str, request: dict[str, Any], limit: TimeLimit) -> dict[str, Any]:
    """Return the picture as base64, and what it shows. Raises DataError."""
    query = request.get("query", "")
    vega = needed("vl_convert", "plot")
    table = select(path, name, query, RESULT, limit) if is_sql(query) else open_table(path, name, query, limit)
    types = dict(zip(table.names, table.types()))  # noqa: B905  one type a column
    x, ys, kind = _chosen(table, types, request)
    notes = list[str]()
    records = _records(table, types, [column for column in (x, *ys) if column], kind, notes, limit)
    if not records:
        raise DataError(f"no row has values in {' and '.join(filter(None, (x, *ys)))}, so there is nothing to draw")
    spec = _spec(kind, x, ys, types, name)
    spec["data"] = {"values": records}
    names = {str(record["x"]) for record in records}
    if len(names) * (max(map(len, names)) + 1) * LETTER / 2 < WIDTH:
        spec["encoding"]["x"]["axis"] = {"labelAngle": 0}  # otherwise names of bars are turned
    try:
        picture = vega.vegalite_to_png(spec, scale=2)
    except Exception as error:  # noqa: BLE001  the library's errors have no common type
        raise DataError(f"it could not be drawn: {one_line(error)}") from None
    picture = _packed(picture)
    shown = f"{kind}: {', '.join(ys) or 'rows'}{f' by {x}' if x else ''}"
    return {
        "kind": table.kind,
        "title": f"{shown}; {len(records):,} {'bars' if kind == 'bar' else 'points'}",
        "columns": [],
        "rows": [],
        "notes": [*table.remarks(), *notes],
        "png": base64.b64encode(picture).decode("ascii"),
    }


def _packed(picture: bytes) -> bytes:
    """Return a PNG a third as large: the library hardly packs its pixels."""
    at, pixels, parts = 8, b"", [picture[:8]]
    while at < len(picture):
        length = int.from_bytes(picture[at : at + 4], "big")
        kind, chunk = picture[at + 4 : at + 8], picture[at : at + 12 + length]
        at += len(chunk)
        if kind == b"IDAT":
            pixels += chunk[8:-4]
            continue
        if kind == b"IEND":
            data = b"IDAT" + zlib.compress(zlib.decompress(pixels), 6)
            parts.append((len(data) - 4).to_bytes(4, "big") + data + zlib.crc32(data).to_bytes(4, "big"))
        parts.append(chunk)
    return b"".join(parts)


def _chosen(table: Table, types: dict[str, str], request: dict[str, Any]) -> tuple[str, list[str], str]:
    """Return the columns along and up, and the kind: those of the request, or by the types."""
    kind = str(request.get("kind") or "").lower()
    kind = {"hist": "histogram", "points": "scatter", "point": "scatter", "column": "bar", "boxplot": "box"}.get(
        kind, kind
    )
    if kind and kind not in KINDS:
        raise DataError(f"there is no kind of plot {kind[:40]!r}. There are {', '.join(KINDS)}")
    x = _column(table, request.get("x") or "")
    ys = [_column(table, part) for part in _parts(table, str(request.get("y") or ""))]
    numbers = [name for name, found in types.items() if is_number(found) and name not in (x, *ys)]
    times = [name for name, found in types.items() if found in ("date", "datetime")]
    texts = [name for name, found in types.items() if found in ("text", "boolean")]
    if kind in ("histogram", "box"):
        ys = ys or ([x] if x else []) or numbers[:1]
        x = x if kind == "box" and x not in ys else ""
    elif not x:
        x = next(iter(times or texts), "") if kind != "scatter" else ""
        if not x and len(numbers) > 1 and not ys:
            x = numbers.pop(0)
    if not ys and kind not in ("histogram", "box"):
        ys = numbers[:1]
    for name in ys:
        if not is_number(types[name]):
            raise DataError(f"the column {name} holds {types[name]}, and only numbers are drawn as y")
    if not ys and (kind not in ("", "bar") or not x):
        raise DataError(f"it has no column of numbers to draw. Its columns: {_listed(types)}")
    return x, ys, kind or _guess(x, ys, types)


def _guess(x: str, ys: Sequence[str], types: dict[str, str]) -> str:
    if not x:
        return "histogram"
    if types[x] in ("date", "datetime", "time"):
        return "line"
    return "scatter" if is_number(types[x]) and ys else "bar"


def _parts(table: Table, text: str) -> list[str]:
    """Return the columns that `y` names: one, or several with commas between."""
    return [text] if text in table.names else [part.strip() for part in text.split(",") if part.strip()]


def _column(table: Table, wanted: str) -> str:
    if not wanted or wanted in table.names:
        return wanted
    for name in table.names:
        if name.lower() == wanted.lower():
            return name
    raise DataError(f"there is no column {wanted[:80]!r}. There are {', '.join(table.names[:50])}")


def _listed(types: dict[str, str]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in list(types.items())[:30])


def _records(
    table: Table, types: dict[str, str], columns: list[str], kind: str, notes: list[str], limit: TimeLimit
) -> list[dict[str, Any]]:
    """Return the points, in fields `x`, `y` and `series`."""
    places = [table.names.index(name) for name in columns]
    numeric = [is_number(types[name]) for name in columns]
    has_x = kind not in ("histogram",) and not (kind == "box" and len(columns) == 1)
    rows, seen = (_grouped if kind == "bar" else _thinned)(table, places, numeric, limit, notes)
    records = list[dict[str, Any]]()
    for row in rows:
        x = row[0] if has_x else None
        if kind == "bar" and len(columns) == 1:
            records.append({"x": x, "y": row[-1], "series": "rows"})
            continue
        for name, value in zip(columns[has_x:], row[has_x:]):  # noqa: B905  a query of fewer columns ends earlier
            if value is not None and (x is not None or not has_x):
                records.append({"x": x, "y": value, "series": name})
    if seen > len(rows):
        what = f"the {BARS} largest of {seen:,}" if kind == "bar" else f"{len(rows):,} rows at random of {seen:,}"
        notes.append(f"drawn: {what}")
    return records


def _values(row: Row, places: Sequence[int], numeric: Sequence[bool]) -> list[Any]:
    found = list[Any]()
    for place, is_numeric in zip(places, numeric):  # noqa: B905
        value = row[place]
        if is_numeric and value is not None:
            try:
                value = float(value)
            except (TypeError, ValueError, OverflowError):
                value = None
            else:
                value = value if math.isfinite(value) else None
        elif value is not None and not isinstance(value, str):
            value = value.isoformat() if hasattr(value, "isoformat") else str(value)
        found.append(value[:80] if isinstance(value, str) else value)
    return found


def _thinned(
    table: Table, places: Sequence[int], numeric: Sequence[bool], limit: TimeLimit, notes: list[str]
) -> tuple[list[list[Any]], int]:
    """Return a random part of the rows, in their order, and the number of all."""
    chance, kept, seen = random.Random(0), list[tuple[int, Row]](), 0
    try:
        for seen, row in enumerate(table.rows(), 1):
            if len(kept) < POINTS:
                kept.append((seen, row))
            elif (place := chance.randrange(seen)) < POINTS:
                kept[place] = (seen, row)
            if not seen & 1023:
                limit.check()
    except TimeUp:
        notes.append(f"the time was up after {seen:,} rows: the others are not drawn")
    kept.sort(key=lambda each: each[0])
    return [_values(row, places, numeric) for _, row in kept], seen


def _grouped(
    table: Table, places: Sequence[int], numeric: Sequence[bool], limit: TimeLimit, notes: list[str]
) -> tuple[list[list[Any]], int]:
    """Return the sums of each x, or the number of its rows; the largest ones if they are many."""
    sums: dict[Any, list[float]] = {}
    order = 0
    try:
        for order, row in enumerate(table.rows(), 1):
            x, *values = _values(row, places, numeric)
            if len(sums) < RESULT or x in sums:
                found = sums.setdefault(x, [0.0] * max(1, len(values)))
                for at, value in enumerate(values or (1.0,)):
                    found[at] += value or 0.0
            if not order & 1023:
                limit.check()
    except TimeUp:
        notes.append(f"the time was up after {order:,} rows: the others are not drawn")
    if order > len(sums):
        notes.append("bars are sums" if len(places) > 1 else "bars are numbers of rows")
    sums.pop(None, None)
    largest = sorted(sums, key=lambda x: -sums[x][0])[:BARS] if len(sums) > BARS else list(sums)
    return [[x, *sums[x]] for x in largest], len(sums)


def _spec(kind: str, x: str, ys: Sequence[str], types: dict[str, str], name: str) -> dict[str, Any]:
    """Return the description of the picture in Vega-Lite, without its data."""
    label = {"field": "y", "type": "quantitative", "title": ", ".join(ys) or "rows"}
    temporal = x and types[x] in ("date", "datetime")
    along: dict[str, Any] = {"field": "x", "title": x}
    if kind == "bar":
        along |= {"type": "nominal", "sort": None}
    elif temporal:
        along |= {"type": "temporal"}
    elif x and is_number(types[x]) and kind != "box":
        along |= {"type": "quantitative", "scale": {"zero": False}}
    else:
        along |= {"type": "nominal", "sort": None}
    encoding: dict[str, Any] = {"x": along, "y": label}
    mark: dict[str, Any] = {"type": {"scatter": "point", "box": "boxplot", "histogram": "bar"}.get(kind, kind)}
    if kind == "histogram":
        encoding = {
            "x": {"field": "y", "type": "quantitative", "bin": {"maxbins": 40}, "title": ", ".join(ys)},
            "y": {"aggregate": "count", "title": "rows"},
        }
    elif kind == "box" and not x:
        encoding["x"] = {"field": "series", "type": "nominal", "title": None}
    elif kind != "bar":
        encoding["y"] = {**label, "scale": {"zero": False}}
    if kind == "scatter":
        mark |= {"filled": True, "opacity": 0.6}
    if len(ys) > 1:
        encoding["color"] = {"field": "series", "type": "nominal", "title": None}
        if kind == "bar":
            encoding["xOffset"] = {"field": "series"}
        if kind == "histogram":
            mark["opacity"] = 0.6
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "background": "white",
        "title": name[:80],
        "mark": mark,
        "encoding": encoding,
        "config": {
            "axis": {"labelFontSize": LETTER, "titleFontSize": LETTER},
            "legend": {"labelFontSize": LETTER},
            "title": {"fontSize": LETTER + 1},
        },
        "width": WIDTH,
        "height": HEIGHT,
    }
