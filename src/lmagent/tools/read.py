"""read: a text file, numbered, a page at a time."""

from __future__ import annotations

import os
from typing import Annotated

from msgspec import Meta, Struct

from lmagent.core.errors import ToolError
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.tools import suggest
from lmagent.tools.beneath import Beneath
from lmagent.tools.lines import AT_ONCE, WINDOW, Line, Window, window
from lmagent.tools.paths import lexical
from lmagent.tools.sanitize import one_line, printable
from lmagent.tools.textfile import SNIFF, describe_binary, kind_of_binary

PAGE = 7500
"""Bytes of numbered lines in a page: with its header it stays under the cap on results (2,000 tokens of 4 bytes)."""

LONGEST = 2000
"""Bytes of one line that are shown."""

_THREAD_FROM = 1 << 20  # bytes of a file whose hashing would hold up the event loop
PATH_NAMES = dict.fromkeys(
    ("file_path", "filepath", "filename", "file_name", "file", "target_file", "absolute_path"), "path"
)
"""What other agents' file tools call `path`."""


class Read(Struct, frozen=True):
    """Arguments of read."""

    path: str
    offset: Annotated[int, Meta(description="first line, from 1; negative: from the end")] = 1
    limit: Annotated[int, Meta(description="lines, 0: a page")] = 0


async def _run(arguments: Read, ctx: ToolContext) -> ToolOutput:
    with Beneath(ctx.workspace) as files:
        try:
            descriptor = files.open_read(arguments.path)
        except ToolError as error:
            if error.data.get("code") == "missing":
                raise suggest.missing(files, arguments.path, ctx.hidden) from None
            raise
        name = files.locate(arguments.path)
    try:
        size = os.fstat(descriptor).st_size
        if size < _THREAD_FROM:
            return _page(descriptor, name, size, arguments)
        from anyio import to_thread

        return await to_thread.run_sync(_page, descriptor, name, size, arguments)
    finally:
        os.close(descriptor)


def _page(descriptor: int, name: str, size: int, arguments: Read) -> ToolOutput:
    head = os.pread(descriptor, SNIFF, 0)
    wanted = min(arguments.limit, WINDOW) if arguments.limit > 0 else WINDOW
    found = None if kind_of_binary(head) else window(descriptor, size, head, arguments.offset, wanted)
    label = one_line(name, 300)
    if found is None:
        return ToolOutput(f"{label}: {describe_binary(head, size)}. It is not shown.", {"path": name, "binary": True})
    facts = {"path": name, "sha256": found.sha256, "lines": found.total}
    if found.total == 0:
        return ToolOutput(f"{label} is empty (0 lines).", {**facts, "truncated": False})
    body, shown, notes = number(found.first, found.lines)
    last = found.first + shown - 1
    notes = _notes(found, size, whole=last == found.total) + notes
    more = f"; continue with offset={last + 1}" if last < found.total else ""
    header = f"[{label}: lines {found.first}-{last} of {found.total}{more}{''.join(f'; {note}' for note in notes)}]"
    truncated = last < found.total or found.first > 1
    return ToolOutput(f"{header}\n{body}", {**facts, "truncated": truncated})


def number(first: int, lines: list[Line]) -> tuple[str, int, list[str]]:
    """As many whole lines, numbered, as fit a page: the text, how many they are, and what to note about them."""
    rows, size, odd, cut = list[str](), 0, False, 0
    for at, line in enumerate(lines):
        text = line.text.removesuffix("\r")
        shown = printable(text.replace("\r", "\\r"))
        odd_here = shown != text
        short = _shortened(shown, line)
        row = f"{first + at:6d}\t{short}"
        size += len(row.encode("utf-8")) + 1
        if rows and size > PAGE:
            break
        rows.append(row)
        odd |= odd_here
        cut += short is not shown
    notes = [f"{cut} long lines cut" if cut > 1 else "1 long line cut"] if cut else []
    if odd:
        notes.append("control characters left out or escaped")
    return "\n".join(rows), len(rows), notes


def _shortened(shown: str, line: Line) -> str:
    if line.length == len(line.text) and (len(shown) * 4 <= LONGEST or len(shown.encode("utf-8")) <= LONGEST):
        return shown
    start = shown.encode("utf-8")[:LONGEST].decode("utf-8", "ignore")
    return f"{start}… [cut: the line has {line.length:,} characters]"


def _notes(found: Window, size: int, *, whole: bool) -> list[str]:
    notes = [found.encoding.note] if found.encoding.note else []
    if found.crlf:
        notes.append("CRLF line ends")
    if whole and not found.ended:
        notes.append("no line end at the end")
    if size > AT_ONCE:
        notes.append(f"{size:,} bytes")
    return notes


def _summary(arguments: Read) -> str:
    path = one_line(lexical(arguments.path))
    if arguments.offset == 1 and arguments.limit <= 0:
        return f"read {path}"
    if arguments.limit <= 0 or arguments.offset < 0:
        return f"read {path} from {arguments.offset}"
    first = max(1, arguments.offset)
    return f"read {path} {first}-{first + arguments.limit - 1}"


TOOL = Tool(
    name="read",
    description="Read a text file, a page of numbered lines at a time. Paths are relative to the workspace.",
    arguments=Read,
    effect="read",
    run=_run,
    replay_safe=True,
    aliases=("read_file", "view", "view_file", "open_file", "cat", "get_file_contents"),
    renames={
        **PATH_NAMES,
        "start_line": "offset",
        "line": "offset",
        "start": "offset",
        "max_lines": "limit",
        "num_lines": "limit",
        "n_lines": "limit",
    },
    summary=_summary,
    targets=lambda arguments: (lexical(arguments.path),),
)
