"""Refuses to edit a file that changed since the model saw it, and to replace a file whose content it does not know."""

from __future__ import annotations

from lmagent.core.errors import ToolError
from lmagent.core.tool import ToolContext
from lmagent.tools.sanitize import one_line

CHANGED = "was changed since it was last shown here; nothing was changed now. Read it again"
UNREAD = "exists and has not been read in this session; nothing was changed. Read it first"


def sha256(data: bytes) -> str:
    import hashlib  # it loads OpenSSL: not before the first request

    return hashlib.sha256(data).hexdigest()


def require_unchanged(ctx: ToolContext, path: str, data: bytes) -> None:
    """Refuse to edit a file that changed since the model was shown it. A file that was never shown may be edited."""
    mark = ctx.seen.get(path)
    if mark is not None and mark.sha256 != sha256(data):
        raise ToolError(f"{one_line(path)} {CHANGED}.", data={"code": "stale", "path": path})


def require_seen(ctx: ToolContext, path: str, data: bytes, text: str, *, confirmed: bool) -> None:
    """Refuse to replace a file whose content the session does not know, until the model confirms it.

    The new content `text` is kept; `confirmed` means that the model has seen the refusal, and insists.

    Raises:
        ToolError: the file was never shown, or changed since.
    """
    mark, now = ctx.seen.get(path), sha256(data)
    if not data or (mark is not None and mark.sha256 == now):
        return
    kept = ctx.kept(path) if confirmed else None
    if kept is not None and kept.file == now:
        return
    code, why = ("unread", UNREAD) if mark is None else ("stale", CHANGED)
    raise ToolError(
        f"{one_line(path)} {why} if you need what it holds. Your text is kept: to replace the file by it, call write "
        "with path and confirm=true, without content.",
        data={"code": code, "path": path, "file": now},
        kept=text,
    )
