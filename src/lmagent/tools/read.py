"""read: a text file, numbered, a page at a time."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Meta, Struct

from lmagent.core.errors import ToolError
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.tools import suggest
from lmagent.tools.beneath import Beneath
from lmagent.tools.lines import AT_ONCE, WINDOW, LineWindow, TextLine, window
from lmagent.tools.page import paged
from lmagent.tools.paths import lexical
from lmagent.tools.sanitize import one_line, printable
from lmagent.tools.textfile import SNIFF, describe_binary, kind_of_binary

LONGEST = 2000
"""Bytes of one line that are shown."""

_NOTED = 80
"""Bytes that notes about the lines of a page may take in its header."""

_NUMBER = 12
"""Bytes that the number of a line and its end may take."""

_CUT = 100
"""Bytes that the note about a truncated line may take."""

_THREAD_FROM = 1 << 20  # bytes of a file whose hashing would block the event loop
PATH_NAMES = dict.fromkeys(
    ("file_path", "filepath", "filename", "file_name", "file", "target_file", "absolute_path"), "path"
)
"""Names of `path` in other agents' file tools."""

REMARKS: dict[str, str] = dict.fromkeys(("description", "explanation", "reason", "reasoning", "thought", "purpose"), "")
"""Arguments of other agents' tools that only give the reason for a call."""

TEXT: dict[str, tuple[Any, ...]] = {"encoding": ("utf-8", "utf8"), "binary": (False,)}
"""Values of other agents' arguments that are true for every text file."""


def adapting(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return the function of `lmagent.tools.foreign` that adapts other agents' arguments for a tool."""

    def adapt(arguments: dict[str, Any]) -> dict[str, Any]:
        from lmagent.tools import foreign  # few models need it

        adapted: dict[str, Any] = getattr(foreign, name)(arguments)
        return adapted

    return adapt


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

    def render(room: int) -> ToolOutput:
        name = one_line(label, max(60, room // 8))
        longest = len(_header(name, found, found.total - 1, _notes(found, size, whole=True)).encode())
        body, shown, notes = number(found.first, found.lines, room - longest - _NOTED)
        last = found.first + shown - 1
        header = _header(name, found, last, _notes(found, size, whole=last == found.total) + notes)
        return ToolOutput(f"{header}\n{body}", {**facts, "truncated": last < found.total or found.first > 1})

    return paged(render)


def _header(name: str, found: LineWindow, last: int, notes: list[str]) -> str:
    more = [f"continue with offset={last + 1}"] if last < found.total else []
    return f"[{'; '.join([f'{name}: lines {found.first}-{last} of {found.total}', *more, *notes])}]"


def number(first: int, lines: list[TextLine], room: int) -> tuple[str, int, list[str]]:
    """Return as many whole lines, numbered, as fit `room` bytes; their number; and the notes about them."""
    rows, size, odd, cut = list[str](), 0, False, 0
    for at, line in enumerate(lines):
        text = line.text.removesuffix("\r")
        shown = printable(text.replace("\r", "\\r"))
        odd_here = shown != text
        short = _shortened(shown, line, room - _NUMBER, first + at)
        row = f"{first + at:6d}\t{short}"
        size += len(row.encode("utf-8")) + 1
        if rows and (size > room or (short is not shown and room < LONGEST)):
            break
        rows.append(row)
        odd |= odd_here
        cut += short is not shown
    notes = [f"{cut} long lines cut" if cut > 1 else "1 long line cut"] if cut else []
    if odd:
        notes.append("control characters left out or escaped")
    return "\n".join(rows), len(rows), notes


def _shortened(shown: str, line: TextLine, room: int, number: int) -> str:
    most = min(LONGEST, room)
    if line.length == len(line.text) and (len(shown) * 4 <= most or len(shown.encode("utf-8")) <= most):
        return shown
    start = shown.encode("utf-8")[: max(40, min(LONGEST, room - _CUT))].decode("utf-8", "ignore")
    more = f"; offset={number}, limit=1 alone may show more" if room < LONGEST else ""
    return f"{start}… [cut: the line has {line.length:,} characters{more}]"


def _notes(found: LineWindow, size: int, *, whole: bool) -> list[str]:
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
    description="Read a text file, a page of numbered lines at a time.",
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
        "line_start": "offset",
        "first_line": "offset",
        **REMARKS,
    },
    implied=TEXT,
    adapt=adapting("read"),
    summary=_summary,
    targets=lambda arguments: (lexical(arguments.path),),
)
