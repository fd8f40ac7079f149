"""Drawing: PNGs that tools write into the workspace. They replace pictures of the session, and no other file."""

from __future__ import annotations

from typing import Any

from lmagent.core.errors import ToolError
from lmagent.core.tool import ToolContext
from lmagent.tools.beneath import Beneath, LoadedFile
from lmagent.tools.change import load_if_there, sha256, store
from lmagent.tools.pictures import picture_of
from lmagent.tools.sanitize import one_line

LARGEST = 64 << 20
"""Bytes of a picture."""


def require_png(output: str) -> None:
    """Raise ToolError for a path that is no name for a PNG."""
    if not output.lower().endswith(".png"):
        raise ToolError(f"{one_line(output)} is no name for a PNG. Give a name that ends in .png.")


def own_picture(ctx: ToolContext, output: str) -> LoadedFile | None:
    """Return the picture of this session that would be replaced, or None. Raise ToolError for another file."""
    with Beneath(ctx.workspace) as files:
        name, old = files.locate(output), load_if_there(files, output, LARGEST)
    mark = ctx.seen.get(name)
    if old is not None and (mark is None or not mark.changed or mark.sha256 != sha256(old.data)):
        raise ToolError(
            f"{one_line(name)} exists, and is no picture of this session. Name another file as output.",
            data={"code": "unread"},
        )
    return old


async def store_picture(
    ctx: ToolContext, output: str, picture: bytes, old: LoadedFile | None
) -> tuple[str, dict[str, Any]]:
    """Write a PNG over `old`; return its path with its size, and the facts for the log. Raise ToolError."""
    found = picture_of(picture)
    if found is None or found.media_type != "image/png" or found.is_too_large:
        raise ToolError("The drawing was no picture; nothing was written.", data={"code": "data"})
    facts = await store(ctx, output, picture, old)
    size = f"{found.width} x {found.height} pixels, {len(picture) >> 10} KB"
    return f"{one_line(facts['path'], 300)} ({size})", {**facts, "diff": "", "picture": facts["path"]}
