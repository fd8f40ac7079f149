"""The tool `count_words`: its arguments are a Struct, its result is text for the model."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from lmagent.core.errors import ToolError
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.tools.beneath import Beneath


class CountWords(Struct, frozen=True):
    path: Annotated[str, Meta(description="a text file")]


async def _run(arguments: CountWords, context: ToolContext) -> ToolOutput:
    # The path is the model's: `Beneath` keeps it in the workspace, and follows no link out of it.
    with Beneath(context.workspace) as files:
        data = files.read_bytes(arguments.path, 1_000_000)
    if b"\0" in data:
        raise ToolError(f"{arguments.path} is no text. Name a text file.")  # words for the model
    return ToolOutput(f"{arguments.path} has {len(data.split())} words.")


count_words = Tool(
    name="count_words",
    description="Count the words of a file.",
    arguments=CountWords,
    effect="read",
    run=_run,
    deferred=True,  # listed in one line, and called through use_tool: its schema costs no prompt
    targets=lambda arguments: (arguments.path,),  # permission rules see the path
)
