"""Loader: read the layers and fold them to `Settings`, with the origin of every value.

A definite error is a ConfigError that names the place; an oddity is a warning. An import reads nothing, and the
environment is read only from the caller's argument.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from lmagent.config import paths
from lmagent.config.files import EnvLine, decode_env, parse_env, read_agent_json, read_small
from lmagent.config.layers import Held, Layer, LayerEntry, Origin, merge
from lmagent.config.names import FIELD_OF, as_text, closest, why_not_used
from lmagent.config.setting import Setting
from lmagent.config.settings import BY_NAME, SETTINGS, Settings
from lmagent.config.trust import is_trusted, trusts
from lmagent.config.workspace import WorkspaceChoice, choose_workspace
from lmagent.core.errors import ConfigError


class ConfigWarning(Struct, frozen=True):
    text: str
    fix: str = ""


class Unused(Struct, frozen=True):
    """A known variable or key that is set but not used, and why."""

    name: str
    source: str
    why: str


class Loaded(Struct, frozen=True):
    """The settings with their history."""

    settings: Settings
    origins: Mapping[str, Origin]
    item_origins: Mapping[str, tuple[Origin, ...]]  # of each rule in a list
    workspace: WorkspaceChoice  # `workspace.open_workspace` checks and makes it
    warnings: tuple[ConfigWarning, ...]  # values that were held back, and lines that were not understood
    unused: tuple[Unused, ...]
    config_file: Path  # the user's `config.toml`, whether it exists or not
    files: tuple[Path, ...]  # that were read

    @property
    def env_file(self) -> Path:
        """The user's own `.env`, where keys and the answers of the first run are saved."""
        return self.config_file.with_name(".env")


def load(env: Mapping[str, str], cwd: Path, flags: Mapping[str, Any] | None = None) -> Loaded:
    """Read all layers; `flags` are values of the command line by setting, None for a flag that was not given.

    Raises ConfigError if a file cannot be read, a key is unknown, or a value is not allowed.
    """
    home, read = paths.home_dir(env), LayerReader()
    config_file = _user_config(env)
    users = [
        read.toml(Layer("user config", config_file.parent, home, config_file)),
        read.env_file(Layer("user .env", config_file.parent, home, config_file.with_name(".env"))),
    ]
    named_json = env.get("LMAGENT_CONFIG_JSON", "")
    if named_json:
        path = Path(os.path.abspath(paths.expand_path(named_json, cwd, home)))
        users.append(_named_json(Layer("config.json", path.parent, home, path), read))
    current = read.env_file(Layer("current .env", cwd, home, cwd / ".env", cwd))
    environment = read.environment(Layer("environment", cwd, home), env)
    flagged = read.flags(Layer("flag", cwd, home), flags or {})
    choice = _choose([*users, current, environment], flagged, cwd, home, read)
    folder = choice.path
    if not named_json:
        place = Layer("config.json", folder, home, folder / "config.json")
        users.append(_found_json(place, _data_dir([*users, environment], env), read))
    layers = [*users, read.toml(Layer("workspace config", folder, home, folder / ".lmagent" / "config.toml", folder))]
    if folder != cwd:
        layers.append(read.env_file(Layer("workspace .env", folder, home, folder / ".env", folder)))
    layers += [current, environment, flagged]

    data = _data_dir(layers, env)
    merged = merge(layers)
    if merged.held:  # only then is the list of trusted folders read
        merged = merge([_unrestricted(layer, data) for layer in layers])
    origins = dict(merged.origins)
    if choice.by not in ("flag", "setting"):
        origins["workspace"] = Origin("default", name=choice.named)
    return Loaded(
        settings=replace(Settings(**merged.values), workspace=choice.path, agent_data_dir=data),
        origins=origins,
        item_origins=merged.item_origins,
        workspace=choice,
        warnings=(*read.warnings, *(_held_back(held, data) for held in merged.held)),
        unused=tuple(read.unused),
        config_file=config_file,
        files=tuple(read.files),
    )


def _user_config(env: Mapping[str, str]) -> Path:
    path = paths.config_file(env)
    if env.get("LMAGENT_CONFIG") and str(path) != os.devnull and not os.path.isfile(path):
        fix = "correct it, or type: unset LMAGENT_CONFIG"
        raise ConfigError(f"LMAGENT_CONFIG names {path}, which is not a file", fix=fix)
    return path


