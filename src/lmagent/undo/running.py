"""Keeps the states before calls, for a process that dies before it has recorded a call's changes.

Each is a file of its own, named by the call. The state of a whole workspace is the manifest, so it costs one hard link.
It is removed when the changes are recorded; a state that no session asks for is kept until there are too many.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from lmagent.undo.copies import hashing
from lmagent.undo.failures import store_error
from lmagent.undo.manifest import Mark, State, mark_of, read_state, write_state

_MOST = 16
"""States of dead processes that are kept: their sessions may never be resumed."""


class RunningStates:
    """The states of one store; `manifest` is the manifest's file."""

    def __init__(self, folder: Path, manifest: Path) -> None:
        self._folder = folder
        self._manifest = manifest

    def keep(self, call: str, state: State, mark: Mark | None) -> None:
        """Keep a state in place of an earlier one of this call; `mark` is the manifest's, if that holds this very
        state.

        Raises:
            StoreError: the state cannot be written.
        """
        path = self._path(call)
        try:
            self._folder.mkdir(0o700, exist_ok=True)
            path.unlink(missing_ok=True)
            if mark is None or not self._link(path, mark):
                write_state(path, state)
        except OSError as error:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            raise store_error(error, self._folder) from error

    def load(self, call: str) -> State | None:
        return read_state(self._path(call))

    def forget(self, call: str) -> None:
        with suppress(OSError):
            self._path(call).unlink()

    def states(self) -> list[State]:
        """Return the newest states; drop older and damaged ones."""
        found = list[State]()
        for path in sorted(self._paths(), key=_changed, reverse=True):
            state = read_state(path) if len(found) < _MOST else None
            if state is None:
                with suppress(OSError):
                    path.unlink()
            else:
                found.append(state)
        return found

    def _paths(self) -> list[Path]:
        try:
            return list(self._folder.iterdir())
        except OSError:
            return []

    def _path(self, call: str) -> Path:
        return self._folder / hashing(call.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def _link(self, path: Path, mark: Mark) -> bool:
        """Give the manifest another name, unless another process has replaced it meanwhile."""
        try:
            os.link(self._manifest, path)
        except OSError:  # a file system without links, or nothing there
            return False
        if mark_of(path) == mark:
            return True
        path.unlink()
        return False


def _changed(path: Path) -> int:
    """Return when the file became the state of a call: a link changes the ctime."""
    try:
        return path.stat().st_ctime_ns
    except OSError:
        return 0
