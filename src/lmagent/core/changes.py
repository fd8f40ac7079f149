"""Change: a call's effect on a path of the workspace, in a form that can be undone and redone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec import Struct

Kind = Literal["file", "folder", "link", "other"]


class PathState(Struct, frozen=True, omit_defaults=True):
    """The state of a path.

    Attributes:
        kind: `other` is a FIFO, socket or device; it is listed and not restored.
        mode: permission bits.
        sha256: of a file's content; empty if the content was not kept.
        size: bytes of a file.
        mtime: modification time, nanoseconds.
        target: of a link.
        uid: number of the owner; -1 if not recorded.
        gid: number of the group.
    """

    kind: Kind
    mode: int = 0
    sha256: str = ""
    size: int = 0
    mtime: int = 0
    target: str = ""
    uid: int = -1
    gid: int = -1


class Change(Struct, frozen=True, omit_defaults=True):
    r"""A path that changed; None means that the path did not exist.

    Attributes:
        path: relative to the workspace, "/" separated; bytes that are no UTF-8 as `\xff`, and a backslash doubled.
        before: before the call.
        after: after it.
        lost: why the earlier content, or that of the folder, was not kept and cannot be restored.
    """

    path: str
    before: PathState | None = None
    after: PathState | None = None
    lost: str = ""


class UndoRefusal(Struct, frozen=True):
    """A path that was left unchanged, and why."""

    path: str
    reason: str


class Restored(Struct, frozen=True):
    """The result of a restore.

    Attributes:
        paths: restored to the requested state.
        refused: left alone, wholly or in part: changed since by another program, or not kept.
    """

    paths: tuple[str, ...] = ()
    refused: tuple[UndoRefusal, ...] = ()


class Snapshots(Protocol):
    """Keeps the changes that calls make in a workspace."""

    async def before(self, paths: Sequence[str] | None = None, call: str = "") -> Sequence[UndoRefusal]:
        """Keep the state of the workspace, or of these paths and the files under them, before a call.

        Raises StoreError: nothing can be kept (a full disk): the call must not be made.

        Args:
            paths: None for the whole workspace.
            call: names the call among all that are ever made in the workspace: its state then outlives the process,
                until `forget`.

        Returns:
            Files whose content could not be kept (too large, not readable).
        """
        ...

    async def after(self, paths: Sequence[str] | None = None, call: str = "") -> Sequence[Change]:
        """Return the changes since the last `before` of this call, in path order; new contents are kept too."""
        ...

    async def interrupted(self, call: str) -> Sequence[Change]:
        """Return the changes since the `before` of a call whose process has died; empty if that state is unknown.

        They include everything that happened since, by any program.
        """
        ...

    async def forget(self, call: str) -> None:
        """Drop the kept state of a call whose changes are recorded."""
        ...

    async def restore(self, changes: Sequence[Change], to: Literal["before", "after"]) -> Restored:
        """Bring paths to one side of their changes, if they are still on the other side.

        Args:
            changes: in the order in which they happened; a path may come more than once.
            to: `before` undoes them, `after` redoes them.
        """
        ...

    def content(self, sha256: str) -> bytes | None:
        """Return a kept content, or None if it is gone."""
        ...


_FOLDERS = frozenset(
    (
        *("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".nyc_output", "htmlcov"),
        *(".git", ".lmagent", ".ipynb_checkpoints", ".benchmarks", ".tsbuildinfo"),
    )
)
_FILES = r".*\.(?:pyc|pyo|log|tsbuildinfo)|\.coverage(?:\..+)?|coverage\.(?:xml|json|lcov)|lcov\.info"


def is_byproduct(path: str) -> bool:
    """Return whether builds, tests or tools write this path of the workspace: no user works on it."""
    folders = path.split("/")
    return not _FOLDERS.isdisjoint(folders) or re.fullmatch(_FILES, folders[-1]) is not None
