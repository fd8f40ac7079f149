"""Sources: make a layer from a `config.toml`, a `.env`, a `config.json`, the environment or the command line.

A definite error is a ConfigError that names the place; an oddity is a note.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from lmagent.config.files import EnvLine, decode_env, line_of, parse_env, read_small
from lmagent.config.layers import Layer, LayerEntry, Origin
from lmagent.config.names import FIELD_OF, as_text, closest, why_not_used
from lmagent.config.setting import Setting
from lmagent.config.settings import BY_NAME, SETTINGS
from lmagent.core.errors import ConfigError


class ConfigWarning(Struct, frozen=True):
    text: str
    fix: str = ""


class Unused(Struct, frozen=True):
    """A known variable or key that is set but not used, and why."""

    name: str
    source: str
    why: str


class Notes(Struct):
    warnings: list[ConfigWarning]
    unused: list[Unused]
    files: list[Path]


def read_toml(place: Layer, notes: Notes) -> Layer:
    """Return the layer of a `config.toml`; without entries if the file does not exist.

    Raises:
        ConfigError: it cannot be read, is not valid TOML, or has an unknown key or a value that is not allowed.
    """
    path, content = _file_of(place, notes)
    if content is None:
        return place
    text, table = _parse_toml(path, content)
    entries: dict[str, LayerEntry] = {}
    for key, value in table.items():
        setting, line = BY_NAME.get(key), line_of(text, key)
        if setting is None:
            if not (why := why_not_used(key.upper())):
                raise _unknown_key(path, line, key, value)
            notes.unused.append(Unused(key, str(path), why))
        elif not _is_barred(place, setting, notes):
            entries[key] = place.entry(setting, value, key, line)
    return replace(place, entries=entries, content=content)


def read_env_file(place: Layer, notes: Notes) -> Layer:
    """Return the layer of a `.env` file; without entries if it does not exist. Other programs' variables are ignored.

    Raises:
        ConfigError: it cannot be read, or one of our variables has a value that is not allowed.
    """
    path, content = _file_of(place, notes)
    if content is None:
        return place
    lines = list(parse_env(decode_env(content)))
    found = {line.name: line for line in lines if line.value is not None}
    notes.warnings += _oddities(path, lines)
    notes.unused += [Unused(name, str(path), why) for name in found if (why := why_not_used(name))]
    values = {name: cast("str", line.value) for name, line in found.items()}
    entries = _variables(place, values.get, lambda name: found[name].line, notes)
    return replace(place, entries=entries, content=content)


def read_config_json(place: Layer, content: bytes, notes: Notes) -> Layer:
    """Return the layer of agent_computer's `config.json`; see `compat` for its keys.

    Raises:
        ConfigError: it is not valid JSON, or a value is not allowed.
    """
    from lmagent.config.compat import as_object, parse_json, read_agent_computer  # few folders have one

    path = place.path
    assert path is not None
    notes.files.append(path)
    document = parse_json(path, content)
    text = content.decode("utf-8-sig", "replace")
    read = read_agent_computer(as_object(document))
    if not isinstance(document, dict):
        read.wrong.append(("the file", "must hold one JSON object"))
    for key, why in read.wrong:
        raise ConfigError(f"{Origin(place.name, str(path), key, line_of(text, key))} {why}", fix="correct it")
    notes.unused += [Unused(key, str(path), why) for key, why in read.left]
    for key, meant in read.misspelt:
        where = Origin(place.name, str(path), key, line_of(text, key))
        notes.warnings.append(ConfigWarning(f"{where} is no key that lmagent knows", f"did you mean {meant}?"))
    entries = {name: place.entry(BY_NAME[name], value, key, line_of(text, key)) for key, name, value in read.taken}
    return replace(place, entries=entries, content=content)


def read_environment(place: Layer, env: Mapping[str, str], notes: Notes) -> Layer:
    notes.unused += [Unused(name, "the environment", why) for name in env if (why := why_not_used(name))]
    return replace(place, entries=_variables(place, env.get, lambda _: 0, notes))


def read_flags(place: Layer, flags: Mapping[str, Any]) -> Layer:
    """Return the layer of the command line; a flag that is None was not given.

    Raises:
        ConfigError: a value is not allowed.
    """
    entries: dict[str, LayerEntry] = {}
    for name, value in flags.items():
        if value is not None:
            flag = BY_NAME[name].flag or f"--{name.replace('_', '-')}"
            entries[name] = place.entry(BY_NAME[name], value, flag, text=True)
    return replace(place, entries=entries)


def _file_of(place: Layer, notes: Notes) -> tuple[Path, bytes | None]:
    assert place.path is not None
    content = read_small(place.path)
    if content is not None:
        notes.files.append(place.path)
    return place.path, content


def _variables(
    place: Layer, get: Callable[[str], str | None], line_in: Callable[[str], int], notes: Notes
) -> dict[str, LayerEntry]:
    """Return the entries that variables make: a setting's own name wins over its aliases."""
    entries: dict[str, LayerEntry] = {}
    for setting in SETTINGS:
        for variable in setting.variables:
            text = get(variable)
            if text is None or not setting.is_given(text):
                continue
            if not _is_barred(place, setting, notes):
                value = as_text(variable, text)
                entries[setting.name] = place.entry(setting, value, variable, line_in(variable), text=True)
            break
    return entries


def _is_barred(place: Layer, setting: Setting, notes: Notes) -> bool:
    """Return whether this place may never set the setting, and add a warning if so."""
    if place.folder is None:
        return False
    if setting.folder == "elsewhere":
        why = "it is only taken from your own configuration or the environment"
    elif setting.name == "workspace" and place.name in ("workspace config", "workspace .env"):
        why = "the workspace is chosen before its own files are read"
    else:
        return False
    notes.warnings.append(ConfigWarning(f"{setting.name} in {place.path} is ignored: {why}"))
    return True


def _parse_toml(path: Path, content: bytes) -> tuple[str, dict[str, Any]]:
    import tomllib  # only if there is a file to read

    try:
        text = content.decode("utf-8-sig")
        return text, tomllib.loads(text)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}, line {line}: it is not UTF-8 text", fix="save the file as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"{path} is not valid TOML: {error}", fix='write settings as: name = "text", name = 5 or name = true'
        ) from error


def _unknown_key(path: Path, line: int, key: str, value: object) -> ConfigError:
    known, what = key.lower(), f"there is no setting {key!r}"
    if isinstance(value, dict):
        known = f"{key}_{next(iter(cast('dict[str, object]', value)), '')}"
        what = f"there is no section [{key}]; settings have no sections"
    meant = FIELD_OF.get(key.upper()) or closest(known, BY_NAME)
    fix = f"did you mean {meant}? All settings: lmagent config" if meant else "see all settings: lmagent config"
    return ConfigError(f"{path}, line {line}: {what}", fix=fix)


def _oddities(path: Path, lines: list[EnvLine]) -> list[ConfigWarning]:
    """Return warnings about invalid lines that are meant for us; a `.env` may hold other programs' lines too."""
    found: list[ConfigWarning] = []
    for line in lines:
        is_ours = line.name in FIELD_OF or bool(why_not_used(line.name))
        if line.value is None and is_ours:
            text = f"{path}, line {line.line}: it is not NAME=value, or its quote is not closed"
            found.append(ConfigWarning(text, "quote it: NAME='value'"))
        elif not is_ours and line.name.startswith(("LLM_", "LMAGENT_")) and (meant := closest(line.name, FIELD_OF)):
            found.append(
                ConfigWarning(f"{path}, line {line.line}: {line.name} is no setting", f"did you mean {meant}?")
            )
    return found
