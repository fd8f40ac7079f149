"""read_artifact: the whole of an output that was capped, page by page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from msgspec import Meta, Struct

from lmagent.core.errors import StoreError, ToolError
from lmagent.core.tool import Tool, ToolContext, ToolOutput

PAGE_BYTES = 7000
"""A page stays under the cap on results (2,000 tokens of 4 bytes), so that it is never cut again."""

GetBlob = Callable[[str, str], bytes]
"""(session, handle) -> content; raises StoreError."""


class ReadArtifact(Struct):
    """Arguments of read_artifact."""

    id: Annotated[str, Meta(description="artifact id")]
    offset: Annotated[int, Meta(description="first line, from 1")] = 1


def read_artifact_tool(get_blob: GetBlob) -> Tool:
    """The tool, reading from `get_blob`."""

    async def run(arguments: ReadArtifact, context: ToolContext) -> ToolOutput:
        handle = arguments.id.removeprefix("artifact:").strip()
        try:
            text = get_blob(context.session, handle).decode("utf-8", "replace")
        except StoreError as missing:
            raise ToolError(missing.message) from None
        return ToolOutput(page(text, arguments.offset))

    return Tool(
        name="read_artifact",
        description="Read more of a long result by its artifact id.",
        arguments=ReadArtifact,
        effect="read",
        run=run,
        renames={"artifact": "id", "handle": "id", "line": "offset"},
    )


def page(text: str, offset: int) -> str:
    """Whole lines from line `offset` on, as many as fit a page, and where to go on.

    Raises:
        ToolError: the offset lies behind the end.
    """
    lines = text.splitlines(keepends=True) or [""]
    first = max(offset, 1) - 1
    if first >= len(lines):
        raise ToolError(f"offset {offset} is behind the end: there are {len(lines)} lines")
    size = 0
    taken: list[str] = []
    for line in lines[first:]:
        size += len(line.encode("utf-8", "replace"))
        if taken and size > PAGE_BYTES:
            break
        taken.append(line if len(line) <= PAGE_BYTES else f"{line[:PAGE_BYTES]}… [line cut: {len(line)} characters]\n")
    last = first + len(taken)
    rest = f"; continue with offset={last + 1}" if last < len(lines) else ""
    return f"[lines {first + 1}-{last} of {len(lines)}{rest}]\n{''.join(taken)}"
