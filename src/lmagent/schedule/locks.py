"""Locks of the files that all schedulers and commands of a workspace change: held for moments, and waited for."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from lmagent.core.errors import SessionBusy, StoreError
from lmagent.store.files import make_private, store_error
from lmagent.store.lock import hold

PATIENCE, PAUSE = 10.0, 0.01
"""Seconds to wait for a lock, and between two tries."""


@contextmanager
def locked(path: Path, what: str) -> Generator[None]:
    """Hold a lock file, whose folder is made; `what` names the locked thing in messages.

    Raises StoreError if it cannot be had.
    """
    try:
        make_private(path.parent)
        lock, end = None, time.monotonic() + PATIENCE
        while lock is None:
            try:
                lock = hold(path, what)
            except SessionBusy:
                if time.monotonic() > end:
                    raise StoreError(f"another process keeps {what} locked", fix=f"look at {path}") from None
                time.sleep(PAUSE)
    except OSError as error:
        raise store_error(error, f"{what} could not be locked", path) from error
    try:
        yield
    finally:
        lock.release()
