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
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from msgspec import Struct

from lmagent.core.changes import PathState, Restored, UndoRefusal
from lmagent.undo.names import escaped
from lmagent.undo.net import CHANGED_SINCE, WantedState
from lmagent.undo.objects import Damaged, Objects
from lmagent.undo.put import PathChanged, is_owned, make_folder, put_file, put_link, remove, set_owner, set_times
from lmagent.undo.reach import Reach, set_mode
from lmagent.undo.records import equal_contents, kind_of, link_id

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_OWN = 0o700
_NO_FOLDER = (errno.ENOTDIR, errno.ELOOP)
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
    def __init__(self, reach: Reach, objects: Objects) -> None:
        self._reach = reach
        self._objects = objects
        self._done = list[str]()
        self._refused = list[UndoRefusal]()
        self._written = dict[tuple[object, ...], str]()
        self._names = Counter[tuple[int, PathState | None]]()  # names of one file that are to be the same file again

    def run(self, wanted_states: Sequence[WantedState]) -> Restored:
        """Restore the paths that can be restored: parents before children, each path once."""
        planned, free, put = list[_Step](), list[_Step](), list[_Step]()
        for goal in wanted_states:
            with self._told(goal):
                step = self._plan(goal)
                if step is None:
                    self._done.append(goal.path)
                else:
                    planned.append(step)
                    if step.found is not None:
                        self._names[step.found.st_ino, goal.want] += 1
        for step in reversed(planned):
            with self._told(step.goal):
                self._clear(step)
                free.append(step)
        for step in reversed(free):
            with self._told(step.goal):
                self._put(step)
                put.append(step)
        for step in reversed(put):
            with self._told(step.goal):
                self._settle(step)
                self._done.append(step.goal.path)
                if step.goal.hollow:
                    self._refused.append(UndoRefusal(step.goal.path, step.goal.hollow))
        return Restored(tuple(sorted(self._done)), tuple(sorted(self._refused, key=lambda one: one.path)))

    @contextmanager
    def _told(self, goal: WantedState) -> Generator[None]:
        """Record an error as a refusal of this path, so that the other paths are still restored."""
        try:
            yield
        except PathChanged:
            self._refused.append(UndoRefusal(goal.path, CHANGED_SINCE))
        except (_Refused, Damaged) as refused:
            self._refused.append(UndoRefusal(goal.path, str(refused.args[0])))
        except OSError as error:
            reason = _REASONS.get(error.errno or 0, f"it failed: {error.strerror}")
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
            if have is not None and not _is_retyped(have, want):
                raise _Refused(CHANGED_SINCE)
            return self._able(_Step(goal, None))
        if have is not None and self._is(goal.path, found, have, want):
            return self._able(_Step(goal, found, not _is_same_content(have, want)))
        if want is None or not self._is(goal.path, found, want, have):
            raise _Refused(CHANGED_SINCE)
        if want.kind == "folder" and self._reach.mode(goal.path, found) != want.mode:  # of a restore that was cut off
            return _Step(goal, found)
        if goal.hollow:
            self._refused.append(UndoRefusal(goal.path, goal.hollow))
        return None

    def _able(self, step: _Step) -> _Step:
        want = step.goal.want
        if want is not None and want.kind == "file" and step.content and not self._objects.has(want.sha256, want.size):
            raise _Refused(step.goal.lost if not want.sha256 or step.goal.lost else "its content is no longer kept")
        return step

    def _look(self, path: str) -> os.stat_result | None:
        try:
            return self._reach.look(path)
        except OSError as error:
            if error.errno not in _NO_FOLDER:
                raise
            return None

    def _is(self, path: str, found: os.stat_result, state: PathState, other: PathState | None) -> bool:
        """Return whether a path is in a state, by content if possible; its owner, set first, may be either's."""
        if kind_of(found.st_mode) != state.kind or not is_owned(found, state, other):
            return False
        if state.kind == "link":
            target = self._reach.at(path, lambda folder, name: os.readlink(name, dir_fd=folder))
            return escaped(target) == state.target
        mode = self._reach.mode(path, found)
        if state.kind == "folder":
            return mode in (state.mode, state.mode | _OWN)  # the second: opened up by a restore that was cut off
        return mode == state.mode and found.st_size == state.size and self._has_content(path, found, state)

    def _has_content(self, path: str, found: os.stat_result, state: PathState) -> bool:
        timely = found.st_mtime_ns == state.mtime
        if not state.sha256:  # only size and time can be compared
            return timely
        if state.sha256 in (link_id(found.st_ino, found.st_size, mtime) for mtime in (found.st_mtime_ns, None)):
            return True
        try:
            descriptor = self._reach.at(path, lambda folder, name: os.open(name, _READ, dir_fd=folder))
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
        self._reach.at(step.goal.path, lambda folder, name: remove(folder, name, found))
        step.found = None

    def _put(self, step: _Step) -> None:
        path, want, found = step.goal.path, step.goal.want, step.found
        if want is None:
            return
        if want.kind == "folder":
            if found is None:
                self._reach.at(path, lambda folder, name: make_folder(folder, name, want))
        elif want.kind == "link":
            self._tell(path, self._reach.at(path, lambda folder, name: put_link(folder, name, want, found)))
        elif step.content or found is None or not self._is_only_ours(found, want):
            self._put_file(path, want, found)
        else:
            self._tell(path, self._reach.at(path, lambda folder, name: _set_meta(folder, name, want)))

    def _tell(self, path: str, missing: str) -> None:
        if missing:
            self._refused.append(UndoRefusal(path, f"it is back, but this user may not give it to {missing}"))

    def _is_only_ours(self, found: os.stat_result, want: PathState) -> bool:
        """Return whether mode and time of a file may be set in place: no other name of it has to stay unchanged."""
        names = self._names[found.st_ino, want] + self._objects.links.is_name_of(want.sha256, found.st_ino)
        return names >= found.st_nlink or not self._objects.has(want.sha256, want.size)

    def _put_file(self, path: str, want: PathState, found: os.stat_result | None) -> None:
        """Write a file; names that were one file, and are to be the same again, stay one file."""
        key: tuple[object, ...] | None = None
        if want.sha256.startswith("link:"):
            key = (want,)
        elif found is not None and found.st_nlink > 1:
            key = (want, found.st_ino)
        twin = self._written.get(key) if key is not None else None
        if twin is None or not self._put_twin(path, want, found, twin):

            def source(folder: int, name: str) -> None:
                self._objects.write_to(want.sha256, folder, name)

            self._tell(path, self._reach.at(path, lambda folder, name: put_file(folder, name, want, found, source)))
        if key is not None:
            self._written.setdefault(key, path)

    def _put_twin(self, path: str, want: PathState, found: os.stat_result | None, twin: str) -> bool:
        """Make a path another name of a file that was written just now; False if that cannot be done."""
        other, twin_name = self._reach.at(twin, lambda folder, name: (os.dup(folder), name))

        def source(folder: int, name: str) -> None:
            os.link(twin_name, name, src_dir_fd=other, dst_dir_fd=folder, follow_symlinks=False)

        try:
            self._reach.at(path, lambda folder, name: put_file(folder, name, want, found, source))
        except OSError:
            return False
        finally:
            os.close(other)
        return True

    def _settle(self, step: _Step) -> None:
        """Give a folder its owner and its mode, after the last change in it."""
        path, want = step.goal.path, step.goal.want
        if want is None or want.kind != "folder":
            return
        self._reach.opened.pop(path, None)
        self._tell(path, self._reach.at(path, lambda folder, name: set_owner(folder, name, want)))
        self._reach.at(path, lambda folder, name: set_mode(folder, name, want.mode))


def _set_meta(folder: int, name: str, want: PathState) -> str:
    """Set owner, time and, last, the mode, by which a restart recognises the step. Return the result of `set_owner`."""
    missing = set_owner(folder, name, want)
    set_times(folder, name, want.mtime)
    set_mode(folder, name, want.mode)
    return missing


def _is_same_content(have: PathState, want: PathState | None) -> bool:
    if want is None or have.kind != "file" or want.kind != "file":
        return False
    if have.size != want.size:
        return False
    equal = equal_contents(have.sha256, want.sha256)
    return have.sha256 == want.sha256 and have.mtime == want.mtime if equal is None else equal


def _is_retyped(have: PathState, want: PathState) -> bool:
    """Return whether the path is missing for a moment while one state replaces the other."""
    return (have.kind == "folder") != (want.kind == "folder")
