"""read: a text file, numbered, a page at a time."""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Annotated, Any

from msgspec import Meta, Struct

from lmagent.core.errors import ToolError
from lmagent.core.plurals import plural
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.tools.beneath import Beneath
from lmagent.tools.page import paged
from lmagent.tools.paths import lexical
from lmagent.tools.sanitize import one_line, printable
from lmagent.tools.textfile import SNIFF, Encoding, describe_binary, is_binary, sniff
from lmagent.tools.walk import missing

AT_ONCE = 4 << 20
"""Bytes of a file up to which all of it decides its encoding."""

WINDOW = 2000
"""Lines that are kept for a page; a page of bytes never holds more."""

KEPT = 8192
"""Characters of a line that are kept; nothing longer is ever shown."""

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


class TextLine(Struct, frozen=True):
    """A line without its end; `length` counts its characters, of which `text` may have only the first ones."""

    text: str
    length: int


class LineWindow(Struct, frozen=True):
    """Some lines of a file; `crlf` is about the end of the first line, `ended` about that of the last one."""

    first: int
    lines: list[TextLine]
    total: int
    sha256: str
    encoding: Encoding
    crlf: bool
    ended: bool


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
                raise missing(files, arguments.path, ctx.hidden) from None
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
    label = one_line(name, 300)
    if is_binary(head):
        return ToolOutput(f"{label}: {describe_binary(head, size)}. It is not shown.", {"path": name, "binary": True})
    found = _window(descriptor, size, arguments.offset, wanted)
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


def _window(descriptor: int, size: int, offset: int, count: int) -> LineWindow:
    """Return `count` lines of an open file from `offset` on, with the hash and the number of lines of the whole file.

    Lines end at a line feed and nowhere else, as editors, compilers and the edit tool count them. Raises ToolError.
    """
    import hashlib  # it loads OpenSSL: not before the first request

    start = os.pread(descriptor, size if size <= AT_ONCE else SNIFF, 0)
    encoding = sniff(start, whole=len(start) == size)
    file = open(descriptor, "rb", closefd=False)  # noqa: SIM115  the caller closes it
    # The hash comes first: if the file changes now, it is that of a file that was not shown, and a write is refused.
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    file.seek(0)
    lines = _Lines(file, encoding)
    flowing = iter(lines)
    if offset < 0:
        kept = list(deque(flowing, maxlen=min(-offset, WINDOW)))
        first = lines.total - len(kept) + 1
        kept = kept[:count]
    else:
        first = max(1, offset)
        kept = list(islice(flowing, first - 1, first - 1 + count))
        deque(flowing, maxlen=0)
    if 0 < lines.total < first:
        raise ToolError(
            f"offset {offset} is after the end: the file has {plural(lines.total, 'line')}. "
            f"Use an offset from 1 to {lines.total}.",
            data={"code": "offset"},
        )
    return LineWindow(first, kept, lines.total, digest, encoding, lines.crlf, lines.ended)


class _Lines:
    """The lines of a file, counted; only the beginning of a very long line is ever in memory."""

    def __init__(self, file: io.BufferedReader, encoding: Encoding) -> None:
        self.total = 0
        self.crlf = False
        self.ended = True
        self._reader = io.TextIOWrapper(file, encoding.codec, "replace", newline="\n")
        self._mark = "\ufeff" if encoding.mark else ""

    def __iter__(self) -> Iterator[TextLine]:
        while piece := self._reader.readline(KEPT):
            start, length = piece, len(piece)
            while not piece.endswith("\n") and (piece := self._reader.readline(KEPT)):
                length += len(piece)
            self.total += 1
            self.ended = piece.endswith("\n")
            if self.total == 1:
                self.crlf = start.endswith("\r\n")
                length -= len(start) - len(start := start.removeprefix(self._mark))
                if not length:
                    self.total = 0
                    return
            yield TextLine(start.removesuffix("\n"), length - self.ended)


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
