"""Kept in the user's data folder: traits of models, modes given to sessions, and the contents behind /undo.

The files of traits and modes can be lost: traits are learned again, and a session resumes in the settings' mode.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from lmagent.config.files import read_small, write_private
from lmagent.config.settings import Settings
from lmagent.core.changes import Snapshots
from lmagent.core.decoding import decode_json
from lmagent.core.errors import ConfigError, StoreError
from lmagent.core.events import Event, ModeChanged, PermissionMode
from lmagent.core.ports import ModelTraits

if TYPE_CHECKING:
    from lmagent.engine.session import Session
    from lmagent.undo.snapshots import WorkspaceSnapshots

T = TypeVar("T")

TRAITS, MODES = "models.json", "modes.json"

# Keys of a profile that are read back.
CALLS, SCHEMA, VISION, READS = "tool calls", "JSON schema", "vision", "reads tokens/s"

NO_CALLS = "none"  # a profile's value for calls if the model made none
MOST = 500  # sessions whose mode is remembered


def _load(path: Path, kind: type[T]) -> T | None:
    try:
        return decode_json(read_small(path) or b"", kind)
    except (OSError, ConfigError, msgspec.DecodeError):
        return None


def _save(path: Path, value: object) -> None:
    with suppress(OSError, ConfigError):
        # The first request of a session waits for this: a slow disk takes several milliseconds for a sync.
        write_private(path, msgspec.json.format(msgspec.json.encode(value)).decode(), sync=False)


class Traits(msgspec.Struct, omit_defaults=True):
    """One model on one server; it may behave differently on another. `lmagent doctor` measures the profile."""

    constrain: bool = False  # it failed to call by itself, so that its calls are constrained
    join: bool = False  # its chat template refused a user message after results
    profile: dict[str, Any] = {}


class _Known(msgspec.Struct):
    version: int = 1
    models: dict[str, Traits] = {}


class KeptTraits(ModelTraits):
    """See `lmagent.core.ports.ModelTraits`."""

    def __init__(self, folder: Path, endpoint: str) -> None:
        self._path = folder / TRAITS
        self._endpoint = endpoint.rstrip("/")
        self._cached: _Known | None = None

    def of(self, model: str) -> Traits:
        self._cached = self._cached or _load(self._path, _Known) or _Known()
        return self._cached.models.get(self._key(model), Traits())

    def is_constrained(self, model: str) -> bool:
        """Return whether it failed to call by itself, in a session or its examination, and constraining works."""
        traits = self.of(model)
        enforced = traits.profile.get(SCHEMA)
        return enforced is not False and (
            traits.constrain or (enforced is True and traits.profile.get(CALLS) == NO_CALLS)
        )

    def sees(self, model: str) -> bool | None:
        """Return whether it named the object in a picture; None before its examination."""
        sees = self.of(model).profile.get(VISION)
        return sees if isinstance(sees, bool) else None

    def reading(self, model: str) -> float | None:
        """Return the prompt tokens a second of its examination."""
        speed = self.of(model).profile.get(READS)
        return float(speed) if isinstance(speed, int | float) and speed > 0 else None

    def constrain(self, model: str) -> None:
        self._change(model, constrain=True)

    def free(self, model: str) -> None:
        if self.of(model).constrain:
            self._change(model, constrain=False)

    def joins(self, model: str) -> bool:
        return self.of(model).join

    def join(self, model: str) -> None:
        self._change(model, join=True)

    def profile(self, model: str, measured: dict[str, Any]) -> Path:
        self._change(model, profile=measured)
        return self._path

    def _change(self, model: str, **traits: object) -> None:
        known = self._cached = _load(self._path, _Known) or _Known()  # another process may have written meanwhile
        key = self._key(model)
        known.models[key] = msgspec.structs.replace(known.models.get(key, Traits()), **traits)
        _save(self._path, known)

    def _key(self, model: str) -> str:
        return f"{self._endpoint} {model}"


class GivenModes:
    """The permission modes that the user gave to sessions of one workspace; each holds when the session is resumed.

    A session's log may come with a checkout, so its own mode proves nothing.
    """

    def __init__(self, folder: Path, workspace: Path) -> None:
        self._path = folder / MODES
        self._workspace = workspace

    def of(self, session: str, default: PermissionMode) -> PermissionMode:
        return self._load().get(self._key(session), default)

    def inherit(self, source: str, fork: str) -> None:
        """Give a copy of a session the mode that the user gave to the original."""
        if mode := self._load().get(self._key(source)):
            self._keep(fork, mode)

    def watch(self, session: Session, *, given: bool) -> None:
        """Keep the mode of a session, now and at each change. `given`: its present mode comes from the command line."""
        name = session.state.session
        if given or session.state.mode == "auto":
            self._keep(name, session.state.mode)

        def listen(event: Event) -> None:
            if isinstance(event, ModeChanged):
                self._keep(name, event.mode)

        session.listen(listen)

    def _keep(self, session: str, mode: PermissionMode) -> None:
        known, key = self._load(), self._key(session)
        known.pop(key, None)
        known[key] = mode
        _save(self._path, dict(list(known.items())[-MOST:]))

    def _load(self) -> dict[str, PermissionMode]:
        return _load(self._path, dict[str, PermissionMode]) or {}

    def _key(self, session: str) -> str:
        return f"{self._workspace} {session}"


class KeptChanges:
    """The store behind /undo, see `lmagent.core.changes.Snapshots`; the first call that changes something opens it."""

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
            with suppress(StoreError):  # it keeps its size until the next time
                await self._store.collect(keep)
            self._store.close()


def kept_changes(workspace: Path, settings: Settings) -> Snapshots | None:
    return cast("Snapshots", KeptChanges(workspace, settings)) if settings.undo_mb else None
