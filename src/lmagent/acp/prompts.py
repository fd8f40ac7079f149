"""Prompts: the blocks of an editor's prompt as a message of the user."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from lmagent.app.attaching import LARGEST_TEXT, attached_image, attached_text
from lmagent.app.host import Host
from lmagent.core.errors import ConfigError, ToolError
from lmagent.core.messages import Image, Message, Text
from lmagent.engine.session import Session
from lmagent.tools.pictures import picture_of
from lmagent.tools.sanitize import one_line


def typed(blocks: Sequence[Any]) -> str:
    """Return the text of a prompt that is nothing but text, such as a slash command; else nothing."""
    return "".join(block.text for block in blocks) if all(block.type == "text" for block in blocks) else ""


async def message_of(blocks: Sequence[Any], host: Host, session: Session) -> Message:
    """Return the message. Files that the editor embeds follow the text, as attached files do.

    Raises ConfigError: the prompt is empty, or a block cannot be taken.
    """
    words, attached, images = list[str](), list[str](), list[Image]()
    room = min(LARGEST_TEXT, max(0, session.window.tokens - session.state.estimate_tokens()))
    try:
        for block in blocks:
            match block.type:
                case "text":
                    words.append(block.text)
                case "image":
                    images.append(await _image(block.data, host, session))
                case "resource_link":
                    words.append(_name(block.uri, host.workspace, block.name))
                case "resource" if getattr(block.resource, "text", None) is not None:
                    name = _name(block.resource.uri, host.workspace)
                    words.append(name)
                    part, _ = attached_text(name, block.resource.text.encode(), room)
                    attached.append(part)
                    room -= len(part)
                case "resource":
                    images.append(await _image(block.resource.blob, host, session))
                case other:
                    raise ConfigError(f"a prompt cannot have a block of type {other}", fix="send text, files or images")
    except ToolError as refused:
        raise ConfigError(
            f"the message was not sent: {refused.message}", fix="leave it out, and send it again"
        ) from None
    whole = "".join(words)
    if not whole.strip() and not images:
        raise ConfigError("the message is empty", fix="type what the agent should do")
    return Message("user", (Text(whole + "".join(attached)), *images))


async def _image(data: str, host: Host, session: Session) -> Image:
    try:
        raw = base64.b64decode(data, validate=True)
    except binascii.Error:
        raise ToolError("an image is not valid base64") from None
    picture = picture_of(raw)
    if picture is None:
        raise ToolError("a block is neither text nor a known image")
    return await attached_image(raw, picture, host, session)


def _name(uri: str, workspace: Path, name: str = "") -> str:
    """Return how the model can name a resource: its path in the workspace, if it is there, with its lines."""
    try:
        parts = urlsplit(uri)
    except ValueError:  # it is no address
        return one_line(uri, 300)
    if parts.scheme != "file":
        return one_line(uri or name, 300)
    path = Path(unquote(parts.path))
    shown = path.relative_to(workspace) if path.is_relative_to(workspace) else path
    return one_line(f"{shown}{f' (lines {parts.fragment})' if parts.fragment else ''}", 300)
