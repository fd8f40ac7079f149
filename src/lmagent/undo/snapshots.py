"""The undo store of one workspace: implements the port `lmagent.core.changes.Snapshots`."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal

import anyio.from_thread
import anyio.to_thread

from lmagent.core.changes import Change, Restored, UndoRefusal
from lmagent.core.errors import StoreError
from lmagent.policy.paths import located
from lmagent.undo.changes import differences, net, same_tree
from lmagent.undo.keep import Keeper
from lmagent.undo.limits import UndoLimits
from lmagent.undo.lock import StoreLock
from lmagent.undo.objects import CHANGED, NOT_KEPT, Objects
from lmagent.undo.reach import open_workspace
from lmagent.undo.records import WIDTH, Record, Tree, content_id, escaped, size_of
from lmagent.undo.restore import Restore
from lmagent.undo.scan import Scan
from lmagent.undo.states import Mark, State, StateFiles

_DEFAULT = UndoLimits()
_OURS = ".lmagent"

_Paths = tuple[str, ...] | None
_Key = tuple[_Paths, str]
"""The paths as the caller gave them, and the call."""


class WorkspaceSnapshots:
    """Keeps the changes of calls in a workspace; see `lmagent.core.changes.Snapshots`.

    Returned paths are escaped (`records.py`); those of `before` and `after` are names of the operating system, relative
    to the workspace or absolute in it. Links in them that stay in the workspace are followed, as the file tools do.

    The work is done in a thread, one call at a time. A cancelled call ends its work first, except for `before`, which
    gives up and keeps no state. All methods raise StoreError, and nothing was recorded, or WorkspaceError.

    Args:
        folder: the store; made on first use, private to the user.
        exclude: more folders (absolute) that are skipped, such as the agent's own data.
    """

    def __init__(
        self, workspace: Path, folder: Path, limits: UndoLimits = _DEFAULT, *, exclude: Sequence[Path] = ()
    ) -> None:
        self._workspace = os.path.abspath(workspace)
        self._limits = limits
        ours = {place for each in (folder, *exclude) for place in self._places(os.fspath(each))} - {"."}
        self._hidden = [_OURS, *sorted(ours)]
        self._objects = Objects(folder, limits.total_max)
        self._files = StateFiles(folder)
        self._lock = StoreLock(folder)
        self._busy = threading.Lock()
        self._known = State()
        self._mark: Mark | None = None  # of the manifest, if that holds this very state
        self._states = dict[_Key, State]()

    async def before(self, paths: Sequence[str] | None = None, call: str = "") -> Sequence[UndoRefusal]:
        """Keep a state; see the port. A path outside the workspace is refused."""
        return await anyio.to_thread.run_sync(self._before, _key(paths), call)

    async def after(self, paths: Sequence[str] | None = None, call: str = "") -> Sequence[Change]:
        """Return the changes; see the port. New contents that cannot be kept are no error: redo lacks them.

        Raises:
            ValueError: there was no `before` with these paths.
        """
        return await anyio.to_thread.run_sync(self._after, _key(paths), call)

    async def interrupted(self, call: str) -> Sequence[Change]:
        return await anyio.to_thread.run_sync(self._interrupted, call)

    async def forget(self, call: str) -> None:
        await anyio.to_thread.run_sync(self._forget, call)

    async def restore(self, changes: Sequence[Change], to: Literal["before", "after"]) -> Restored:
        """Bring paths to one side; see the port.

        Paths that are on that side already count as restored, and changes that cancel each other are passed over.
        """
        return await anyio.to_thread.run_sync(self._restore, changes, to)

    async def collect(self, keep: Collection[str]) -> int:
        """Drop contents until the store is within its limit, oldest first; return the number of bytes freed.

        While another process uses the store, nothing is dropped. `keep` has the `sha256` of all states that may be
        needed again; those of the present workspace stay anyway.
        """
        return await anyio.to_thread.run_sync(self._collect, frozenset(keep))

    def content(self, sha256: str) -> bytes | None:
        """Return a kept content; None if it is gone, damaged, or too large to be copied (`UndoLimits.copy_max`)."""
        return self._objects.read(sha256, self._limits.copy_max)

    def close(self) -> None:
        """Release the store, so that other processes can collect."""
        with self._busy:
            self._states.clear()
            self._lock.leave()

    def _before(self, paths: _Paths, call: str) -> Sequence[UndoRefusal]:
        with self._busy:
            self._lock.enter()
            resolved, outside = self._resolve(paths)
            state, refusals = self._take(resolved, first=True)
            if call:
                self._files.keep(call, state, self._mark if resolved is None else None)
            self._states[paths, call] = state
            return [*outside, *refusals]

    def _after(self, paths: _Paths, call: str) -> Sequence[Change]:
        with self._busy:
            if (paths, call) not in self._states:
                raise ValueError("after() without before() of the same paths")
            return self._changed(self._states[paths, call])

    def _interrupted(self, call: str) -> Sequence[Change]:
        with self._busy:
            self._lock.enter()
            before = self._files.before(call)
            return [] if before is None else self._changed(before)

    def _changed(self, before: State) -> Sequence[Change]:
        return differences(before, self._take(before.paths, first=False)[0], self._loss)

    def _forget(self, call: str) -> None:
        with self._busy:
            self._files.forget(call)
            self._states = {key: state for key, state in self._states.items() if key[1] != call}

    def _loss(self, was: Record) -> str:
        """Return why the content of a file is lost; empty if it is not."""
        content = content_id(was)
        if not content:
            return f"{NOT_KEPT} before the call"
        return CHANGED if content.startswith("link:") and not self._objects.has(content) else ""

    def _restore(self, changes: Sequence[Change], to: Literal["before", "after"]) -> Restored:
        with self._busy:
            self._lock.enter()
            wanted_states, refused = net(changes, to, self._hidden)
            with self._lock.alone():
                root = open_workspace(self._workspace)
                try:
                    restored = Restore(root, self._objects).run(wanted_states)
                finally:
                    os.close(root)
            every = sorted([*restored.refused, *refused], key=lambda refusal: refusal.path)
            return Restored(restored.paths, tuple(every))

    def _collect(self, keep: frozenset[str]) -> int:
        with self._busy:
            self._lock.enter()
            with self._lock.only_user() as only:
                if not only:
                    return 0
                trees = [self._known.tree, self._files.load().tree, *(state.tree for state in self._states.values())]
                trees += [state.tree for state in self._files.running()]
                held = {content for tree in trees for content in _contents(tree)}
                return self._objects.collect(keep | held)

    def _take(self, paths: _Paths, *, first: bool) -> tuple[State, Sequence[UndoRefusal]]:
        """Walk and remember the result; `first` is the walk before a call."""
        if paths is None:
            self._load()
        keeper = Keeper(self._objects, self._limits, strict=first)
        breathe = anyio.from_thread.check_cancelled if first else _nothing
        scan = Scan(self._workspace, keeper, self._known.tree, self._limits, self._hidden, breathe)
        state = scan.run(paths)
        if paths is None:
            self._save(state, strict=first)
        return state, scan.refusals

    def _load(self) -> None:
        """Read the manifest if another process has written it."""
        mark = self._files.mark()
        if self._mark is None or mark != self._mark:
            state = self._files.load()
            self._known, self._mark = State(_checked(state.tree, self._objects.survey()), None, state.blind), mark

    def _save(self, state: State, *, strict: bool) -> None:
        """Write the manifest, unless it holds this state."""
        known, self._known = self._known, state
        if self._mark is not None and state.blind == known.blind and same_tree(state.tree, known.tree):
            return
        self._mark = None
        try:
            with self._lock.alone():
                self._files.save(state)
                self._mark = self._files.mark()
        except StoreError:
            if strict:
                raise

    def _resolve(self, paths: _Paths) -> tuple[_Paths, list[UndoRefusal]]:
        """Return the paths without links and without paths that others cover, and the paths outside the workspace."""
        if paths is None:
            return None, []
        found, outside = set[str](), list[UndoRefusal]()
        for path in paths:
            places = set[str]() if "\0" in path else self._places(path)
            if not places:
                outside.append(UndoRefusal(escaped(path), "it is not in the workspace"))
            found |= places
        if "." in found:
            return None, outside
        tops = [path for path in found if not any(path.startswith(f"{other}/") for other in found)]
        return tuple(sorted(tops)), outside

    def _places(self, path: str) -> set[str]:
        """Return a path relative to the workspace, as named and with links resolved, escaped; empty if outside."""
        return {escaped(place) for place in located(self._workspace, [path]) if not f"{place}/".startswith("../")}


def _key(paths: Sequence[str] | None) -> _Paths:
    return None if paths is None else tuple(paths)


def _nothing() -> None: ...


def _checked(tree: Tree, sizes: dict[str, int]) -> Tree:
    """Return the tree with torn and missing contents marked as not kept."""

    def checked(record: Record) -> Record:
        content = content_id(record)
        return record[:WIDTH] if content and sizes.get(content) != size_of(record) else record

    return {folder: {name: checked(record) for name, record in names.items()} for folder, names in tree.items()}


def _contents(tree: Tree) -> set[str]:
    return {content_id(record) for names in tree.values() for record in names.values() if len(record) > WIDTH}