def _named_json(place: Layer, read: LayerReader) -> Layer:
    path = place.path
    assert path is not None
    content = read_small(path)
    if content is None:
        raise ConfigError(f"there is no configuration file {path}", fix="name one: --config FILE, or leave it out")
    return read.config_json(place, content)


def _found_json(place: Layer, data: Path, read: LayerReader) -> Layer:
    """Return the layer of the workspace's `config.json`, if it is agent_computer's and the user trusts its content."""
    path, folder = place.path, place.base
    assert path is not None
    content = read_agent_json(path)
    if content is None:
        return place
    if not trusts(data, folder, path, content):
        known = is_trusted(data, folder)
        why = "has changed since you trusted the folder" if known else "is in a folder you do not trust"
        read.warnings.append(ConfigWarning(f"{path} is not read: it {why}", _trust_command(folder)))
        return place
    layer = read.config_json(place, content)
    entries = dict(layer.entries)
    if chosen := entries.pop("workspace", None):
        why = "the workspace is chosen before its own files are read; name it with -w, or the file with --config"
        read.unused.append(Unused(chosen.origin.name, chosen.origin.source, why))
    return replace(layer, entries=entries)


def _choose(layers: Sequence[Layer], flagged: Layer, cwd: Path, home: Path, read: LayerReader) -> WorkspaceChoice:
    """Choose the workspace; a choice by a file that the user may not expect is shown."""
    flag = flagged.entries.get("workspace")
    named = [layer.entries["workspace"] for layer in layers if "workspace" in layer.entries]
    if flag or not named:
        return choose_workspace(flag.value if flag else None, None, cwd, home)
    origin = named[-1].origin
    choice = choose_workspace(None, named[-1].value, cwd, home, str(origin))
    if origin.layer in ("current .env", "config.json") and choice.path != cwd:
        read.warnings.append(ConfigWarning(f"the workspace is {choice.path}, as {choice.named} says"))
    return choice


def _data_dir(layers: Sequence[Layer], env: Mapping[str, str]) -> Path:
    """Return the data folder; ConfigError if it cannot be used, before a command begins its work."""
    named = [layer.entries["agent_data_dir"] for layer in layers if "agent_data_dir" in layer.entries]
    data = Path(os.path.abspath(named[-1].value)) if named else paths.data_dir(env)
    what = f"the data folder {data}{f' ({named[-1].origin})' if named else ''}"
    there = next((place for place in (data, *data.parents) if place.exists()), data)
    is_needed = there == data or bool(named)  # a read-only home folder alone is no reason to refuse work
    if not there.is_dir() or (is_needed and not os.access(there, os.R_OK | os.W_OK | os.X_OK)):
        fix = "name a folder that you can write to: AGENT_DATA_DIR=FOLDER"
        raise ConfigError(f"{what} cannot be used: {there} is no folder that you can write to", fix=fix)
    return data


def _unrestricted(layer: Layer, data: Path) -> Layer:
    """Return the layer without its folder, and so without restrictions, if the user trusts its content."""
    if layer.folder is None or layer.path is None or not trusts(data, layer.folder, layer.path, layer.content):
        return layer
    return replace(layer, folder=None)


def _trust_command(folder: Path) -> str:
    from shlex import quote  # only if a value is held back

    return f"read the file, and if you agree with it type: lmagent config trust {quote(str(folder))}"


def _held_back(held: Held, data: Path) -> ConfigWarning:
    changed = "; the file has changed since you trusted the folder" if is_trusted(data, held.folder) else ""
    return ConfigWarning(f"{held.entry.origin} is held back: {held.reason}{changed}", _trust_command(held.folder))


