"""Brings paths to their target state, if they are still in the expected one.

First all paths are looked at and compared, then they are written, in an order in which each step is possible: paths in
the way are removed, children before parents; then folders and files are made, parents before children; then folders get
their modes. A file is written under a name beside it and renamed, so that a crash leaves one state or the other. A path
that is in its target state already counts as done, so a restore that was cut off is completed by running it again.
"""

from __future__ import annotations

import errno
import os
import stat as modes
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from msgspec import Struct

from lmagent.core.changes import PathState, Restored, UndoRefusal
from lmagent.undo.changes import CHANGED_SINCE, WantedState
from lmagent.undo.objects import GONE, NOT_KEPT, Damaged, Objects
from lmagent.undo.put import PathChanged, make_folder, put, remove, set_meta
from lmagent.undo.reach import reach, set_mode
from lmagent.undo.records import escaped, kind_of, link_id, same_content, unescaped

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_OWN = 0o700
_REASONS = {
    errno.ENOENT: "the folder that it was in is gone",
    errno.ENOTDIR: "its parent is no longer a folder",
    errno.ELOOP: "its parent is now a symbolic link",
    errno.ENOTEMPTY: "the folder holds something that is kept",
    errno.EEXIST: CHANGED_SINCE,
}


class _Refused(Exception):
    """`args[0]` says why."""


class _Step(Struct):
    """A target state that can be reached; `content` if the content has to be written, otherwise mode and time only."""

    goal: WantedState
    found: os.stat_result | None
    content: bool = True


