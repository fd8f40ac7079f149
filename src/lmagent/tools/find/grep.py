"""grep: finds lines of files by a literal text or a regular expression."""

from __future__ import annotations

import stat as modes
import time
from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import Meta, Struct

from lmagent.core.errors import ToolError
from lmagent.core.plurals import plural
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.tools.beneath import Beneath
from lmagent.tools.find.matching import Expression, Hits, Late, LineHit, Literal, Matcher
from lmagent.tools.find.pattern import Pattern, name_or_path
from lmagent.tools.page import BYTES, LINES, fitting, paged, size
from lmagent.tools.paths import lexical, parse
from lmagent.tools.read import REMARKS, adapting
from lmagent.tools.sanitize import one_line, printable
from lmagent.tools.textfile import decode
from lmagent.tools.walk import Walk, suggesting, withheld

BUDGET = 5.0
"""Seconds of one search."""

LARGEST = 32 << 20
"""Bytes of a file that is searched."""

_HEAD = 180
"""Bytes that the line above the hits may take."""

# the beginnings of text files that are not encoded in ASCII-compatible bytes
_MARKS = b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff"
_META = "\\|.*+?[](){}^$"


class Grep(Struct, frozen=True):
    """Arguments of grep."""

    pattern: str
    paths: Annotated[list[str], Meta(description="default: all")] = []
    regex: Annotated[bool, Meta(description="pattern is a Python regex")] = False
    glob: Annotated[str, Meta(description="only these files, such as *.py")] = ""
    context: Annotated[int, Meta(description="lines around a hit")] = 0


async def _run(arguments: Grep, ctx: ToolContext) -> ToolOutput:
    if not arguments.pattern:
        raise ToolError("grep needs a pattern.", data={"code": "pattern"})
    if "\n" in arguments.pattern:
        raise ToolError("grep looks at single lines: the pattern must not have a line break.", data={"code": "pattern"})
    from anyio import to_thread

    return await to_thread.run_sync(_search, arguments, ctx, abandon_on_cancel=True)


def _search(arguments: Grep, ctx: ToolContext) -> ToolOutput:
    matcher: Matcher = Expression(arguments.pattern, BUDGET) if arguments.regex else Literal(arguments.pattern)
    search = _Search(arguments, matcher, ctx)
    try:
        with Beneath(ctx.workspace) as files:
            search.run(files)
    finally:
        matcher.close()
    return search.output()


class _Search:
    def __init__(self, arguments: Grep, matcher: Matcher, ctx: ToolContext) -> None:
        self._arguments, self._matcher, self._hidden = arguments, matcher, ctx.hidden
        self._filter = _filter(arguments.glob, ctx) if arguments.glob else None
        self._deadline = time.monotonic() + BUDGET
        self._report = _Report(max(0, min(arguments.context, 20)))
        self._searched = self._skipped = self._withheld = 0
        self._left = list[str]()
        self._late = ""

    def run(self, files: Beneath) -> None:
        path, given = "the start", set[str]()
        try:
            for path in self._files(files):
                if path not in given:
                    given.add(path)
                    self._one(files, path)
        except Late:
            self._late = path

    def _files(self, files: Beneath) -> Iterator[str]:
        for start in self._arguments.paths or ["."]:
            with suggesting(files, start, self._hidden):
                is_folder = modes.S_ISDIR(files.stat(start).st_mode)
            if not is_folder:
                yield files.locate(start)
                continue
            walk = Walk(files, start, hidden=self._hidden)
            for entry in walk:
                if time.monotonic() > self._deadline:
                    raise Late
                if entry.kind == "file" and (self._filter is None or self._filter.matches(entry.path)):
                    yield entry.path
            self._left += walk.notes
            self._withheld += walk.withheld

    def _one(self, files: Beneath, path: str) -> None:
        try:
            data = files.read_bytes(path, LARGEST + 1)
        except ToolError:
            if path in self._arguments.paths:
                raise
            return  # gone, or unreadable: the search continues without it
        self._searched += 1
        plain = not self._arguments.regex and self._arguments.pattern.isascii() and not data.startswith(_MARKS)
        if plain and len(data) <= LARGEST and self._arguments.pattern.encode() not in data:
            return
        decoded = decode(data) if len(data) <= LARGEST else None
        if decoded is None:
            self._skipped += 1
            return
        hits = self._matcher.find(decoded[0])
        if hits.total:
            self._report.add(path, decoded[0], hits)

    def output(self) -> ToolOutput:
        report, wanted = self._report, self._arguments
        notes = self._notes()
        if not report.total:
            facts = {"count": 0, "files": 0, "truncated": bool(self._late)}
            head = f"No match for {one_line(wanted.pattern)} in {plural(self._searched, 'file')}."
            if not wanted.regex and any(char in _META for char in wanted.pattern):
                notes.insert(0, "The pattern was taken literally; set regex=true for a regular expression.")
            return ToolOutput(" ".join([head, *notes]), facts)
        return paged(lambda room: self._page(room, notes[: 1 if self._late else 0]))

    def _page(self, room: int, notes: list[str]) -> ToolOutput:
        report = self._report
        text, shown = report.page(room - _HEAD - sum(len(note) + 1 for note in notes))
        head = f"[{plural(report.total, 'line')} in {report.files} of {plural(self._searched, 'file')}"
        if shown < report.total:
            head += f"; the first {shown} are shown: narrow pattern, paths or glob for the rest"
        if self._withheld:
            head += f"; {withheld(self._withheld).rstrip('.')}"
        facts = {"count": report.total, "files": report.files, "truncated": shown < report.total or bool(self._late)}
        return ToolOutput("\n".join([f"{head}]", text, *notes]), facts)

    def _notes(self) -> list[str]:
        notes = list[str]()
        if self._late:
            notes.append(
                f"(Stopped after {BUDGET:.0f} s at {one_line(self._late)}: later files were not searched. "
                "Narrow paths or glob, or use a simpler pattern.)"
            )
        if self._skipped:
            notes.append(f"Skipped, since binary or larger than {LARGEST >> 20} MB: {self._skipped}.")
        return notes + self._left


