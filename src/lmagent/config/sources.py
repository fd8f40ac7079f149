"""Sources: one layer out of a `config.toml`, a `.env`, the environment or the command line.

What cannot be right is a ConfigError that names the place; what is merely odd is a note.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lmagent.config.fields import BY_NAME, FIELDS, Field
from lmagent.config.files import read_small
from lmagent.config.layers import Entry, Layer, LayerName, Origin
from lmagent.config.names import FIELD_OF, VARIABLES, as_text, closest, why_not_used
from lmagent.config.values import is_given, read_value
from lmagent.core.errors import ConfigError

if TYPE_CHECKING:
    from lmagent.config.dotenv import EnvFile


class ConfigWarning(Struct, frozen=True):
    """Something the user should know; nothing failed. `fix` is what to type."""

    text: str
    fix: str = ""


class Unused(Struct, frozen=True):
    """A variable of an older system that is set and has no meaning here (yet), and why."""

    name: str
    source: str
    why: str


class Notes(Struct):
    """What is noticed while the layers are read."""

    warnings: list[ConfigWarning]
    unused: list[Unused]
    files: list[Path]


class Place(Struct, frozen=True):
    """Where a layer is read from.

    Attributes:
        name: the layer.
        base: the folder that relative paths count from.
        home: the home folder.
        path: the file, if it is one.
        folder: the folder whose file it is, if it is not the user's own.
    """

    name: LayerName
    base: Path
    home: Path
    path: Path | None = None
    folder: Path | None = None

    def layer(self, entries: Mapping[str, Entry], content: bytes = b"") -> Layer:
        """The layer of this place."""
        inside = self.path.relative_to(self.folder).as_posix() if self.path and self.folder else ""
        return Layer(self.name, entries, self.folder, inside, content)


def read_toml(place: Place, notes: Notes) -> Layer:
    """The layer of a `config.toml`; without entries where there is none.

    Raises:
        ConfigError: it cannot be read, is no TOML, has an unknown key or a value that is not allowed.
    """
    path = place.path
    content = read_small(path) if path else None
    if path is None or content is None:
        return place.layer({})
    from lmagent.config.toml import line_of  # most people need no file

    notes.files.append(path)
    text, table = _parse_toml(path, content)
    entries: dict[str, Entry] = {}
    for key, value in table.items():
        line = line_of(text, key) or 0
        field = BY_NAME.get(key)
        if field is None:
            if not (why := why_not_used(key.upper())):
                raise _unknown_key(path, line, key, value)
            notes.unused.append(Unused(key, str(path), why))
        elif not _is_barred(place, field, notes):
            origin = Origin(place.name, str(path), key, line)
            entries[key] = Entry(_value(field, value, origin, place, text=False), origin)
    return place.layer(entries, content)


def read_env_file(place: Place, notes: Notes) -> Layer:
    """The layer of a `.env` file; without entries where there is none. Variables of other programs are left alone.

    Raises:
        ConfigError: it cannot be read, or one of our variables has a value that is not allowed.
    """
    path = place.path
    content = read_small(path) if path else None
    if path is None or content is None:
        return place.layer({})
    from lmagent.config.dotenv import decode_env, parse_env  # few folders have one

    notes.files.append(path)
    parsed = parse_env(decode_env(content))
    values = parsed.values
    _note_oddities(parsed, path, notes)
    notes.unused += [Unused(name, str(path), why) for name in values if (why := why_not_used(name))]
    return place.layer(read_variables(place, values.get, parsed.lines, notes), content)


def read_config_json(place: Place, content: bytes, notes: Notes) -> Layer:
    """The layer of agent_computer's `config.json`; see `seeds` for its keys.

    Raises:
        ConfigError: it is no JSON, or a value is not allowed.
    """
    from lmagent.config.lists import as_object, parse_json
    from lmagent.config.seeds import line_of, read_agent_computer

    path = place.path
    assert path is not None
    notes.files.append(path)
    document = parse_json(path, content)
    text = content.decode("utf-8-sig", "replace")
    read = read_agent_computer(as_object(document), place.base)
    if not isinstance(document, dict):
        read.wrong.append(("the file", "must hold one JSON object"))
    for key, why in read.wrong:
        raise ConfigError(f"{Origin(place.name, str(path), key, line_of(text, key))} {why}", fix="correct it")
    notes.unused += [Unused(key, str(path), why) for key, why in read.left]
    for key, meant in read.unknown:
        if meant:
            where = Origin(place.name, str(path), key, line_of(text, key))
            notes.warnings.append(ConfigWarning(f"{where} is no key that lmagent knows", f"did you mean {meant}?"))
        else:
            notes.unused.append(Unused(key, str(path), "it is no key that lmagent knows"))
    entries: dict[str, Entry] = {}
    for key, name, value in read.taken:
        origin = Origin(place.name, str(path), key, line_of(text, key))
        entries[name] = Entry(_value(BY_NAME[name], value, origin, place, text=False), origin)
    return place.layer(entries, content)


def read_environment(place: Place, env: Mapping[str, str], notes: Notes) -> Layer:
    """The layer of the environment.

    Raises:
        ConfigError: one of our variables has a value that is not allowed.
    """
    notes.unused += [Unused(name, "the environment", why) for name in env if (why := why_not_used(name))]
    return place.layer(read_variables(place, env.get, {}, notes))


def read_flags(place: Place, flags: Mapping[str, Any]) -> Layer:
    """The layer of the command line; a flag that is None was not given.

    Raises:
        ConfigError: a value is not allowed.
    """
    entries: dict[str, Entry] = {}
    for name, value in flags.items():
        if value is None:
            continue
        field = BY_NAME[name]
        origin = Origin(place.name, "", field.flag or f"--{name.replace('_', '-')}")
        entries[name] = Entry(_value(field, value, origin, place, text=isinstance(value, str)), origin)
    return place.layer(entries)


def read_variables(
    place: Place, get: Callable[[str], str | None], lines: Mapping[str, int], notes: Notes
) -> dict[str, Entry]:
    """The entries that variables make: a setting's own name first, then its aliases."""
    entries: dict[str, Entry] = {}
    for field in FIELDS:
        for variable in VARIABLES[field.name]:
            text = get(variable)
            if text is None or not is_given(field, text):
                continue
            if not _is_barred(place, field, notes):
                origin = Origin(place.name, str(place.path or ""), variable, lines.get(variable, 0))
                entries[field.name] = Entry(_value(field, as_text(variable, text), origin, place, text=True), origin)
            break
    return entries


