"""vision: asks the model about an image in the workspace. Only available if the model can see.

The question goes to the model beside the conversation, so the image is read once and never again.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Annotated, Any, cast

from msgspec import Meta, Struct, to_builtins

from lmagent.core.errors import ProviderError, ToolError, Unreachable
from lmagent.core.messages import Image, Message, Text
from lmagent.core.model import ModelEvent, ModelReply, ModelRequest, Usage
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.tools.beneath import Beneath
from lmagent.tools.paths import lexical
from lmagent.tools.pictures import picture_of
from lmagent.tools.sanitize import one_line

LARGEST = 20 << 20
"""Bytes of an image; servers take about as much in one request."""

IMAGE_TOKENS = 1000
"""Approximate tokens of an image in a prompt, without figures from the server."""

Stream = Callable[[ModelRequest], AsyncIterator[ModelEvent]]


class Vision(Struct, frozen=True):
    """Arguments of vision."""

    path: str
    prompt: Annotated[str, Meta(description="what to look for")] = "Describe this image."


def vision_tool(stream: Stream, model: Callable[[str], str]) -> Tool:
    """Return the tool; `stream` asks the model server beside the conversation, `model` returns a session's model."""

    async def run(arguments: Vision, context: ToolContext) -> ToolOutput:
        image = load_image(context, arguments.path)
        question = Message("user", (Text(arguments.prompt), image))
        request = ModelRequest(model(context.session), "", (), (question,), max_tokens=1000)
        reply: ModelReply | None = None
        try:
            async with aclosing(cast("Any", stream(request))) as events:
                async for event in events:
                    if isinstance(event, ModelReply):
                        reply = event
        except ProviderError as failure:
            data: dict[str, object] = {"code": "vision"}
            if not isinstance(failure, Unreachable):
                data["usage"] = _taken(arguments.prompt, None)
            raise ToolError(f"The model could not look at it: {failure.message}", data=data) from failure
        answer, usage = reply.message.text.strip() if reply else "", _taken(arguments.prompt, reply)
        if not answer:
            raise ToolError("The model said nothing about the image.", data={"code": "vision", "usage": usage})
        return ToolOutput(answer, {"usage": usage})

    return Tool(
        name="vision",
        description="Ask about an image in the workspace (png, jpeg, gif, webp).",
        arguments=Vision,
        effect="read",
        run=run,
        deferred=True,
        renames={"file": "path", "image": "path", "image_path": "path", "question": "prompt"},
        summary=lambda arguments: f"vision {one_line(lexical(arguments.path))}",
        targets=lambda arguments: (arguments.path,),
    )


def _taken(prompt: str, reply: ModelReply | None) -> dict[str, object]:
    """Return the tokens of the call, which count for the session's budgets; estimated if the server gave no figures."""
    usage = reply.usage if reply is not None else Usage(IMAGE_TOKENS + len(prompt.encode()) // 4, 0, estimated=True)
    return to_builtins(usage)


def load_image(context: ToolContext, path: str) -> Image:
    """Return an image of the workspace; raises ToolError."""
    with Beneath(context.workspace) as files:
        loaded = files.load(path, LARGEST + 1)
    found = picture_of(loaded.data)
    if found is None:
        raise ToolError(f"{one_line(path)} is no image: it is neither png, jpeg, gif nor webp.")
    if len(loaded.data) > LARGEST:
        raise ToolError(f"{one_line(path)} is larger than {LARGEST >> 20} MB. Make a smaller copy first.")
    if found.is_too_large:
        size = f"{found.width} x {found.height} pixels"
        raise ToolError(f"{one_line(path)} has {size}, more than can be looked at. Make a smaller copy first.")
    return Image(found.media_type, base64.b64encode(loaded.data).decode())