class Restore:
    """One restore in the open workspace `root`."""

    def __init__(self, root: int, objects: Objects) -> None:
        self._root = root
        self._objects = objects
        self._done = list[str]()
        self._refused = list[UndoRefusal]()

    def run(self, wanted_states: Sequence[WantedState]) -> Restored:
        """Restore the paths that can be restored: parents before children, each path once."""
        planned, free, put = list[_Step](), list[_Step](), list[_Step]()
        for goal in wanted_states:
            with self._refusing(goal):
                step = self._plan(goal)
                if step is None:
                    self._done.append(goal.path)
                else:
                    planned.append(step)
        for step in reversed(planned):
            with self._refusing(step.goal):
                self._clear(step)
                free.append(step)
        for step in reversed(free):
            with self._refusing(step.goal):
                self._put(step)
                put.append(step)
        for step in reversed(put):
            with self._refusing(step.goal):
                self._settle(step)
                self._done.append(step.goal.path)
        return Restored(tuple(sorted(self._done)), tuple(sorted(self._refused, key=lambda one: one.path)))

    @contextmanager
    def _refusing(self, goal: WantedState) -> Generator[None]:
        """Record an error as a refusal of this path, so that the other paths are still restored."""
        try:
            yield
        except PathChanged:
            self._refuse(goal, CHANGED_SINCE)
        except (_Refused, Damaged) as refused:
            self._refuse(goal, str(refused.args[0]))
        except OSError as error:
            self._refuse(goal, _REASONS.get(error.errno or 0, f"it failed: {error.strerror}"))

    def _refuse(self, goal: WantedState, reason: str) -> None:
        self._refused.append(UndoRefusal(goal.path, reason))

    def _plan(self, goal: WantedState) -> _Step | None:
        """Return the step to a target state; None if nothing is to be done."""
        have, want = goal.have, goal.want
        if "other" in (have and have.kind, want and want.kind):
            raise _Refused("a FIFO, socket or device is not restored")
        found = self._look(goal.path)
        if found is None:
            if want is None:
                return None
            # Where a folder takes the place of a file, or the other way round, the path is missing for a moment.
            if have is not None and (have.kind == "folder") == (want.kind == "folder"):
                raise _Refused(CHANGED_SINCE)
            return self._able(_Step(goal, None))
        if have is not None and self._is(goal.path, found, have):
            if have.kind == "folder" and not _is_open(found):  # its contents are looked at next
                reach(self._root, goal.path, lambda folder, name: set_mode(folder, name, have.mode | _OWN))
            same = want is not None and have.kind == want.kind == "file" and same_content(have, want)
            return self._able(_Step(goal, found, not same))
        if want is None or not self._is(goal.path, found, want):
            raise _Refused(CHANGED_SINCE)
        if want.kind == "folder" and modes.S_IMODE(found.st_mode) != want.mode:  # of a restore that was cut off
            return _Step(goal, found)
        self._tell_of_folder(goal)
        return None

    def _able(self, step: _Step) -> _Step:
        want = step.goal.want
        if want is not None and want.kind == "file" and step.content and not self._objects.has(want.sha256, want.size):
            raise _Refused(step.goal.lost or (GONE if want.sha256 else NOT_KEPT))
        return step

    def _look(self, path: str) -> os.stat_result | None:
        try:
            return reach(self._root, path, lambda folder, name: os.stat(name, dir_fd=folder, follow_symlinks=False))
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise
            return None

    def _is(self, path: str, found: os.stat_result, state: PathState) -> bool:
        """Return whether a path is in a state, by content if possible, whoever owns it."""
        if kind_of(found.st_mode) != state.kind:
            return False
        if state.kind == "link":
            target = reach(self._root, path, lambda folder, name: os.readlink(name, dir_fd=folder))
            return escaped(target) == state.target
        mode = modes.S_IMODE(found.st_mode)
        if state.kind == "folder":
            return mode in (state.mode, state.mode | _OWN)  # the second: opened up by a restore that was cut off
        return mode == state.mode and found.st_size == state.size and self._has_content(path, found, state)

    def _has_content(self, path: str, found: os.stat_result, state: PathState) -> bool:
        timely = found.st_mtime_ns == state.mtime
        if not state.sha256:  # only size and time can be compared
            return timely
        if state.sha256 == link_id(found):
            return True
        try:
            descriptor = reach(self._root, path, lambda folder, name: os.open(name, _READ, dir_fd=folder))
        except PermissionError:
            return timely
        try:
            if not modes.S_ISREG(os.fstat(descriptor).st_mode):
                return False
            equal = self._objects.equals(state.sha256, descriptor)
        finally:
            os.close(descriptor)
        return timely if equal is None else equal

    def _clear(self, step: _Step) -> None:
        want, found = step.goal.want, step.found
        if found is None or (want is not None and (want.kind == "folder") == modes.S_ISDIR(found.st_mode)):
            return
        reach(self._root, step.goal.path, lambda folder, name: remove(folder, name, found))
        step.found = None

    def _put(self, step: _Step) -> None:
        want, found = step.goal.want, step.found
        if want is None:
            return
        if want.kind == "folder":
            if found is None:
                reach(self._root, step.goal.path, lambda folder, name: make_folder(folder, name, want))
            return

        def act(folder: int, name: str) -> str:
            if want.kind == "link":
                target = unescaped(want.target)
                return put(folder, name, want, found, lambda new: os.symlink(target, new, dir_fd=folder))
            if not step.content and found is not None and self._may_be_set_in_place(found, want):
                return set_meta(folder, name, want)
            return put(folder, name, want, found, lambda new: self._objects.write_to(want.sha256, folder, new))

        self._tell_of_owner(step.goal, reach(self._root, step.goal.path, act))

    def _may_be_set_in_place(self, found: os.stat_result, want: PathState) -> bool:
        """Return whether mode and time of a file have no effect on another name of it, the store's link apart."""
        names = found.st_nlink - want.sha256.startswith("link:")
        return names <= 1 or not self._objects.has(want.sha256, want.size)

    def _settle(self, step: _Step) -> None:
        """Give a folder its owner and its mode, after the last change in it."""
        path, want = step.goal.path, step.goal.want
        if want is None or want.kind != "folder":
            return
        self._tell_of_owner(step.goal, reach(self._root, path, lambda folder, name: set_meta(folder, name, want)))
        self._tell_of_folder(step.goal)

    def _tell_of_owner(self, goal: WantedState, missing: str) -> None:
        if missing:
            self._refuse(goal, f"it is back, but this user may not give it to {missing}")

    def _tell_of_folder(self, goal: WantedState) -> None:
        if goal.lost and goal.want is not None and goal.want.kind == "folder":
            self._refuse(goal, goal.lost)


def _is_open(found: os.stat_result) -> bool:
    return modes.S_IMODE(found.st_mode) & _OWN == _OWN
