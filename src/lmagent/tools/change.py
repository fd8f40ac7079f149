"""What write and edit share: the new content of one file, stored, and told."""

from __future__ import annotations

from typing import Any

from lmagent.core.errors import ToolError
from lmagent.core.tool import ToolContext
from lmagent.engine.redact import MASK
from lmagent.tools import diff
from lmagent.tools.beneath import Beneath, Loaded
from lmagent.tools.sanitize import one_line
from lmagent.tools.seen import sha256
from lmagent.tools.textfile import decode


async def store(ctx: ToolContext, path: str, new: bytes, old: Loaded | None) -> dict[str, Any]:
    """Write a file that is still as `old` says (None: not there); the facts for the log.

    In a thread: a disk may take its time to say that the content is safe.

    Raises:
        ToolError: refused, failed, or the file is no longer as it was; nothing was changed.
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
    """Refuse to put the mask of a secret where the file has the secret itself.

    Args:
        path: the file.
        before: what it holds; the mask may really stand in it.
        after: what it is to hold.

    Raises:
        ToolError: there would be more masks in it than now.
    """
    if after.count(MASK) > before.count(MASK):
        raise ToolError(
            f"{one_line(path)}: {MASK} stands for a secret that is hidden from you; writing it would destroy the "
            f"secret, so nothing was changed. {_AROUND_MASK}",
            data={"code": "masked"},
        )


def require_unmasked_search(path: str, text: str, search: str) -> None:
    """Tell a model that looks for the mask why it is not there.

    Raises:
        ToolError: it is looked for, and the file has none.
    """
    if MASK in search and MASK not in text:
        raise ToolError(
            f"{one_line(path)}: {MASK} stands for a secret that is hidden from you, so it is not in the file and "
            f"cannot be searched for. {_AROUND_MASK}",
            data={"code": "masked"},
        )


_AROUND_MASK = f"Use edit on the other lines, with {MASK} neither in search nor in replace; in a new file leave it out."


def difference_of(name: str, old: bytes, new: bytes) -> str:
    """The diff of two contents for a person."""
    before, after = decode(old), decode(new)
    if before is None or after is None:
        return "" if old == new else f"{len(old):,} bytes are replaced by {len(new):,}"
    return diff.unified(name, before[0], after[0])


def tally(difference: str) -> str:
    """`+3 −1` for a diff."""
    added, removed = diff.counts(difference)
    return f"+{added} −{removed}"


def load_if_there(files: Beneath, path: str, limit: int) -> Loaded | None:
    """The content of a file that is to be replaced, or None where there is none.

    Raises:
        ToolError: it is no regular file, too big, or refused.
    """
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