def _value(field: Field, raw: object, origin: Origin, place: Place, *, text: bool) -> Any:
    try:
        return read_value(field, raw, text=text, base=place.base, home=place.home)
    except ValueError as error:
        default = field.default
        example = f", for example {default}" if default not in (None, "", ()) and not field.secret else ""
        raise ConfigError(f"{origin} {error}", fix=f"correct it{example}, or leave it out") from error


def _is_barred(place: Place, field: Field, notes: Notes) -> bool:
    """Whether the setting makes no sense in this place, trusted or not; then it is noted and left out."""
    if place.folder is None:
        return False
    if field.folder == "elsewhere":
        why = "it is only taken from your own configuration or the environment"
    elif field.name == "workspace" and place.name in ("workspace config", "workspace .env"):
        why = "the workspace is chosen before its own files are read"
    else:
        return False
    notes.warnings.append(ConfigWarning(f"{field.name} in {place.path} is ignored: {why}"))
    return True


def _parse_toml(path: Path, content: bytes) -> tuple[str, dict[str, Any]]:
    import tomllib  # only where there is a file to read

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
    where = f"{path}, line {line}" if line else str(path)
    inner = next(iter(value), "") if isinstance(value, dict) else ""  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if FIELD_OF.get(key.upper()):
        meant = FIELD_OF[key.upper()]
    else:
        known = list(BY_NAME)
        meant = closest(f"{key}_{inner}", known) if inner else ""
        meant = meant or closest(key.lower(), known)
    if inner:
        return ConfigError(
            f"{where}: there is no section [{key}]; settings stand alone, without sections",
            fix=f"write {meant} = …" if meant else "see all settings: lmagent config",
        )
    return ConfigError(
        f"{where}: there is no setting {key!r}",
        fix=f"did you mean {meant}? All settings: lmagent config" if meant else "see all settings: lmagent config",
    )


def _note_oddities(parsed: EnvFile, path: Path, notes: Notes) -> None:
    """Lines that seem to be about a setting and were not understood; a `.env` may hold another program's lines too."""
    for problem in parsed.problems:
        if problem.name in FIELD_OF or why_not_used(problem.name):
            notes.warnings.append(
                ConfigWarning(f"{path}, line {problem.line}: {problem.reason}", "quote it: NAME='value'")
            )
    for name in parsed.values:
        if not name.startswith(("LLM_", "LMAGENT_")) or name in FIELD_OF or why_not_used(name):
            continue
        if meant := closest(name, list(FIELD_OF)):
            line = parsed.lines[name]
            notes.warnings.append(ConfigWarning(f"{path}, line {line}: {name} is no setting", f"did you mean {meant}?"))
