"""Change: what a call did to a path of the workspace, in a form that can be taken back and done again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec import Struct

Kind = Literal["file", "folder", "link", "other"]


class PathState(Struct, frozen=True, omit_defaults=True):
    """What was at a path.

    Attributes:
        kind: `other` is a FIFO, socket or device; it is listed and not restored.
        mode: permission bits.
        sha256: of a file's content; empty where it was not kept.
        size: bytes of a file.
        mtime: modification time, nanoseconds.
        target: of a link.
        uid: number of the user it belongs to; -1 where that was not recorded.
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
    r"""A path that changed; None means that there was nothing.

    Attributes:
        path: relative to the workspace, "/" separated; bytes that are no UTF-8 as `\xff`, and a backslash doubled.
        before: before the call.
        after: after it.
        lost: the earlier content, or what was in the folder, was not kept, so that it cannot be restored; why.
    """

    path: str
    before: PathState | None = None
    after: PathState | None = None
    lost: str = ""


class Refusal(Struct, frozen=True):
    """A path that was left as it is, and why."""

    path: str
    reason: str


class Restored(Struct, frozen=True):
    """What a restore did.

    Attributes:
        paths: brought to the wished state.
        refused: left alone, wholly or in what is named: somebody changed them since, or they were not kept.
    """

    paths: tuple[str, ...] = ()
    refused: tuple[Refusal, ...] = ()


class Snapshots(Protocol):
    """Keeps what calls change in a workspace."""

    async def before(self, paths: Sequence[str] | None = None, call: str = "") -> Sequence[Refusal]:
        """Keep the state of the workspace, or of these paths and what is under them, before a call.

        Args:
            paths: None for the whole workspace.
            call: names the call among all that are ever made in the workspace: its state then outlives the process,
                until `forget`.

        Returns:
            Files whose content could not be kept (too large, not readable).

        Raises:
            StoreError: nothing can be kept (a full disk): the call must not be made.
        """
        ...

    async def after(self, paths: Sequence[str] | None = None, call: str = "") -> Sequence[Change]:
        """What changed since the last `before` of this call, in path order; new contents are kept too."""
        ...

    async def interrupted(self, call: str) -> Sequence[Change]:
        """What changed since the `before` of a call whose process has died; nothing where none is known.

        Everything that happened since is in it, whoever did it.
        """
        ...

    async def forget(self, call: str) -> None:
        """What the call changed is recorded: its state is not needed any more."""
        ...

    async def restore(self, changes: Sequence[Change], to: Literal["before", "after"]) -> Restored:
        """Bring paths to one side of their changes, if they are still on the other side.

        Args:
            changes: in the order in which they happened; a path may come more than once.
            to: `before` takes them back, `after` does them again.
        """
        ...

    def content(self, sha256: str) -> bytes | None:
        """A kept content, or None where it is gone."""
        ...
