"""read: a text file, numbered, a page at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Meta, Struct

from lmagent.core.errors import ToolError
from lmagent.core.plurals import plural
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.tools.beneath import Beneath
from lmagent.tools.change import sha256
from lmagent.tools.page import paged
from lmagent.tools.paths import lexical
from lmagent.tools.sanitize import one_line, printable
from lmagent.tools.textfile import SNIFF, decode, describe_binary, is_binary
from lmagent.tools.walk import suggesting

LIMIT = 16 << 20
"""Bytes of a file that is read; a bigger file is data."""

WINDOW = 2000
"""Lines of a page at most; a page of bytes never holds more."""

LONGEST = 2000
"""Bytes of one line that are shown."""

_NOTED = 80
"""Bytes that notes about the lines of a page may take in its header."""

_NUMBER = 12
"""Bytes that the number of a line and its end may take."""

_CUT = 100
"""Bytes that the note about a truncated line may take."""

_LOOKED_AT = 8192  # characters of a line that are looked at; nothing longer is ever shown
_THREAD_FROM = 1 << 20  # bytes of a file whose reading would block the event loop
_OPEN_END = "no line end at the end"

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


class LineWindow(Struct, frozen=True):
    """Some lines of a file of `total` lines, and the notes for the model on its encoding and its line ends."""

    first: int
    lines: list[str]
    total: int
    notes: list[str]
    open_end: bool


class Read(Struct, frozen=True):
    """Arguments of read."""

    path: str
    offset: Annotated[int, Meta(description="first line, from 1; negative: from the end")] = 1
    limit: Annotated[int, Meta(description="lines, 0: a page")] = 0


async def _run(arguments: Read, ctx: ToolContext) -> ToolOutput:
    with Beneath(ctx.workspace) as files, suggesting(files, arguments.path, ctx.hidden):
        size = files.stat(arguments.path).st_size
    if size < _THREAD_FROM:
        return _page(arguments, ctx, size)
    from anyio import to_thread

    return await to_thread.run_sync(_page, arguments, ctx, size)


def _page(arguments: Read, ctx: ToolContext, size: int) -> ToolOutput:
    with Beneath(ctx.workspace) as files:
        data, name = files.read_bytes(arguments.path, LIMIT + 1), files.locate(arguments.path)
    label = one_line(name, 300)
    if len(data) > LIMIT and not is_binary(data[:SNIFF]):
        raise ToolError(
            f"{label} has {size:,} bytes, and read takes {LIMIT >> 20} MB. Use shell, with tail or sed -n 1,200p.",
            data={"code": "size"},
        )
    decoded = decode(data)
    if decoded is None or len(data) > LIMIT:
        return ToolOutput(f"{label}: {describe_binary(data, size)}. It is not shown.", {"path": name, "binary": True})
    text, encoding = decoded
    return page_of(arguments, name, data, text, encoding.note)


def page_of(arguments: Read, name: str, data: bytes, text: str, note: str) -> ToolOutput:
    """Return the page of a text, whose bytes are `data`; `note` is about all of it. Raises ToolError."""
    label = one_line(name, 300)
    found = _window(text, note, arguments.offset, min(arguments.limit, WINDOW) if arguments.limit > 0 else WINDOW)
    facts = {"path": name, "sha256": sha256(data), "lines": found.total}
    if found.total == 0:
        return ToolOutput(f"{label} is empty (0 lines{f'; {note}' if note else ''}).", {**facts, "truncated": False})

    def render(room: int) -> ToolOutput:
        name = one_line(label, max(60, room // 8))
        ends = [_OPEN_END] if found.open_end else []
        longest = len(_header(name, found, found.total - 1, ends).encode())
        body, shown, notes = number(found.first, found.lines, room - longest - _NOTED)
        last = found.first + shown - 1
        header = _header(name, found, last, [*ends, *notes] if last == found.total else notes)
        return ToolOutput(f"{header}\n{body}", {**facts, "truncated": last < found.total or found.first > 1})

    return paged(render)


def _window(text: str, note: str, offset: int, count: int) -> LineWindow:
    """Return `count` lines of a text from `offset` on. Raises ToolError.

    Lines end at a line feed and nowhere else, as editors, compilers and the edit tool count them.
    """
    lines = text.split("\n")
    open_end = lines[-1] != ""
    if not open_end:
        lines.pop()
    first = max(1, len(lines) + offset + 1 if offset < 0 else offset)
    if 0 < len(lines) < first:
        raise ToolError(
            f"offset {offset} is after the end: the file has {plural(len(lines), 'line')}. "
            f"Use an offset from 1 to {len(lines)}.",
            data={"code": "offset"},
        )
    notes = [note] if note else []
    if lines and lines[0].endswith("\r"):
        notes.append("CRLF line ends")
    return LineWindow(first, lines[first - 1 : first - 1 + count], len(lines), notes, open_end)


def _header(name: str, found: LineWindow, last: int, notes: list[str]) -> str:
    more = [f"continue with offset={last + 1}"] if last < found.total else []
    return f"[{'; '.join([f'{name}: lines {found.first}-{last} of {found.total}', *more, *found.notes, *notes])}]"


def number(first: int, lines: list[str], room: int) -> tuple[str, int, list[str]]:
    """Return as many whole lines, numbered, as fit `room` bytes; their number; and the notes about them."""
    rows, size, odd, cut = list[str](), 0, False, 0
    for at, line in enumerate(lines):
        text = line.removesuffix("\r")[:_LOOKED_AT]
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


def _shortened(shown: str, line: str, room: int, number: int) -> str:
    most = min(LONGEST, room)
    if len(line) <= _LOOKED_AT and (len(shown) * 4 <= most or len(shown.encode("utf-8")) <= most):
        return shown
    start = shown.encode("utf-8")[: max(40, min(LONGEST, room - _CUT))].decode("utf-8", "ignore")
    more = f"; offset={number}, limit=1 alone may show more" if room < LONGEST else ""
    return f"{start}… [cut: the line has {len(line):,} characters{more}]"


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
