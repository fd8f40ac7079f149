"""Undoing: the store behind /undo, opened with the first call that changes something; most one-shots make none."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lmagent.config.settings import Settings
from lmagent.core.changes import Snapshots
from lmagent.core.errors import StoreError

if TYPE_CHECKING:
    from lmagent.undo.snapshots import WorkspaceSnapshots


class KeptChanges:
    """Has the methods of `lmagent.core.changes.Snapshots`."""

    def __init__(self, workspace: Path, settings: Settings) -> None:
        self._workspace = workspace
        self._settings = settings

    @cached_property
    def _store(self) -> WorkspaceSnapshots:
        import hashlib

        from lmagent.undo.limits import UndoLimits
        from lmagent.undo.snapshots import WorkspaceSnapshots

        data = self._settings.agent_data_dir
        key = hashlib.sha256(str(self._workspace).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        limits = UndoLimits(total_max=self._settings.undo_mb << 20)
        return WorkspaceSnapshots(self._workspace, data / "undo" / key, limits, exclude=(data,))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def aclose(self, keep: Collection[str]) -> None:
        """Shrink the store below its limit, except for `keep`, and close it; older sessions' contents go first."""
        if "_store" in self.__dict__:
            with contextlib.suppress(StoreError):  # it keeps its size until the next time
                await self._store.collect(keep)
            self._store.close()


def kept_changes(workspace: Path, settings: Settings) -> Snapshots | None:
    return cast("Snapshots", KeptChanges(workspace, settings)) if settings.undo_mb else None
