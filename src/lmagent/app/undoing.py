"""Undoing: the store behind /undo, opened with the first call that changes something; most one-shots make none."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lmagent.config.settings import Settings
from lmagent.core.changes import Change, Restored, UndoRefusal
from lmagent.core.errors import StoreError

if TYPE_CHECKING:
    from lmagent.undo.snapshots import WorkspaceSnapshots


class KeptChanges:
    """See `lmagent.core.changes.Snapshots`."""

    def __init__(self, workspace: Path, settings: Settings) -> None:
        self._workspace = workspace
        self._settings = settings
        self._opened: WorkspaceSnapshots | None = None

    @property
    def _store(self) -> WorkspaceSnapshots:
        if self._opened is None:
            import hashlib

            from lmagent.undo.limits import UndoLimits
            from lmagent.undo.snapshots import WorkspaceSnapshots

            data = self._settings.agent_data_dir
            key = hashlib.sha256(str(self._workspace).encode("utf-8", "surrogateescape")).hexdigest()[:16]
            limits = UndoLimits(total_max=self._settings.undo_mb << 20)
            self._opened = WorkspaceSnapshots(self._workspace, data / "undo" / key, limits, exclude=(data,))
        return self._opened

    async def before(self, paths: Sequence[str] | None = None, call: str = "") -> Sequence[UndoRefusal]:
        return await self._store.before(paths, call)

    async def after(self, paths: Sequence[str] | None = None, call: str = "") -> Sequence[Change]:
        return await self._store.after(paths, call)

    async def interrupted(self, call: str) -> Sequence[Change]:
        """Return the changes since a call whose process died."""
        return await self._store.interrupted(call)

    async def forget(self, call: str) -> None:
        await self._store.forget(call)

    async def restore(self, changes: Sequence[Change], to: Literal["before", "after"]) -> Restored:
        return await self._store.restore(changes, to)

    def content(self, sha256: str) -> bytes | None:
        return self._store.content(sha256)

    async def aclose(self, keep: Collection[str]) -> None:
        """Shrink the store below its limit, except for `keep`, and close it; older sessions' contents go first."""
        if self._opened is not None:
            with contextlib.suppress(StoreError):  # it keeps its size until the next time
                await self._opened.collect(keep)
            self._opened.close()


def kept_changes(workspace: Path, settings: Settings) -> KeptChanges | None:
    return KeptChanges(workspace, settings) if settings.undo_mb else None