class LayerReader:
    """Reads the places that set values, and collects the oddities.

    Each method returns a place with its entries; none if the place does not exist. It raises ConfigError if the place
    cannot be read, or a value is not allowed.
    """

    def __init__(self) -> None:
        self.warnings: list[ConfigWarning] = []
        self.unused: list[Unused] = []
        self.files: list[Path] = []

    def toml(self, place: Layer) -> Layer:
        if (content := self._content(place)) is None:
            return place
        table = _parse_toml(place.path, content)
        entries: dict[str, LayerEntry] = {}
        for key, value in table.items():
            setting = BY_NAME.get(key)
            if setting is None:
                if not (why := why_not_used(key.upper())):
                    meant = FIELD_OF.get(key.upper()) or closest(key.lower(), BY_NAME)
                    fix = f"did you mean {meant}? All settings: lmagent config" if meant else "see lmagent config"
                    raise ConfigError(f"{place.path}: there is no setting {key!r}", fix=fix)
                self.unused.append(Unused(key, str(place.path), why))
            elif not self._is_barred(place, setting):
                entries[key] = place.entry(setting, value, key)
        return replace(place, entries=entries, content=content)

    def env_file(self, place: Layer) -> Layer:
        """Read a `.env` file. Other programs' variables are ignored."""
        if (content := self._content(place)) is None:
            return place
        lines = list(parse_env(decode_env(content)))
        for line in lines:
            self._note(place, line)
        values = {line.name: line.value for line in lines if line.value is not None}
        return replace(place, entries=self._variables(place, values), content=content)

    def config_json(self, place: Layer, content: bytes) -> Layer:
        """Read agent_computer's `config.json`; see `compat` for its keys."""
        from lmagent.config.compat import parse_json, read_agent_computer  # few folders have one

        assert place.path is not None
        self.files.append(place.path)
        document = parse_json(place.path, content)
        if not isinstance(document, dict):
            raise ConfigError(f"{place.path} must hold one JSON object", fix="correct it")
        taken, left = read_agent_computer(cast("dict[str, Any]", document))
        self.unused += [Unused(key, str(place.path), why) for key, why in left]
        entries = {name: place.entry(BY_NAME[name], value, key) for key, name, value in taken}
        return replace(place, entries=entries, content=content)

    def environment(self, place: Layer, env: Mapping[str, str]) -> Layer:
        self.unused += [Unused(name, "the environment", why) for name in env if (why := why_not_used(name))]
        return replace(place, entries=self._variables(place, env))

    def flags(self, place: Layer, flags: Mapping[str, Any]) -> Layer:
        """Read the command line; a flag that is None was not given."""
        entries: dict[str, LayerEntry] = {}
        for name, value in flags.items():
            if value is not None:
                flag = BY_NAME[name].flag or f"--{name.replace('_', '-')}"
                entries[name] = place.entry(BY_NAME[name], value, flag, text=True)
        return replace(place, entries=entries)

    def _content(self, place: Layer) -> bytes | None:
        assert place.path is not None
        content = read_small(place.path)
        if content is not None:
            self.files.append(place.path)
        return content

    def _variables(self, place: Layer, values: Mapping[str, str]) -> dict[str, LayerEntry]:
        """Return the entries that variables make: a setting's own name wins over its aliases."""
        entries: dict[str, LayerEntry] = {}
        for setting in SETTINGS:
            for variable in setting.variables:
                text = values.get(variable)
                if text is None or not setting.is_given(text):
                    continue
                if not self._is_barred(place, setting):
                    entries[setting.name] = place.entry(setting, as_text(variable, text), variable, text=True)
                break
        return entries

    def _is_barred(self, place: Layer, setting: Setting) -> bool:
        """Return whether this place may never set the setting, and add a warning if so."""
        if place.folder is None:
            return False
        if setting.folder == "elsewhere":
            why = "it is only taken from your own configuration or the environment"
        elif setting.name == "workspace" and place.name in ("workspace config", "workspace .env"):
            why = "the workspace is chosen before its own files are read"
        else:
            return False
        self.warnings.append(ConfigWarning(f"{setting.name} in {place.path} is ignored: {why}"))
        return True

    def _note(self, place: Layer, line: EnvLine) -> None:
        """Note a known variable that is not used, and an invalid line that is meant for us."""
        why = why_not_used(line.name)
        is_ours = line.name in FIELD_OF or bool(why)
        if line.value is None and is_ours:
            text = f"{line.name} in {place.path} is not NAME=value, or its quote is not closed"
            self.warnings.append(ConfigWarning(text, "quote it: NAME='value'"))
        elif why:
            self.unused.append(Unused(line.name, str(place.path), why))
        elif not is_ours and line.name.startswith(("LLM_", "LMAGENT_")) and (meant := closest(line.name, FIELD_OF)):
            text = f"{line.name} in {place.path} is no setting"
            self.warnings.append(ConfigWarning(text, f"did you mean {meant}?"))


def _parse_toml(path: Path | None, content: bytes) -> dict[str, Any]:
    import tomllib  # only if there is a file to read

    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except ValueError as error:
        fix = 'write settings as: name = "text", name = 5 or name = true, in UTF-8'
        raise ConfigError(f"{path} is not valid TOML: {error}", fix=fix) from error
