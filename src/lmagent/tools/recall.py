"""read_artifact shows a long result; recall searches the session's own record, including the parts that are cut.

A passage that has the whole query comes first; the others are ranked by its words, and a rare word counts more.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated

import anyio.to_thread
from msgspec import Meta, Struct

from lmagent.core.errors import StoreError, ToolError
from lmagent.core.events import (
    CompactionDone,
    DurableEvent,
    InputReceived,
    MessageAdded,
    SubagentFinished,
    TasksChanged,
    ToolFinished,
    ToolStarted,
)
from lmagent.core.plurals import plural
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.tools.page import LINES, fitting, paged

HITS = 8
PASSAGE = 500
"""Approximate characters of a passage: whole lines if they are shorter."""

LARGEST = 4 << 20
"""Bytes of an artifact that are searched."""

PAGE = 4800
"""Bytes of the whole output."""

ReadEvents = Callable[[str], Iterable[DurableEvent]]
"""session -> its events, in order."""

GetBlob = Callable[[str, str], bytes]
"""(session, handle) -> content; raises StoreError."""

_WORD = r"\w+"
_HUMP = r"(?<=[a-z])(?=[A-Z])"
_ENDING = r"(?<=\w{3})(?:ings?|ed|es|s|e)$"


class Recall(Struct):
    """Arguments of recall."""

    query: Annotated[str, Meta(description="words to look for")]


class Passage(Struct, frozen=True):
    """A piece of the record: `seq` of its event, `who` is its source, `words` are the words of the query in it."""

    seq: int
    who: str
    text: str
    words: set[str]


def recall_tool(read_events: ReadEvents, get_blob: GetBlob | None = None) -> Tool:
    async def run(arguments: Recall, context: ToolContext) -> ToolOutput:
        wanted = set(_words(arguments.query))
        if not wanted:
            raise ToolError("recall needs at least one word to look for")

        def search() -> list[str]:
            pieces = _pieces(read_events(context.session), lambda handle: _blob(get_blob, context.session, handle))
            return _best(_passages(pieces, wanted), arguments.query.strip().lower())

        rows = await anyio.to_thread.run_sync(search)
        if not rows:
            return ToolOutput(f"Nothing on record matches {arguments.query!r}.")
        return paged(lambda room: ToolOutput("\n\n".join(fitting(rows, room - len(rows)))))

    return Tool(
        name="recall",
        description="Search this conversation's full record.",
        arguments=Recall,
        deferred=True,
        effect="read",
        run=run,
    )


def _blob(get_blob: GetBlob | None, session: str, handle: str) -> str:
    """Return the whole of a long output; empty if it is gone, or too long."""
    if get_blob is None:
        return ""
    try:
        return get_blob(session, handle)[:LARGEST].decode("utf-8", "replace")
    except StoreError:
        return ""


def _pieces(events: Iterable[DurableEvent], blob: Callable[[str], str]) -> Iterator[tuple[int, str, str, str]]:
    """Yield (seq, who, text, handle of its artifact) of all text that is searched."""
    mine = frozenset(("recall", "read_artifact"))
    summaries = dict[str, str]()
    for event in events:
        match event:
            case ToolStarted():
                summaries[event.call_id] = event.summary
            case InputReceived():
                yield event.seq, "user", event.message.text, ""
            case MessageAdded() if event.message.role == "assistant":
                yield event.seq, "assistant", event.message.text, ""
                for call in event.message.tool_calls:
                    if call.name not in mine and '"recall"' not in call.arguments:
                        yield event.seq, f"call of {call.name}", call.arguments.replace("\\n", "\n"), ""
            case MessageAdded() if event.input is None and event.origin in ("input", "steer"):
                yield event.seq, "user", event.message.text, ""
            case ToolFinished() if event.tool not in mine:
                handle = (event.artifact or "")[:12]
                whole = blob(handle) if handle else ""
                who = f"result of {summaries.get(event.call_id) or event.tool}"
                yield event.seq, who, whole or event.content, handle if whole else ""
            case TasksChanged():
                rows = [f"{task.id} [{task.status}] {task.title} {task.notes} {task.result}" for task in event.items]
                yield event.seq, "tasks", "\n".join(rows), ""
            case CompactionDone():
                yield event.seq, "summary", event.summary, ""
            case SubagentFinished():
                yield event.seq, "sub-agent", event.result.summary, ""
            case _:
                pass


def _passages(pieces: Iterable[tuple[int, str, str, str]], wanted: set[str]) -> Iterator[Passage]:
    for seq, who, text, handle in pieces:
        for line, passage in _cut(text):
            if words := wanted.intersection(_words(passage)):
                place = f"{who} (artifact {handle}, line {line})" if handle else who
                yield Passage(seq, place, passage.strip("\n").rstrip(), words)


def _best(passages: Iterable[Passage], query: str) -> list[str]:
    """Return the best passages, as rows: those with the whole query, then those with more of its words."""
    found = list({passage.text: passage for passage in passages}.values())  # read twice, found once
    frequent = Counter(word for passage in found for word in passage.words)

    def rank(passage: Passage) -> tuple[bool, float, int]:
        weights = (math.log(1 + len(found) / (1 + frequent[word])) + 0.1 for word in passage.words)
        return query not in passage.text.lower(), -sum(weights), -passage.seq

    rows = [f"[#{passage.seq} {passage.who}]\n{passage.text}" for passage in sorted(found, key=rank)[:HITS]]
    return fitting(rows, PAGE)


def _cut(text: str) -> Iterator[tuple[int, str]]:
    """Yield the text in passages, each with the number of its first line, from 1."""
    first, size, lines = 1, 0, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        for at in range(0, len(line) or 1, PASSAGE):  # a very long line is several
            if lines and size + len(line) > PASSAGE:
                yield first, "\n".join(lines)
                first, size, lines = number, 0, []
            lines.append(line[at : at + PASSAGE])
            size += len(line) + 1
    if lines:
        yield first, "\n".join(lines)


def _words(text: str) -> Iterator[str]:
    """Yield the words in lower case, without endings, names split: a query for `ports` finds `openPort` too."""
    ending = re.compile(_ENDING)
    for word in re.findall(_WORD, re.sub(_HUMP, " ", text).lower().replace("_", " ")):
        yield ending.sub("", word)


_ABOVE = 80
"""Bytes that the line above a page may take."""


class ReadArtifact(Struct):
    """Arguments of read_artifact."""

    id: Annotated[str, Meta(description="artifact id")]
    offset: Annotated[int, Meta(description="first line of the result, from 1")] = 1


def read_artifact_tool(get_blob: GetBlob) -> Tool:
    async def run(arguments: ReadArtifact, context: ToolContext) -> ToolOutput:
        handle = arguments.id.removeprefix("artifact:").strip()
        try:
            text = get_blob(context.session, handle).decode("utf-8", "replace")
        except StoreError:
            raise ToolError(f"There is no artifact {handle!r}. A cut result names its id.") from None
        return paged(lambda room: ToolOutput(page(text, arguments.offset, room)))

    return Tool(
        name="read_artifact",
        description="Read more of a long result by its artifact id.",
        arguments=ReadArtifact,
        effect="read",
        run=run,
        renames={"artifact": "id", "handle": "id", "line": "offset"},
    )


def page(text: str, offset: int, room: int) -> str:
    """Return whole lines from line `offset`, as many as fit `room` bytes, and the offset of the next page.

    Raises:
        ToolError: the offset is after the end.
    """
    lines = text.removesuffix("\n").split("\n")
    first = max(offset, 1) - 1
    if first >= len(lines):
        raise ToolError(f"offset {offset} is after the end: it has {plural(len(lines), 'line')}")
    room -= _ABOVE
    taken = fitting([_shortened(line, room) for line in lines[first : first + LINES]], room)
    last = first + len(taken)
    rest = f"; continue with offset={last + 1}" if last < len(lines) else ""
    return "\n".join([f"[lines {first + 1}-{last} of {len(lines)}{rest}]", *taken])


def _shortened(line: str, room: int) -> str:
    raw = line.encode("utf-8", "replace")
    if len(raw) < room:
        return line
    return f"{raw[: max(40, room - _ABOVE)].decode('utf-8', 'ignore')}… [line cut: {len(line)} characters]"
