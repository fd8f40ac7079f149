"""Traits: what was learned of models and holds beyond a session, in the user's data folder.

`models.json` there: a model on one server may behave differently on another, so both name it. `lmagent doctor` writes
what it measured into the same entry.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from lmagent.config.files import read_small, write_private
from lmagent.core.decoding import decode_json
from lmagent.core.errors import ConfigError

FILE = "models.json"

CALLS, SCHEMA, VISION, READS = "tool calls", "JSON schema", "vision", "reads tokens/s"
"""Keys of a profile that are read back."""

NO_CALLS = "none"
"""What a profile says of calls where the model made none."""


class Traits(msgspec.Struct, omit_defaults=True):
    """One model on one server.

    Attributes:
        constrain: it failed to call by itself, so that its calls are constrained.
        join: its chat template refused a user message after results.
        profile: what `lmagent doctor` measured.
    """

    constrain: bool = False
    join: bool = False
    profile: dict[str, Any] = {}


class _Known(msgspec.Struct):
    version: int = 1
    models: dict[str, Traits] = {}


class KeptTraits:
    """The traits of the models of one server.

    Args:
        folder: the user's data folder.
        endpoint: the server's URL.
    """

    def __init__(self, folder: Path, endpoint: str) -> None:
        self._path = folder / FILE
        self._endpoint = endpoint.rstrip("/")
        self._cached: _Known | None = None

    def of(self, model: str) -> Traits:
        """What is known of a model; nothing where the file is missing or damaged: it can be learned again."""
        if self._cached is None:
            self._cached = self._load()
        return self._cached.models.get(self._key(model), Traits())

    def is_constrained(self, model: str) -> bool:
        """Whether it failed to call by itself, here or when it was examined; not where that would be of no use."""
        traits = self.of(model)
        enforced = traits.profile.get(SCHEMA)
        return enforced is not False and (
            traits.constrain or (enforced is True and traits.profile.get(CALLS) == NO_CALLS)
        )

    def sees(self, model: str) -> bool | None:
        """Whether it named what is in a picture; None where it was not examined."""
        sees = self.of(model).profile.get(VISION)
        return sees if isinstance(sees, bool) else None

    def reading(self, model: str) -> float | None:
        """Prompt tokens a second that it read when it was examined."""
        speed = self.of(model).profile.get(READS)
        return float(speed) if isinstance(speed, int | float) and speed > 0 else None

    def constrain(self, model: str) -> None:
        """It failed to call by itself."""
        self._change(model, constrain=True)

    def free(self, model: str) -> None:
        """It has called rightly for long enough to be left alone again."""
        if self.of(model).constrain:
            self._change(model, constrain=False)

    def joins(self, model: str) -> bool:
        """Whether its chat template refused a user message after results."""
        return self.of(model).join

    def join(self, model: str) -> None:
        """Its chat template refused a user message after results."""
        self._change(model, join=True)

    def profile(self, model: str, measured: dict[str, Any]) -> Path:
        """Keep what was measured of a model; returns the file."""
        self._change(model, profile=measured)
        return self._path

    def _change(self, model: str, **traits: object) -> None:
        known = self._cached = self._load()  # another process may have learned something meanwhile
        key = self._key(model)
        known.models[key] = msgspec.structs.replace(known.models.get(key, Traits()), **traits)
        try:
            write_private(self._path, msgspec.json.format(msgspec.json.encode(known)).decode())
        except (OSError, ConfigError):
            return  # it is learned again next time

    def _load(self) -> _Known:
        try:
            content = read_small(self._path)
            return decode_json(content, _Known) if content else _Known()
        except (OSError, ConfigError, msgspec.DecodeError):
            return _Known()

    def _key(self, model: str) -> str:
        return f"{self._endpoint} {model}"
