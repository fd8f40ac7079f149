"""Layers: what each place says, and the pure fold that makes one set of values of them.

    default < user config < user .env < config.json < workspace config < workspace .env < current .env < environment
            < flag

A later layer wins; lists of permission rules add up instead, so that no layer can take a user's rule away. A file in a
folder that the user does not trust is restricted by `Setting.folder`: what it may not set is held back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from lmagent.config.setting import URL, Setting
from lmagent.config.settings import BY_NAME, DEFAULTS, PLACEHOLDER_KEYS, SETTINGS, Settings
from lmagent.core.errors import ConfigError

_OfUser = Literal["default", "user config", "user .env", "config.json", "environment", "flag"]
LayerName = Literal[_OfUser, "workspace config", "workspace .env", "current .env"]


class Origin(Struct, frozen=True):
    """Where a value comes from.

    Attributes:
        layer: the layer.
        source: the file's path; empty for defaults, the environment and flags.
        name: the key, the variable or the flag.
        line: its line in the file, from 1; 0 where that is not known.
    """

    layer: LayerName
    source: str = ""
    name: str = ""
    line: int = 0

    def __str__(self) -> str:
        """Return the origin as a phrase."""
        if self.source:
            place = f"{self.source}:{self.line}" if self.line else self.source
            return f"{self.name} in {place}"
        return {"default": "default", "environment": f"{self.name} in the environment"}.get(self.layer, self.name)


DEFAULT = Origin("default")


class Entry(Struct, frozen=True):
    """One value of one layer."""

    value: Any
    origin: Origin


class Layer(Struct, frozen=True):
    """A place that sets values.

    Attributes:
        name: which layer it is.
        base: the folder that relative paths count from.
        home: the home folder.
        path: the file, if it is one.
        folder: the folder whose file it is; None for the user's own places.
        entries: value by setting.
        content: the bytes of the file, so that trust is checked on these very bytes.
    """

    name: LayerName
    base: Path = Path()
    home: Path = Path()
    path: Path | None = None
    folder: Path | None = None
    entries: Mapping[str, Entry] = {}
    content: bytes = b""

    def entry(self, setting: Setting, raw: object, key: str, line: int = 0, *, text: bool = False) -> Entry:
        """Return a value of this place.

        Raises:
            ConfigError: it is not allowed.
        """
        origin = Origin(self.name, str(self.path or ""), key, line)
        try:
            return Entry(setting.read(raw, self.base, self.home, text=text), origin)
        except ValueError as error:
            example = "" if setting.secret or setting.default in (None, "", ()) else f", for example {setting.default}"
            raise ConfigError(f"{origin} {error}", fix=f"correct it{example}, or leave it out") from error


class Held(Struct, frozen=True):
    """A value of a folder's file that does not count, and why."""

    field: str
    entry: Entry
    folder: Path
    reason: str


class Merged(Struct, frozen=True):
    """The layers, folded.

    Attributes:
        values: value by setting, for all settings.
        origins: where each comes from; for lists, the last layer that added something.
        item_origins: for lists of rules, the origin of each item, in order.
        held: values that do not count.
    """

    values: Mapping[str, Any]
    origins: Mapping[str, Origin]
    item_origins: Mapping[str, tuple[Origin, ...]]
    held: tuple[Held, ...] = ()


def merge(layers: Sequence[Layer]) -> Merged:
    """Fold layers, weakest first. Layers with a `folder` are restricted."""
    held: list[Held] = []
    while True:
        merged = _fold(layers, held)
        diverted = _diversion(merged, layers)
        if diverted is None:
            return merged
        held.append(diverted)
        layers = [_without(layer, diverted) for layer in layers]


def _fold(layers: Iterable[Layer], diverted: Sequence[Held]) -> Merged:
    values = dict(DEFAULTS)
    origins = dict.fromkeys(values, DEFAULT)
    items: dict[str, tuple[Origin, ...]] = {each.name: () for each in SETTINGS if each.kind == "rules"}
    held = list(diverted)
    for layer in layers:
        for name, entry in layer.entries.items():
            setting = BY_NAME[name]
            if layer.folder is not None and (reason := _objection(setting, entry.value, values[name])):
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


def _objection(setting: Setting, value: Any, below: Any) -> str:
    """Return why an untrusted folder may not set this over the value below it; empty if it may."""
    order = setting.choices or (True, False)
    if setting.folder == "stricter" and order.index(value) < order.index(below):
        return f"a folder may not loosen {below!r}"
    if setting.folder == "smaller" and below is not None and (value is None or value > below):
        return f"a folder may not raise the limit of {below}"
    if setting.folder == "trusted":
        return "only the user, or a folder the user trusts, may set this"
    return ""


def _diversion(merged: Merged, layers: Iterable[Layer]) -> Held | None:
    """Return a value of an untrusted folder that would send keys or text to a server that the user did not name."""
    owners = {
        entry.origin: (entry, layer.folder) for layer in layers if layer.folder for entry in layer.entries.values()
    }
    key = merged.values["llm_api_key"]
    key_origin = merged.origins["llm_api_key"]
    # By value too: a `.env` that is a link to a file of the user's own would pass the user's key off as the folder's.
    own_keys = {entry.value for layer in layers if not layer.folder for entry in layer.entries.values()}
    users_key = key not in PLACEHOLDER_KEYS and (key_origin not in owners or key in own_keys)
    for name in ("llm_url", "llm_base_url"):
        url = merged.values[name]
        if merged.origins[name] not in owners:
            continue
        entry, folder = owners[merged.origins[name]]
        if not _is_loopback(url):
            return Held(name, entry, folder, f"it would send what you type to {_host_of(url)}")
        if users_key:
            return Held(name, entry, folder, f"it would send your key ({key_origin}) to {_host_of(url)}")
    endpoint = Settings(**merged.values).endpoint
    if key_origin in owners and not _is_loopback(endpoint):
        entry, folder = owners[key_origin]
        return Held("llm_api_key", entry, folder, f"your server {_host_of(endpoint)} would be asked in its name")
    return None


def _without(layer: Layer, held: Held) -> Layer:
    return replace(layer, entries={name: entry for name, entry in layer.entries.items() if entry is not held.entry})


def _host_of(url: str) -> str:
    found = URL.fullmatch(url)
    return found["host"].lower() if found else url


def _is_loopback(url: str) -> bool:
    """Whether a URL leads to this machine; a name that only looks like an address (`127.example.org`) does not."""
    loopback = r"(?:.+\.)?localhost|127(?:\.\d{1,3}){3}|\[::1\]"
    return re.fullmatch(loopback, _host_of(url).rstrip(".")) is not None
