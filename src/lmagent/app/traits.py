"""Traits: facts learned about models that hold beyond a session, in the user's data folder.

They are in `models.json`, by model and server: a model on one server may behave differently on another. `lmagent
doctor` writes its measurements into the same entry.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from lmagent.config.files import read_small, write_private
from lmagent.core.decoding import decode_json
from lmagent.core.errors import ConfigError
from lmagent.core.ports import ModelTraits

FILE = "models.json"

CALLS, SCHEMA, VISION, READS = "tool calls", "JSON schema", "vision", "reads tokens/s"
"""Keys of a profile that are read back."""

NO_CALLS = "none"
"""A profile's value for calls if the model made none."""


class Traits(msgspec.Struct, omit_defaults=True):
    """One model on one server.

    Attributes:
        constrain: it failed to call by itself, so that its calls are constrained.
        join: its chat template refused a user message after results.
    """

    constrain: bool = False
    join: bool = False
    profile: dict[str, Any] = {}


class _Known(msgspec.Struct):
    version: int = 1
    models: dict[str, Traits] = {}


class KeptTraits(ModelTraits):
    def __init__(self, folder: Path, endpoint: str) -> None:
        self._path = folder / FILE
        self._endpoint = endpoint.rstrip("/")
        self._cached: _Known | None = None

    def of(self, model: str) -> Traits:
        """Return a model's traits; none if the file is missing or damaged: they can be learned again."""
        if self._cached is None:
            self._cached = self._load()
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
        """Record that it failed to call by itself."""
        self._change(model, constrain=True)

    def free(self, model: str) -> None:
        """Record that it has called correctly for long enough to be unconstrained again."""
        if self.of(model).constrain:
            self._change(model, constrain=False)

    def joins(self, model: str) -> bool:
        """Return whether its chat template refused a user message after results."""
        return self.of(model).join

    def join(self, model: str) -> None:
        """Record that its chat template refused a user message after results."""
        self._change(model, join=True)

    def profile(self, model: str, measured: dict[str, Any]) -> Path:
        self._change(model, profile=measured)
        return self._path

    def _change(self, model: str, **traits: object) -> None:
        known = self._cached = self._load()  # another process may have written meanwhile
        key = self._key(model)
        known.models[key] = msgspec.structs.replace(known.models.get(key, Traits()), **traits)
        try:
            write_private(self._path, msgspec.json.format(msgspec.json.encode(known)).decode())
        except (OSError, ConfigError):
            return  # it is learned again the next time

    def _load(self) -> _Known:
        try:
            content = read_small(self._path)
            return decode_json(content, _Known) if content else _Known()
        except (OSError, ConfigError, msgspec.DecodeError):
            return _Known()

    def _key(self, model: str) -> str:
        return f"{self._endpoint} {model}"
