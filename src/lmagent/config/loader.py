"""Loader: reads the layers and folds them to `Settings`, and knows where every value comes from.

Nothing is read on import, and the environment only where a caller passes it in.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from lmagent.config import paths
from lmagent.config.files import read_small
from lmagent.config.layers import Entry, Held, Layer, Merged, Origin, merge, trusted
from lmagent.config.settings import Settings
from lmagent.config.sources import (
    ConfigWarning,
    Notes,
    Place,
    Unused,
    read_config_json,
    read_env_file,
    read_environment,
    read_flags,
    read_toml,
)
from lmagent.config.trust import is_trusted, trusts
from lmagent.config.workspace import Choice, choose_workspace
from lmagent.core.errors import ConfigError

_CHOOSES = ("current .env", "config.json")
"""Layers that are named where they choose the workspace: the user may not know that they do."""


class Loaded(Struct, frozen=True):
    """The settings with their history.

    Attributes:
        settings: the values.
        origins: where each comes from, by field name.
        item_origins: for lists of rules, where each rule comes from, in order.
        workspace: the chosen workspace; `workspace.open_workspace` checks and makes it.
        warnings: what was held back, and what was not understood.
        unused: variables that are known and not used.
        config_file: the user's `config.toml`, whether it exists or not.
        files: the files that were read, in the order of reading.
    """

    settings: Settings
    origins: Mapping[str, Origin]
    item_origins: Mapping[str, tuple[Origin, ...]]
    workspace: Choice
    warnings: tuple[ConfigWarning, ...]
    unused: tuple[Unused, ...]
    config_file: Path
    files: tuple[Path, ...]

    @property
    def env_file(self) -> Path:
        """The user's own `.env`: where keys and the answers of the first run are saved."""
        return user_env_file(self.config_file)


def user_env_file(config_file: Path) -> Path:
    """The user's own `.env`, beside the user's `config.toml`. Unlike a folder's, it may say anything."""
    return config_file.with_name(".env")


def load(env: Mapping[str, str], cwd: Path, flags: Mapping[str, Any] | None = None) -> Loaded:
    """Read all layers.

    Args:
        env: the environment, usually `os.environ`.
        cwd: the current folder.
        flags: values of command line flags by field name; None means that the flag was not given.

    Raises:
        ConfigError: a file cannot be read, a key is unknown, or a value is not allowed.
    """
    cwd = Path(os.path.realpath(cwd))
    home = paths.home_dir(env)
    notes = Notes([], [], [])
    config_file = _user_config(env)
    own = config_file.parent
    users = [
        read_toml(Place("user config", own, home, config_file), notes),
        read_env_file(Place("user .env", own, home, user_env_file(config_file)), notes),
    ]
    current = read_env_file(Place("current .env", cwd, home, cwd / ".env", cwd), notes)
    environment = read_environment(Place("environment", cwd, home), env, notes)
    flagged = read_flags(Place("flag", cwd, home), flags or {})

    if env.get("LMAGENT_CONFIG_JSON"):
        users.append(_named_json(Path(os.path.abspath(cwd / env["LMAGENT_CONFIG_JSON"])), home, notes))

    choice = _choose([*users, current, environment], flagged, cwd, home)
    for layer in (current, users[-1]):
        named = layer.entries.get("workspace")
        if layer.name in _CHOOSES and named and choice.named == str(named.origin) and choice.path != cwd:
            notes.warnings.append(ConfigWarning(f"the workspace is {choice.path}, as {choice.named} says"))
    folder = choice.path
    if not env.get("LMAGENT_CONFIG_JSON"):
        users.append(_found_json(folder, home, _data_dir([*users, environment], env), notes))
    config = Place("workspace config", folder, home, folder / ".lmagent" / "config.toml", folder)
    layers = [*users, read_toml(config, notes)]
    if folder == cwd:
        current = _as_workspace_env(current)
    else:
        layers.append(read_env_file(Place("workspace .env", folder, home, folder / ".env", folder), notes))
    return _loaded([*layers, current, environment, flagged], choice, notes, config_file, env)


def _named_json(path: Path, home: Path, notes: Notes) -> Layer:
    """The layer of the `config.json` that the user named."""
    content = read_small(path)
    if content is None:
        raise ConfigError(f"there is no configuration file {path}", fix="name one: --config FILE, or leave it out")
    if path.suffix == ".toml":
        raise ConfigError(
            f"{path} is no config.json of agent_computer", fix=f"a config.toml is named by: LMAGENT_CONFIG={path}"
        )
    return read_config_json(Place("config.json", path.parent, home, path), content, notes)


