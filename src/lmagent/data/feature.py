"""Feature: the tools `data_view`, which only reads, and `data_plot`, which writes a picture into the workspace.

They are two tools because a tool has one effect: looking needs no permission, and a picture is asked about, can be
undone and is shown like any written file.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from lmagent.core.errors import ToolError
from lmagent.core.sandbox import Limits, Sandbox
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.tools.paths import lexical
from lmagent.tools.read import PATH_NAMES, REMARKS
from lmagent.tools.sanitize import one_line

OPERATIONS = ("head", "tail", "shape", "columns", "describe", "sample", "sql")
ROWS = 5
SQL_ROWS = 50
MOST_ROWS = 1000
LONGEST_QUERY = 20_000  # characters; it is an argument of the worker's program


GetDataSandbox = Callable[[Path, Sequence[Path], Limits], Awaitable[Sandbox]]
"""Returns a sandbox for an empty folder, which sees only the given files and folders. Raises SandboxError."""


class DataPlace(Struct, frozen=True):
    """Where files are, and where they are looked into.

    Attributes:
        backend: the name of the sandbox, after one was returned.
    """

    workspace: Path
    sandbox: GetDataSandbox
    backend: Callable[[], str]


MayRead = Callable[[str, str], str]
"""Returns why permission rules keep a session from reading a path; empty if they do not."""


class DataView(Struct, frozen=True):
    """Arguments of data_view."""

    path: str
    operation: Annotated[str, Meta(extra_json_schema={"enum": [*OPERATIONS]})] = "head"
    n_rows: Annotated[int, Meta(description="default 5; sql: 50")] = 0
    query: Annotated[str, Meta(description="SELECT … FROM data; or the name of a table or sheet")] = ""


class DataPlot(Struct, frozen=True):
    """Arguments of data_plot."""

    path: str
    x: str = ""
    y: Annotated[str, Meta(description="one column or several, with commas")] = ""
    kind: Annotated[str, Meta(description="line, bar, scatter, histogram or box")] = ""
    query: Annotated[str, Meta(description="SELECT … FROM data, to draw its result")] = ""
    output: Annotated[str, Meta(description="a .png; default: named like the file")] = ""


_DRAWS = "data_plot(path, x?, y?, kind?) draws it."
"""The catalogue has one line for both tools: each line is paid for in every session."""

_TAKEN = {
    **PATH_NAMES,
    **dict.fromkeys(("op", "action", "mode", "command"), "operation"),
    **dict.fromkeys(("n", "rows", "limit", "num_rows", "max_rows", "nrows"), "n_rows"),
    **dict.fromkeys(("sql", "table", "sheet", "sheet_name", "table_name"), "query"),
    **REMARKS,
}


def view_tool(place: DataPlace) -> Tool:
    """Return the tool that looks into tables."""

    async def run(arguments: DataView, _: ToolContext) -> ToolOutput:
        from lmagent.data.text import drawn
        from lmagent.data.worker import look

        operation = _operation(arguments)
        rows = arguments.n_rows or (SQL_ROWS if operation == "sql" else ROWS)
        request = {"operation": operation, "query": arguments.query, "rows": min(max(1, rows), MOST_ROWS)}
        answer = await look(place, arguments.path, request)
        return ToolOutput(drawn(answer), {"path": answer["path"], "memory_mb": answer.get("memory_mb", 0)})

    return Tool(
        name="data_view",
        description=f"Look into CSV, JSON, Parquet, Excel, SQLite: head, tail, shape, columns, describe, sql. {_DRAWS}",
        arguments=DataView,
        effect="read",
        run=run,
        replay_safe=True,
        deferred=True,
        aliases=("read_csv", "read_excel", "read_table", "view_table", "view_data"),
        renames=_TAKEN,
        summary=_summary,
        targets=lambda arguments: (lexical(arguments.path),),
    )


def plot_tool(place: DataPlace, may_read: MayRead) -> Tool:
    """Return the tool that draws tables. Rules on reading hold for the file that it draws."""

    def check(arguments: DataPlot, ctx: ToolContext) -> str:
        _check(arguments, ctx, may_read)
        chosen = (("kind", arguments.kind), ("x", arguments.x), ("y", arguments.y), ("query", arguments.query))
        return "\n".join(f"{name}: {one_line(value, 1000)}" for name, value in chosen if value)

    async def run(arguments: DataPlot, ctx: ToolContext) -> ToolOutput:
        _check(arguments, ctx, may_read)
        return await _draw(place, arguments, ctx)

    return Tool(
        name="data_plot",
        description="Draw a table as a PNG in the workspace. Its columns decide about kind, x and y, if left out.",
        arguments=DataPlot,
        effect="write",
        run=run,
        deferred=True,
        aliases=("plot", "plot_data", "chart"),
        renames={
            **_TAKEN,
            **dict.fromkeys(("x_column", "x_axis"), "x"),
            **dict.fromkeys(("y_column", "y_axis", "column", "columns"), "y"),
            **dict.fromkeys(("type", "plot_type", "chart_type", "mode", "command"), "kind"),
            **dict.fromkeys(("output_path", "out", "save_path", "save_to"), "output"),
        },
        implied={"operation": ("plot",), "n_rows": (5,)},
        summary=lambda arguments: f"data_plot {one_line(lexical(arguments.path))} → {one_line(output_of(arguments))}",
        preview=check,
        targets=lambda arguments: (output_of(arguments),),
    )


def _check(arguments: DataPlot, ctx: ToolContext, may_read: MayRead) -> None:
    """Raise ToolError if the call would fail, before the user is asked."""
    from lmagent.tools.beneath import Beneath
    from lmagent.tools.drawing import require_png

    output = output_of(arguments)
    require_png(output)
    if why := may_read(ctx.session, lexical(arguments.path)):
        raise ToolError(f"{one_line(arguments.path)} is not drawn: {why}.", data={"code": "denied"})
    _require_short(arguments.query)
    with Beneath(ctx.workspace) as files:
        files.stat(arguments.path)


async def _draw(place: DataPlace, arguments: DataPlot, ctx: ToolContext) -> ToolOutput:
    """Write the picture, over one of the session at most. Raises ToolError."""
    import base64

    from lmagent.data.text import drawn
    from lmagent.data.worker import look
    from lmagent.tools.drawing import own_picture, store_picture

    output = output_of(arguments)
    old = own_picture(ctx, output)
    asked = {"x": arguments.x, "y": arguments.y, "kind": arguments.kind, "query": arguments.query}
    answer = await look(place, arguments.path, {"operation": "plot", "rows": ROWS, **asked})
    written, facts = await store_picture(ctx, output, base64.b64decode(answer.pop("png")), old)
    return ToolOutput(f"{drawn(answer)}\nDrawn into {written}.", facts)


def output_of(arguments: DataPlot) -> str:
    """Return the path of the picture: beside the file, unless the call names another."""
    if arguments.output:
        return lexical(arguments.output)
    folder, name = os.path.split(lexical(arguments.path))
    return os.path.join(folder, f"{name.rpartition('.')[0] or name}.png")


def _operation(arguments: DataView) -> str:
    operation = arguments.operation.strip().lower()
    if operation == "plot":
        raise ToolError(
            "data_view only looks. Call data_plot, with the same path; x, y, kind and query say what to draw."
        )
    if operation not in OPERATIONS:
        raise ToolError(
            f"data_view has no operation {one_line(operation)!r}. It has {', '.join(OPERATIONS)}.",
            data={"code": "invalid_arguments"},
        )
    _require_short(arguments.query)
    return operation


def _require_short(query: str) -> None:
    if len(query) > LONGEST_QUERY:
        raise ToolError(f"The query has {len(query):,} characters, and {LONGEST_QUERY:,} are taken. Make it shorter.")


def _summary(arguments: DataView) -> str:
    what = f" {one_line(arguments.query, 60)}" if arguments.query else ""
    return f"data_view {one_line(lexical(arguments.path))} {one_line(arguments.operation, 20)}{what}"
