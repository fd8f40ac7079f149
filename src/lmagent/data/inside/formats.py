"""Formats: by the first bytes of a file, then by its name."""

from __future__ import annotations

import os

from .table import Table
from .textfile import TextFile
from .values import DataError, TimeLimit

_LINES = (".jsonl", ".ndjson", ".jsonlines")
_BOOKS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
_MAGIC = {
    b"SQLite format 3\0": "sqlite",
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"\xff\xff\xff\xff": "arrow stream",
    b"\xd0\xcf\x11\xe0": "excel",
}
_NAMES = {".parquet": "Parquet", ".feather": "Arrow", ".arrow": "Arrow", ".sqlite": "SQLite", ".xlsx": "Excel"}
_PACKED = "it is packed with {}. Unpack it first"
_REFUSED = {
    b"\x1f\x8b": _PACKED.format("gzip"),
    b"BZh": _PACKED.format("bzip2"),
    b"\xfd7zXZ\x00": _PACKED.format("xz"),
    b"\x28\xb5\x2f\xfd": _PACKED.format("zstd"),
    b"FEA1": "it is a Feather file of version 1, which is no longer in use. Write it again as version 2",
    b"%PDF": "it is a PDF, and no table",
    b"\x89PNG": "it is a picture, and no table",
    b"\x89HDF": "it is HDF5, which is not read. Write it as Parquet or CSV",
}


def format_of(path: str, name: str) -> str:
    """Return `sqlite`, `parquet`, `arrow`, `arrow stream`, `excel`, `json lines`, `json` or `csv`."""
    if os.path.getsize(path) == 0:
        raise DataError("it is empty: 0 bytes")
    with open(path, "rb") as file:
        head = file.read(4096)
    lower = name.lower()
    for magic, found in _MAGIC.items():
        if head.startswith(magic):
            return found
    if head.startswith(b"PK\x03\x04"):
        if lower.endswith(_BOOKS) or _is_workbook(path):
            return "excel"
        raise DataError("it is a ZIP archive. Unpack it and name the file inside")
    for magic, why in _REFUSED.items():
        if head.startswith(magic):
            raise DataError(why)
    for ending, what in _NAMES.items():
        if lower.endswith(ending):
            raise DataError(f"its name says {what}, and it does not begin like that: it is broken, or another format")
    return _text_format(head, lower)


def _text_format(head: bytes, name: str) -> str:
    if name.endswith(_LINES):
        return "json lines"
    if name.endswith(".json"):
        return "json"
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").replace(b"\r", b"")
    if text.startswith((b"{", b"[")) and not name.endswith((".csv", ".tsv", ".tab", ".txt")):
        return "json lines" if text.startswith(b"{") and b"}\n{" in text else "json"
    return "csv"


def open_table(path: str, name: str, wanted: str, limit: TimeLimit) -> Table:
    """Return the table in a file; `wanted` names a table or sheet. Raises DataError.

    Each format is imported when a file has it: the worker starts for every call.
    """
    found = format_of(path, name)
    if found in ("sqlite", "excel"):
        from .binary import SqliteTable, Workbook, choose

        if found == "sqlite":
            return SqliteTable(path, wanted, limit)
        book = Workbook(path)
        return book.sheet(choose("sheet", book.sheets, wanted))
    if wanted:
        raise DataError("it holds one table, so query has no meaning but for the operation sql. Leave it out")
    if found == "parquet":
        from .binary import QueryTable
        from .sql import parquet

        return QueryTable("Parquet", lambda: parquet(path, limit), "SELECT * FROM data")
    if found in ("arrow", "arrow stream"):
        from .binary import ArrowTable

        return ArrowTable(path, stream=found != "arrow")
    file = TextFile(path, limit)
    if found == "csv":
        from .csvtext import CsvTable

        return CsvTable(file, name)
    return _json(file, lines=found == "json lines")


def _json(file: TextFile, *, lines: bool) -> Table:
    from .jsontext import JsonLines, read_document

    if lines:
        return JsonLines(file)
    try:
        return read_document(file)
    except DataError as refusal:
        if "Extra data" in str(refusal):  # JSON lines by another name
            return JsonLines(file)
        raise


def _is_workbook(path: str) -> bool:
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            return "[Content_Types].xml" in archive.namelist() and any(
                entry.startswith("xl/") for entry in archive.namelist()
            )
    except (zipfile.BadZipFile, OSError):
        return False
