"""Read before write: a file is only changed by somebody who knows what is in it."""

from __future__ import annotations

from lmagent.core.errors import ToolError
from lmagent.core.tool import ToolContext
from lmagent.tools.sanitize import one_line


def sha256(data: bytes) -> str:
    """The SHA-256 of a content in hexadecimal."""
    import hashlib  # it loads OpenSSL: not before the first request

    return hashlib.sha256(data).hexdigest()


def require_read(ctx: ToolContext, path: str, data: bytes) -> None:
    """Refuse to change a file that the session has not seen as it is now.

    Args:
        ctx: knows what the session has seen.
        path: the file, relative to the workspace.
        data: its content now.

    Raises:
        ToolError: it was never read, or changed since.
    """
    name, mark = one_line(path), ctx.seen.get(path)
    if mark is None:
        raise ToolError(
            f"{name} exists and has not been read in this session; nothing was changed. Read it first.",
            data={"code": "unread", "path": path},
        )
    if mark.sha256 != sha256(data):
        raise ToolError(
            f"{name} was changed by somebody else since it was last read here; nothing was changed. Read it again.",
            data={"code": "stale", "path": path},
        )
