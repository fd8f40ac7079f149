"""read_artifact: the whole of a truncated output, page by page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from msgspec import Meta, Struct

from lmagent.core.errors import StoreError, ToolError
from lmagent.core.plurals import plural
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.tools.page import LINES, paged

_HEAD = 80
"""Bytes that the line above a page may take."""

GetBlob = Callable[[str, str], bytes]
"""(session, handle) -> content; raises StoreError."""


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
    lines = [f"{line}\n" for line in text.split("\n")]
    last_line = lines.pop().removesuffix("\n")
    if last_line or not lines:
        lines.append(last_line)
    first = max(offset, 1) - 1
    if first >= len(lines):
        raise ToolError(f"offset {offset} is after the end: it has {plural(len(lines), 'line')}")
    room, size = room - _HEAD, 0
    taken: list[str] = []
    for line in lines[first : first + LINES]:
        raw = line.encode("utf-8", "replace")
        size += len(raw)
        if taken and size > room:
            break
        start = raw[: max(40, room - _HEAD)].decode("utf-8", "ignore")
        taken.append(line if len(raw) <= room else f"{start}… [line cut: {len(line)} characters]\n")
    last = first + len(taken)
    rest = f"; continue with offset={last + 1}" if last < len(lines) else ""
    return f"[lines {first + 1}-{last} of {len(lines)}{rest}]\n{''.join(taken)}"