WIDTH = 240
"""Characters of a line that are shown, around the hit."""


class _Report:
    """Collects hits, with `context` lines around each, until a page is certainly full, then only counts."""

    def __init__(self, context: int) -> None:
        self.total = self.files = 0
        self._context = context
        self._rows = list[tuple[str, bool]]()  # a row, and whether it is a hit
        self._size = 0

    def add(self, path: str, text: str, hits: Hits) -> None:
        self.total += hits.total
        self.files += 1
        if self._size > BYTES or len(self._rows) > LINES:
            return
        lines = text.split("\n")
        if lines and not lines[-1]:
            lines.pop()
        by_line = {hit.line: hit for hit in hits.hits}
        before = [*([""] if self._rows else []), one_line(path, 1000)]
        done = 0  # the last line of the file that is in the report
        for hit in hits.hits:
            first, last = max(done + 1, hit.line - self._context), min(len(lines), hit.line + self._context)
            if self._context and done and first > done + 1:
                before = ["--"]
            rows = [(_row(at, lines[at - 1], by_line.get(at)), at in by_line) for at in range(first, last + 1)]
            self._rows += [*((row, False) for row in before), *rows]
            self._size += size([*before, *(row for row, _ in rows)])
            before, done = [], max(done, last)

    def page(self, room: int) -> tuple[str, int]:
        """Return the first rows that fit, and the number of hits in them."""
        rows = self._rows
        taken = fitting([row for row, _ in rows], room)
        if not any(is_hit for _, is_hit in rows[: len(taken)]):  # the lines around the first hit fill the page
            rows = [rows[0], next(row for row in rows if row[1])]
            taken = fitting([row for row, _ in rows], room)
        return "\n".join(taken), sum(is_hit for _, is_hit in rows[: len(taken)])


def _row(number: int, line: str, hit: LineHit | None) -> str:
    return f"{number}{'-' if hit is None else ':'}{_trimmed(line.removesuffix(chr(13)), hit)}"


def _trimmed(line: str, hit: LineHit | None) -> str:
    room = max(0, len(line) - WIDTH)
    start = 0 if hit is None or hit.end <= WIDTH else max(0, min(hit.start - WIDTH // 3, room))
    piece = printable(line[start : start + WIDTH]).replace("\n", " ")
    return f"{'…' if start else ''}{piece}{'…' if start < room else ''}"


def _filter(text: str, ctx: ToolContext) -> Pattern:
    return name_or_path("/".join(parse(text, ctx.workspace)) if text.startswith("/") else lexical(text))


_ANYWAY: dict[str, tuple[Any, ...]] = {
    "output_mode": ("content",),
    "recursive": (True,),
    "case_sensitive": (True,),
    "multiline": (False,),
    **dict.fromkeys(("_n", "n", "line_number", "line_numbers"), (True,)),
    **dict.fromkeys(("_i", "i", "ignore_case", "case_insensitive"), (False,)),
}
"""Options of other agents' tools that are the default here."""

TOOL = Tool(
    name="grep",
    description="Search files for a literal text, or a regex. Skips what .gitignore names.",
    arguments=Grep,
    effect="read",
    run=_run,
    replay_safe=True,
    aliases=("search_files", "grep_search", "search", "search_text", "search_file_content", "ripgrep", "rg"),
    renames={
        **dict.fromkeys(("query", "search", "text", "q"), "pattern"),
        **dict.fromkeys(("path", "directory", "dir", "files", "file_path"), "paths"),
        **dict.fromkeys(("include", "file_pattern", "include_pattern"), "glob"),
        **dict.fromkeys(("context_lines", "-C"), "context"),
        **dict.fromkeys(("is_regex", "use_regex", "regexp"), "regex"),
        **REMARKS,
    },
    implied=_ANYWAY,
    adapt=adapting("grep"),
    summary=lambda arguments: (
        f"grep {one_line(arguments.pattern, 60)}"
        + (f" in {one_line(', '.join(arguments.paths))}" if arguments.paths else "")
    ),
    targets=lambda arguments: tuple(map(lexical, arguments.paths)) or (".",),
)
