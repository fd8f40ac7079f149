"""Layers: the values that each place sets, and the pure fold that merges them.

    default < user config < user .env < config.json < workspace config < workspace .env < current .env < environment
            < flag

A later layer wins; lists of permission rules add up instead, so that no layer can take a user's rule away.
`Setting.folder` restricts a file in a folder that the user does not trust: a value that it may not set is held back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from lmagent.config.setting import URL, Setting
from lmagent.config.settings import BY_NAME, DEFAULTS, PLACEHOLDER_KEYS, SETTINGS, Settings
from lmagent.core.errors import ConfigError

_OfUser = Literal["default", "user config", "user .env", "config.json", "environment", "flag"]
LayerName = Literal[_OfUser, "workspace config", "workspace .env", "current .env"]


class Origin(Struct, frozen=True):
    """Where a value comes from."""

    layer: LayerName
    source: str = ""  # the file's path; empty for defaults, the environment and flags
    name: str = ""  # the key, the variable or the flag

    def __str__(self) -> str:
        if self.source:
            return f"{self.name} in {self.source}"
        return {"default": "default", "environment": f"{self.name} in the environment"}.get(self.layer, self.name)


DEFAULT = Origin("default")


class LayerEntry(Struct, frozen=True):
    value: Any
    origin: Origin


class Layer(Struct, frozen=True):
    """A place that sets values."""

    name: LayerName
    base: Path = Path()  # relative paths count from it
    home: Path = Path()
    path: Path | None = None  # of a file
    folder: Path | None = None  # it brings the file; None for the user's own places
    entries: Mapping[str, LayerEntry] = {}
    content: bytes = b""  # of the file, so that trust is checked on these very bytes

    def entry(self, setting: Setting, raw: object, key: str, *, text: bool = False) -> LayerEntry:
        """Return a value of this place; ConfigError if it is not allowed."""
        origin = Origin(self.name, str(self.path or ""), key)
        try:
            return LayerEntry(setting.read(raw, self.base, self.home, text=text), origin)
        except ValueError as error:
            example = "" if setting.secret or setting.default in (None, "", ()) else f", for example {setting.default}"
            raise ConfigError(f"{origin} {error}", fix=f"correct it{example}, or leave it out") from error


class Held(Struct, frozen=True):
    """A value of a folder's file that does not count, and why."""

    field: str
    entry: LayerEntry
    folder: Path
    reason: str


class Merged(Struct, frozen=True):
    """The layers, folded."""

    values: Mapping[str, Any]
    origins: Mapping[str, Origin]  # for lists, the last layer that added an item
    item_origins: Mapping[str, tuple[Origin, ...]]  # of each rule in a list
    held: tuple[Held, ...] = ()


def merge(layers: Sequence[Layer]) -> Merged:
    """Fold layers, weakest first. Layers with a `folder` are restricted."""
    values = dict(DEFAULTS)
    origins = dict.fromkeys(values, DEFAULT)
    items: dict[str, tuple[Origin, ...]] = {each.name: () for each in SETTINGS if each.kind == "rules"}
    held: list[Held] = []
    own = {
        name: entry
        for layer in layers
        if layer.folder is None
        for name, entry in layer.entries.items()
        if name != "llm_api_key" or entry.value not in PLACEHOLDER_KEYS
    }
    for layer in layers:
        for name, entry in layer.entries.items():
            setting = BY_NAME[name]
            if layer.folder is not None and (reason := _objection(setting, entry.value, values[name], own)):
                held.append(Held(name, entry, layer.folder, reason))
            elif setting.kind == "rules":
                added = [rule for rule in entry.value if rule not in values[name]]
                values[name] = (*values[name], *added)
                items[name] = (*items[name], *[entry.origin] * len(added))
                origins[name] = entry.origin if added else origins[name]
            else:
                values[name] = entry.value
                origins[name] = entry.origin
    return Merged(values, origins, items, tuple(held))


def _objection(setting: Setting, value: Any, below: Any, own: Mapping[str, LayerEntry]) -> str:
    """Return why an untrusted folder may not set this; empty if it may.

    `below` is the value of the lower layers; `own` are the values of all the user's own layers, without placeholder
    keys.
    """
    order = setting.choices or (True, False)
    if setting.folder == "stricter" and order.index(value) < order.index(below):
        return f"a folder may not loosen {below!r}"
    if setting.folder == "smaller" and below is not None and (value is None or value > below):
        return f"a folder may not raise the limit of {below}"
    if setting.folder == "trusted":
        return "only the user, or a folder the user trusts, may set this"
    return _diversion(setting, value, own) if setting.folder == "endpoint" else ""


def _diversion(setting: Setting, value: str, own: Mapping[str, LayerEntry]) -> str:
    """Return the text or key that a folder's server or key would misdirect; empty if none."""
    key = own.get("llm_api_key")
    if setting.kind == "url":
        if not _is_loopback(value):
            return f"it would send what you type to {_host_of(value)}"
        return f"it would send your key ({key.origin}) to {_host_of(value)}" if key else ""
    server = Settings(**{name: entry.value for name, entry in own.items()}).endpoint
    if key or not _is_loopback(server):
        return f"your server {_host_of(server)} would be asked in its name"
    return ""


def _host_of(url: str) -> str:
    found = URL.fullmatch(url)
    return found["host"].lower() if found else url


def _is_loopback(url: str) -> bool:
    """Return whether a URL leads to this machine; `127.example.org` does not."""
    loopback = r"(?:.+\.)?localhost|127(?:\.\d{1,3}){3}|\[::1\]"
    return re.fullmatch(loopback, _host_of(url).rstrip(".")) is not None
