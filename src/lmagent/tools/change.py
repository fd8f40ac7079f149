"""The common part of write and edit: whether a file may be changed, storing its new content, reporting the change."""

from __future__ import annotations

from typing import Any

from lmagent.core.errors import ToolError
from lmagent.core.tool import ToolContext
from lmagent.engine.redact import MASK
from lmagent.tools import diff
from lmagent.tools.beneath import Beneath, LoadedFile
from lmagent.tools.sanitize import one_line
from lmagent.tools.textfile import decode

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


async def store(ctx: ToolContext, path: str, new: bytes, old: LoadedFile | None) -> dict[str, Any]:
    """Write a file that still has the stamp of `old` (None: no file); return the facts for the log.

    It runs in a thread: a disk may need time to confirm that the content is safe. Raises ToolError.
    """
    from anyio import to_thread

    def write() -> dict[str, Any]:
        with Beneath(ctx.workspace) as files:
            files.write_atomic(path, new, over=None if old is None else old.stamp)
            name = files.locate(path)
        difference = difference_of(name, b"" if old is None else old.data, new)
        return {"path": name, "sha256": sha256(new), "changed": True, "diff": difference}

    return await to_thread.run_sync(write)


def require_no_mask(path: str, before: str, after: str) -> None:
    """Refuse to write the mask of a secret over the secret itself. Raises ToolError."""
    if after.count(MASK) > before.count(MASK):
        raise ToolError(
            f"{one_line(path)}: {MASK} marks a secret that is hidden from you; writing it would destroy the "
            f"secret, so nothing was changed. {_AROUND_MASK}",
            data={"code": "masked"},
        )


def require_unmasked_search(path: str, text: str, search: str) -> None:
    """Refuse a search for the mask in a file without it, and explain why."""
    if MASK in search and MASK not in text:
        raise ToolError(
            f"{one_line(path)}: {MASK} marks a secret that is hidden from you, so it is not in the file and "
            f"cannot be searched for. {_AROUND_MASK}",
            data={"code": "masked"},
        )


_AROUND_MASK = f"Use edit on the other lines, with {MASK} neither in search nor in replace; in a new file leave it out."


def difference_of(name: str, old: bytes, new: bytes) -> str:
    """Return the diff of two contents for the user."""
    before, after = decode(old), decode(new)
    if before is None or after is None:
        return "" if old == new else f"{len(old):,} bytes are replaced by {len(new):,}"
    return diff.unified(name, before[0], after[0])


def tally(difference: str) -> str:
    """Return `+3 −1` for a diff."""
    added, removed = diff.counts(difference)
    return f"+{added} −{removed}"


def load_if_there(files: Beneath, path: str, limit: int) -> LoadedFile | None:
    """Return the content of a file that is to be replaced, or None if the file does not exist. Raises ToolError."""
    try:
        old = files.load(path, limit + 1)
    except ToolError as error:
        if error.data.get("code") == "missing":
            return None
        raise
    if len(old.data) > limit:
        raise ToolError(
            f"{files.locate(path)} is larger than {limit >> 20} MB; it is not changed by file tools.",
            data={"code": "size"},
        )
    return old
