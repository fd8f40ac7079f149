"""Turns errors of the operating system into errors of the store that say what to do next."""

from __future__ import annotations

import errno
from pathlib import Path

from lmagent.core.errors import StoreError

_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
}


def store_error(error: OSError, folder: Path | str) -> StoreError:
    why = _REASONS.get(error.errno or 0, error.strerror or str(error))
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    fix = f"free some space on the disk that holds {folder}" if full else f"make {folder} writable for you"
    fix += ", or let less be kept (LMAGENT_UNDO_MB; 0 switches undo off)"
    return StoreError(f"the changes of the next call could not be kept for undo: {why}", fix=fix)