def _found_json(folder: Path, home: Path, data: Path, notes: Notes) -> Layer:
    """The layer of the workspace's `config.json`, if it is agent_computer's and the user trusts it as it is."""
    place = Place("config.json", folder, home, folder / "config.json")
    try:
        content = read_small(folder / "config.json")
    except ConfigError:
        content = None  # another program's: agent_computer's is small, and its user can read it
    if content is None:
        return place.layer({})
    from lmagent.config.compat import is_agent_computers  # few folders have one

    if not is_agent_computers(content.decode("utf-8-sig", "replace")):
        return place.layer({})
    if trusts(data, folder, "config.json", content):
        layer = read_config_json(place, content, notes)
        chosen = layer.entries.get("workspace")
        if chosen is None:
            return layer
        why = "the workspace is chosen before its own files are read; name it with -w, or the file with --config"
        notes.unused.append(Unused(chosen.origin.name, chosen.origin.source, why))
        return replace(layer, entries={name: entry for name, entry in layer.entries.items() if name != "workspace"})
    why = "has changed since you trusted the folder" if is_trusted(data, folder) else "is in a folder you do not trust"
    notes.warnings.append(ConfigWarning(f"{place.path} is not read: it {why}", _trust_command(folder)))
    return place.layer({})


def _loaded(layers: Sequence[Layer], choice: Choice, notes: Notes, config_file: Path, env: Mapping[str, str]) -> Loaded:
    data = _data_dir(layers, env)
    merged = merge(layers)
    if merged.held:
        merged = merge([trusted(layer) if _is_trusted(layer, data) else layer for layer in layers])
    notes.warnings += [_held_back(held, data) for held in merged.held]
    values: dict[str, Any] = {**merged.values, "workspace": choice.path, "agent_data_dir": data}
    return Loaded(
        settings=Settings(**values),
        origins=_with_choice(merged, choice),
        item_origins=merged.item_origins,
        workspace=choice,
        warnings=tuple(notes.warnings),
        unused=tuple(notes.unused),
        config_file=config_file,
        files=tuple(notes.files),
    )


def _user_config(env: Mapping[str, str]) -> Path:
    path = paths.config_file(env)
    if env.get("LMAGENT_CONFIG") and str(path) != os.devnull and not os.path.isfile(path):
        raise ConfigError(
            f"LMAGENT_CONFIG names {path}, which is not a file", fix="correct it, or type: unset LMAGENT_CONFIG"
        )
    return path


def _choose(layers: Sequence[Layer], flagged: Layer, cwd: Path, home: Path) -> Choice:
    named = [layer.entries["workspace"] for layer in layers if "workspace" in layer.entries]
    flag = flagged.entries.get("workspace")
    setting = named[-1] if named else None
    return choose_workspace(
        flag.value if flag else None,
        setting.value if setting else None,
        cwd,
        home,
        str(setting.origin) if setting else "",
    )


def _with_choice(merged: Merged, choice: Choice) -> Mapping[str, Origin]:
    """`~/lm_workspace` and the current folder are nobody's wish: their origin is the default."""
    chosen = choice.by in ("flag", "setting")
    return merged.origins if chosen else {**merged.origins, "workspace": Origin("default", name=choice.named)}


def _as_workspace_env(current: Layer) -> Layer:
    """In the workspace itself, the current folder's `.env` and the workspace's are one file."""
    entries = {
        name: Entry(entry.value, replace(entry.origin, layer="workspace .env"))
        for name, entry in current.entries.items()
    }
    return replace(current, name="workspace .env", entries=entries)


def _data_dir(layers: Sequence[Layer], env: Mapping[str, str]) -> Path:
    named = [layer.entries["agent_data_dir"] for layer in layers if "agent_data_dir" in layer.entries]
    if not named:
        return _usable(paths.data_dir(env), "", "move it away, or name another folder: AGENT_DATA_DIR=FOLDER")
    fix = "name a folder that you can write to, or leave the setting out"
    return _usable(Path(os.path.abspath(named[-1].value)), f" ({named[-1].origin})", fix)


def _usable(data: Path, named: str, fix: str) -> Path:
    """Return the data folder, or refuse it before a command has begun anything."""
    there = next((place for place in (data, *data.parents) if place.exists()), data)
    if not there.is_dir():
        raise ConfigError(f"the data folder {data}{named} cannot be used: {there} is a file, not a folder", fix=fix)
    is_made = there == data or bool(named)  # a home folder that nothing can be written to is no reason to refuse work
    if is_made and not os.access(there, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(f"the data folder {data}{named} cannot be used: {there} is not writable for you", fix=fix)
    return data


def _is_trusted(layer: Layer, data: Path) -> bool:
    return layer.folder is not None and trusts(data, layer.folder, layer.file, layer.content)


def _trust_command(folder: Path) -> str:
    from shlex import quote  # only where something is held back

    return f"read the file, and if you agree with it type: lmagent config trust {quote(str(folder))}"


def _held_back(held: Held, data: Path) -> ConfigWarning:
    changed = "; the file has changed since you trusted the folder" if is_trusted(data, held.folder) else ""
    return ConfigWarning(
        f"{held.entry.origin} is held back: {held.reason}{changed}",
        _trust_command(held.folder),
    )
