"""Loader: read the layers and fold them to `Settings`, with the origin of every value.

An import reads nothing, and the environment is read only from the caller's argument.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from lmagent.config import paths
from lmagent.config.files import read_agent_json, read_small
from lmagent.config.layers import Held, Layer, Origin, merge
from lmagent.config.settings import Settings
from lmagent.config.sources import (
    ConfigWarning,
    Notes,
    Unused,
    read_config_json,
    read_env_file,
    read_environment,
    read_flags,
    read_toml,
)
from lmagent.config.trust import is_trusted, trusts
from lmagent.config.workspace import WorkspaceChoice, choose_workspace
from lmagent.core.errors import ConfigError

_CHOOSES = ("current .env", "config.json")
"""Layers whose choice of a workspace is shown, since the user may not expect it."""


class Loaded(Struct, frozen=True):
    """The settings with their history.

    Attributes:
        origins: origin by setting.
        item_origins: for lists of rules, the origin of each rule, in order.
        workspace: the chosen workspace; `workspace.open_workspace` checks and makes it.
        warnings: values that were held back, and lines that were not understood.
        unused: known variables that are not used.
        config_file: the user's `config.toml`, whether it exists or not.
        files: the files that were read, in the order of reading.
    """

    settings: Settings
    origins: Mapping[str, Origin]
    item_origins: Mapping[str, tuple[Origin, ...]]
    workspace: WorkspaceChoice
    warnings: tuple[ConfigWarning, ...]
    unused: tuple[Unused, ...]
    config_file: Path
    files: tuple[Path, ...]

    @property
    def env_file(self) -> Path:
        """The user's own `.env`, where keys and the answers of the first run are saved."""
        return _env_file(self.config_file)


def _env_file(config_file: Path) -> Path:
    return config_file.with_name(".env")


def load(env: Mapping[str, str], cwd: Path, flags: Mapping[str, Any] | None = None) -> Loaded:
    """Read all layers.

    Args:
        env: the environment, usually `os.environ`.
        cwd: the current folder.
        flags: values of command line flags by setting; None means that the flag was not given.

    Raises:
        ConfigError: a file cannot be read, a key is unknown, or a value is not allowed.
    """
    cwd, home = Path(os.path.realpath(cwd)), paths.home_dir(env)
    notes = Notes([], [], [])
    config_file = _user_config(env)
    own = config_file.parent
    users = [
        read_toml(Layer("user config", own, home, config_file), notes),
        read_env_file(Layer("user .env", own, home, _env_file(config_file)), notes),
    ]
    current = read_env_file(Layer("current .env", cwd, home, cwd / ".env", cwd), notes)
    environment = read_environment(Layer("environment", cwd, home), env, notes)
    flagged = read_flags(Layer("flag", cwd, home), flags or {})

    named_json = env.get("LMAGENT_CONFIG_JSON")
    if named_json:
        users.append(_named_json(Path(os.path.abspath(cwd / named_json)), home, notes))
    choice = _choose([*users, current, environment], flagged, cwd, home)
    for layer in (current, users[-1]):
        named = layer.entries.get("workspace")
        if layer.name in _CHOOSES and named and choice.named == str(named.origin) and choice.path != cwd:
            notes.warnings.append(ConfigWarning(f"the workspace is {choice.path}, as {choice.named} says"))
    folder = choice.path
    if not named_json:
        users.append(_found_json(folder, home, _data_dir([*users, environment], env), notes))
    layers = [
        *users,
        read_toml(Layer("workspace config", folder, home, folder / ".lmagent" / "config.toml", folder), notes),
    ]
    if folder != cwd:
        layers.append(read_env_file(Layer("workspace .env", folder, home, folder / ".env", folder), notes))
    else:  # the current folder's `.env` is the workspace's
        current = _renamed(current)
    return _loaded([*layers, current, environment, flagged], choice, notes, config_file, env)


def _loaded(
    layers: Sequence[Layer], choice: WorkspaceChoice, notes: Notes, config_file: Path, env: Mapping[str, str]
) -> Loaded:
    data = _data_dir(layers, env)
    merged = merge(layers)
    if merged.held:  # only then is the list of trusted folders read
        merged = merge([_unrestricted(layer, data) for layer in layers])
    notes.warnings += [_held_back(held, data) for held in merged.held]
    origins = merged.origins
    if choice.by not in ("flag", "setting"):
        origins = {**origins, "workspace": Origin("default", name=choice.named)}
    values: dict[str, Any] = {**merged.values, "workspace": choice.path, "agent_data_dir": data}
    return Loaded(
        settings=Settings(**values),
        origins=origins,
        item_origins=merged.item_origins,
        workspace=choice,
        warnings=tuple(notes.warnings),
        unused=tuple(notes.unused),
        config_file=config_file,
        files=tuple(notes.files),
    )


