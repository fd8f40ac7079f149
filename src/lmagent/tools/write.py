"""write: a whole file, created or replaced."""

from __future__ import annotations

from msgspec import Struct

from lmagent.core.errors import ToolError
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.tools.beneath import Beneath, Loaded
from lmagent.tools.change import difference_of, load_if_there, require_no_mask, store, tally
from lmagent.tools.paths import lexical
from lmagent.tools.read import PATH_NAMES
from lmagent.tools.sanitize import one_line
from lmagent.tools.seen import require_read, sha256
from lmagent.tools.textfile import SNIFF, decode, kind_of_binary

LIMIT = 64 << 20
"""Bytes of a file that may be replaced: it is read before, to show what changes."""


class Write(Struct, frozen=True):
    """Arguments of write."""

    path: str
    content: str


async def _run(arguments: Write, ctx: ToolContext) -> ToolOutput:
    new = arguments.content.encode("utf-8", "surrogatepass")
    with Beneath(ctx.workspace) as files:
        name = files.locate(arguments.path)
        old = load_if_there(files, arguments.path, LIMIT)
    label = one_line(name, 300)
    if old is not None and old.data == new:
        facts = {"path": name, "sha256": sha256(new)}
        return ToolOutput(f"{label} has exactly this content already: no change.", facts)
    if old is not None:
        _require_text(label, old.data)
        require_read(ctx, name, old.data)
    require_no_mask(name, _text(old), arguments.content)
    facts = await store(ctx, arguments.path, new, old)
    size = f"{len(new):,} bytes, {_line_count(arguments.content)} lines"
    if old is None:
        return ToolOutput(f"Created {label} ({size}).", facts)
    ends = ""
    if b"\r\n" in old.data and b"\r\n" not in new:
        ends = " Its line ends were CRLF and are LF now."
    return ToolOutput(f"Replaced {label} ({size}, {tally(facts['diff'])}).{ends}", facts)


def _text(old: Loaded | None) -> str:
    decoded = None if old is None else decode(old.data)
    return "" if decoded is None else decoded[0]


def _require_text(label: str, data: bytes) -> None:
    if kind_of_binary(data[:SNIFF]) is not None:
        raise ToolError(
            f"{label} is a binary file; it is not replaced by text. Write to another path.", data={"code": "binary"}
        )


def _preview(arguments: Write, ctx: ToolContext) -> str:
    new = arguments.content.encode("utf-8", "surrogatepass")
    try:
        with Beneath(ctx.workspace) as files:
            old = load_if_there(files, arguments.path, LIMIT)
            name = files.locate(arguments.path)
        if old is not None:
            _require_text(one_line(name, 300), old.data)
        require_no_mask(name, _text(old), arguments.content)
    except ToolError as refusal:
        return f"This call will be refused: {refusal.message}"
    return difference_of(name, b"" if old is None else old.data, new) or "No change."


def _line_count(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n") and bool(text))


TOOL = Tool(
    name="write",
    description="Create a file, or replace one you have read. Parents are made.",
    arguments=Write,
    effect="write",
    run=_run,
    aliases=("write_file", "create_file", "save_file", "write_to_file", "create"),
    renames={**PATH_NAMES, "text": "content", "contents": "content", "data": "content", "file_text": "content"},
    summary=lambda arguments: f"write {one_line(lexical(arguments.path))} ({_line_count(arguments.content)} lines)",
    preview=_preview,
    targets=lambda arguments: (lexical(arguments.path),),
)
