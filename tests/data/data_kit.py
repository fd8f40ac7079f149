"""Files with tables in every format, and calls of the tools that look into them."""

from __future__ import annotations

import functools
import os
import sqlite3
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest

from lmagent.core.sandbox import Limits, Sandbox
from lmagent.core.tool import FileMark, ToolContext, ToolOutput
from lmagent.data.feature import DataPlace, GetDataSandbox, plot_tool, view_tool
from lmagent.data.inside.main import answer
from lmagent.engine.toolbox import decode
from lmagent.sandbox.bubblewrap import Bubblewrap
from lmagent.sandbox.choose import alike
from lmagent.sandbox.environment import SandboxRequest


@functools.cache
def why_no_bubblewrap() -> str:
    with TemporaryDirectory() as folder:
        report = anyio.run(Bubblewrap(Path(folder), SandboxRequest(env=dict(os.environ))).probe)
    return "" if report.works else report.reason


def sandbox_of(kind: str, before: Callable[[], None] = lambda: None) -> GetDataSandbox:
    """Return a function that makes sandboxes of a kind; `before` is done before one is made."""

    async def get(folder: Path, read: Sequence[Path], limits: Limits) -> Sandbox:
        before()
        return alike(folder, SandboxRequest(env=dict(os.environ), read=tuple(read), limits=limits), kind)

    return get


class Looks:
    """Calls of both tools on a real sandbox, as the engine makes them."""

    def __init__(self, workspace: Path, hidden: Iterable[str] = ()) -> None:
        if why := why_no_bubblewrap():
            pytest.skip(f"needs bubblewrap: {why}")
        self.workspace = workspace
        self.seen: dict[str, FileMark] = {}
        place = DataPlace(workspace, sandbox_of("bubblewrap"), lambda: "bubblewrap")
        forbidden = set(hidden)
        self.view = view_tool(place)
        self.draw = plot_tool(place, lambda _, path: "a rule forbids it" if path in forbidden else "")

    def __call__(self, path: str, operation: str = "head", **more: Any) -> str:
        return self.run(self.view, path=path, operation=operation, **more).content

    def plot(self, path: str, **more: Any) -> ToolOutput:
        output = self.run(self.draw, path=path, **more)
        self.seen[output.data["path"]] = FileMark(output.data["sha256"], output.data["changed"])
        return output

    def run(self, tool: Any, **arguments: Any) -> ToolOutput:
        context = ToolContext("s", "call", self.workspace, self.seen, lambda _: None)
        return anyio.run(tool.run, decode(tool, arguments), context)


def look(path: Path, operation: str = "head", query: str = "", rows: int = 5, seconds: float = 60) -> dict[str, Any]:
    """Return the worker's answer, from this process."""
    asked = {"path": str(path), "name": path.name, "operation": operation, "query": query, "rows": rows}
    return answer({**asked, "seconds": seconds})


def rows_of(path: Path, operation: str = "head", query: str = "", rows: int = 5) -> list[list[str | None]]:
    found = look(path, operation, query, rows)
    assert "error" not in found, found["error"]
    return found["rows"]


def columns_of(path: Path, query: str = "") -> dict[str, str]:
    found = look(path, "head", query)
    assert "error" not in found, found["error"]
    return dict(found["columns"])


def refusal(path: Path, operation: str = "head", query: str = "") -> str:
    return look(path, operation, query)["error"]


def shape(path: Path, query: str = "") -> tuple[int, int]:
    """Return the rows and columns that `shape` reports."""
    found = look(path, "shape", query)
    assert "error" not in found, found["error"]
    words = found["title"].replace(",", "").split()
    return int(words[0]), int(words[2])


def sqlite(path: Path, *statements: str) -> Path:
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    return path


def parquet(path: Path, query: str) -> Path:
    import duckdb

    with duckdb.connect() as connection:
        connection.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet)")
    return path


def arrow(path: Path, *, stream: bool = False, rows: int = 3) -> Path:
    import arro3.io
    from arro3.core import Array, DataType, Table

    numbers = Array(list(range(rows)), type=DataType.int64())
    names = Array([f"name {at}" if at else None for at in range(rows)], type=DataType.string())
    table = Table.from_pydict({"id": numbers, "name": names})
    (arro3.io.write_ipc_stream if stream else arro3.io.write_ipc)(table, str(path))
    return path


def xlsx(path: Path, sheets: dict[str, Sequence[Sequence[Any]]], *, entities: str = "", padding: int = 0) -> Path:
    """Write a workbook by hand. A text that begins with `=` is a formula whose saved value is 42."""
    types = '<Default Extension="xml" ContentType="application/xml"/>'
    types += '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    main = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    types += f'<Override PartName="/xl/workbook.xml" ContentType="{main}.sheet.main+xml"/>'
    schema = "http://schemas.openxmlformats.org"
    office = f"{schema}/officeDocument/2006/relationships"
    book, links = "", ""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for at, (name, rows) in enumerate(sheets.items(), 1):
            types += f'<Override PartName="/xl/worksheets/sheet{at}.xml" ContentType="{main}.worksheet+xml"/>'
            book += f'<sheet name="{name}" sheetId="{at}" r:id="r{at}"/>'
            links += f'<Relationship Id="r{at}" Type="{office}/worksheet" Target="worksheets/sheet{at}.xml"/>'
            lines = "".join(f"<row>{''.join(map(_cell, row))}</row>" for row in rows) + " " * padding
            text = f'<worksheet xmlns="{schema}/spreadsheetml/2006/main"><sheetData>{lines}</sheetData></worksheet>'
            archive.writestr(f"xl/worksheets/sheet{at}.xml", entities + text)
        book = (
            f'<workbook xmlns="{schema}/spreadsheetml/2006/main" xmlns:r="{office}"><sheets>{book}</sheets></workbook>'
        )
        archive.writestr("xl/workbook.xml", book)
        package = f"{schema}/package/2006"
        archive.writestr(
            "xl/_rels/workbook.xml.rels", f'<Relationships xmlns="{package}/relationships">{links}</Relationships>'
        )
        root = f'<Relationship Id="r1" Type="{office}/officeDocument" Target="xl/workbook.xml"/>'
        archive.writestr("_rels/.rels", f'<Relationships xmlns="{package}/relationships">{root}</Relationships>')
        archive.writestr("[Content_Types].xml", f'<Types xmlns="{package}/content-types">{types}</Types>')
    return path


def _cell(value: Any) -> str:
    if value is None:
        return "<c/>"
    if isinstance(value, int | float):
        return f"<c><v>{value}</v></c>"
    if value.startswith("="):
        return f"<c><f>{value[1:]}</f><v>42</v></c>"
    return f'<c t="inlineStr"><is><t>{value}</t></is></c>'
