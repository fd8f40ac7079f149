"""Failures of the operating system, in words, with the next thing to do."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from lmagent.core.errors import StoreError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EPERM)


def store_error(error: OSError, what: str, path: Path) -> StoreError:
    """Build the error for the user.

    Args:
        error: from the operating system.
        what: the action that failed, as in "the log could not be written".
        path: the file or folder.
    """
    typed = ""
    if error.errno in _FULL:
        why = f"the disk is full ({_free_space(path)} free)"
        fix = f"free some space on the disk that holds {path.parent}, then resume the session"
    elif error.errno == errno.EROFS:
        why = "the file system is read-only"
        fix = "use a workspace that can be written to"
        typed = f"{fix}: --workspace FOLDER"
    elif error.errno == errno.EFBIG:
        why = "a limit on the size of files is reached"
        fix = "raise the limit (`ulimit -f unlimited`), then resume the session"
    elif error.errno in _FORBIDDEN:
        why = "permission denied"
        fix = f"make {path.parent} readable and writable for you, or use another workspace"
        typed = f"{fix}: --workspace FOLDER"
    elif error.errno == errno.EIO:
        why = "the disk reported an error"
        fix = f"check the disk that holds {path.parent}, then resume the session"
    else:
        why = error.strerror or str(error)
        fix = f"check {path.parent}, then try again"
    return StoreError(f"{what}: {why}: {path}", fix=fix, terminal=typed)


def _free_space(path: Path) -> str:
    """Return the free space for an ordinary user on the file system of the nearest existing parent, as text."""
    if not hasattr(os, "statvfs"):
        return "almost nothing"
    for folder in (path, *path.parents):
        try:
            found = os.statvfs(folder)
        except OSError:
            continue
        free = found.f_bavail * found.f_frsize
        return f"{free / 1e6:.1f} MB" if free >= 1e6 else f"{free // 1024} kB"
    return "almost nothing"