def _named_json(path: Path, home: Path, notes: Notes) -> Layer:
    content = read_small(path)
    if content is None:
        raise ConfigError(f"there is no configuration file {path}", fix="name one: --config FILE, or leave it out")
    if path.suffix == ".toml":
        raise ConfigError(
            f"{path} is no config.json of agent_computer", fix=f"a config.toml is named by: LMAGENT_CONFIG={path}"
        )
    return read_config_json(Layer("config.json", path.parent, home, path), content, notes)


def _found_json(folder: Path, home: Path, data: Path, notes: Notes) -> Layer:
    """Return the layer of the workspace's `config.json`, if it is agent_computer's and the user trusts its content."""
    path = folder / "config.json"
    place = Layer("config.json", folder, home, path)
    content = read_agent_json(path)
    if content is None:
        return place
    if not trusts(data, folder, path, content):
        why = (
            "has changed since you trusted the folder"
            if is_trusted(data, folder)
            else "is in a folder you do not trust"
        )
        notes.warnings.append(ConfigWarning(f"{path} is not read: it {why}", _trust_command(folder)))
        return place
    layer = read_config_json(place, content, notes)
    entries = dict(layer.entries)
    if chosen := entries.pop("workspace", None):
        why = "the workspace is chosen before its own files are read; name it with -w, or the file with --config"
        notes.unused.append(Unused(chosen.origin.name, chosen.origin.source, why))
    return replace(layer, entries=entries)


def _user_config(env: Mapping[str, str]) -> Path:
    path = paths.config_file(env)
    if env.get("LMAGENT_CONFIG") and str(path) != os.devnull and not os.path.isfile(path):
        raise ConfigError(
            f"LMAGENT_CONFIG names {path}, which is not a file", fix="correct it, or type: unset LMAGENT_CONFIG"
        )
    return path


def _choose(layers: Sequence[Layer], flagged: Layer, cwd: Path, home: Path) -> WorkspaceChoice:
    flag = flagged.entries.get("workspace")
    named = [layer.entries["workspace"] for layer in layers if "workspace" in layer.entries]
    if flag or not named:
        return choose_workspace(flag.value if flag else None, None, cwd, home)
    return choose_workspace(None, named[-1].value, cwd, home, str(named[-1].origin))


def _renamed(current: Layer) -> Layer:
    entries = {
        name: replace(entry, origin=replace(entry.origin, layer="workspace .env"))
        for name, entry in current.entries.items()
    }
    return replace(current, name="workspace .env", entries=entries)


def _data_dir(layers: Sequence[Layer], env: Mapping[str, str]) -> Path:
    """Return the data folder; ConfigError if it cannot be used, before a command begins its work."""
    named = [layer.entries["agent_data_dir"] for layer in layers if "agent_data_dir" in layer.entries]
    data = Path(os.path.abspath(named[-1].value)) if named else paths.data_dir(env)
    what = f"the data folder {data} ({named[-1].origin})" if named else f"the data folder {data}"
    fix = "move it away, or name another folder: AGENT_DATA_DIR=FOLDER"
    if named:
        fix = "name a folder that you can write to, or leave the setting out"
    there = next((place for place in (data, *data.parents) if place.exists()), data)
    if not there.is_dir():
        raise ConfigError(f"{what} cannot be used: {there} is a file, not a folder", fix=fix)
    is_made = there == data or bool(named)  # a read-only home folder alone is no reason to refuse work
    if is_made and not os.access(there, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(f"{what} cannot be used: {there} is not writable for you", fix=fix)
    return data


def _unrestricted(layer: Layer, data: Path) -> Layer:
    """Return the layer without its folder, and so without restrictions, if the user trusts its content."""
    trusted = (
        layer.folder is not None and layer.path is not None and trusts(data, layer.folder, layer.path, layer.content)
    )
    return replace(layer, folder=None) if trusted else layer


def _trust_command(folder: Path) -> str:
    from shlex import quote  # only if a value is held back

    return f"read the file, and if you agree with it type: lmagent config trust {quote(str(folder))}"


def _held_back(held: Held, data: Path) -> ConfigWarning:
    changed = "; the file has changed since you trusted the folder" if is_trusted(data, held.folder) else ""
    return ConfigWarning(f"{held.entry.origin} is held back: {held.reason}{changed}", _trust_command(held.folder))
