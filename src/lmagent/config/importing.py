"""Importing: moving in from the older systems. It says what it took, where to, and what it left, with the reason.

Taken: agent_computer's `config.json`, a `.env`, an `mcp.json` (`mcpServers`, or an editor's `servers`), a `cron.json`.
Settings go to the user's `config.toml`, secrets to the user's `.env` (readable by its owner only), the two JSON files
to the workspace's `.lmagent/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from lmagent.config.dotenv import decode_env, parse_env, save_env
from lmagent.config.fields import BY_NAME
from lmagent.config.files import read_small, write_private
from lmagent.config.lists import as_object, import_jobs, import_servers, parse_json
from lmagent.config.names import FIELD_OF, VARIABLES, as_text, why_not_used
from lmagent.config.seeds import read_agent_computer
from lmagent.config.settings import PLACEHOLDER_KEYS
from lmagent.config.toml import FlatValue, update_flat
from lmagent.config.values import is_given, read_value
from lmagent.core.errors import ConfigError

_ACCEPTED = "a .env file, agent_computer's config.json, an mcp.json or a cron.json"


class ImportReport(Struct, frozen=True):
    """What came of an import: pairs of what and where to, and of what and why not."""

    taken: tuple[tuple[str, str], ...]
    left: tuple[tuple[str, str], ...]


class Targets(Struct, frozen=True):
    """Where an import writes.

    Attributes:
        config_file: the user's `config.toml`.
        env_file: the user's `.env`, for secrets.
        workspace: the workspace that `mcp.json` and `cron.json` go to.
        home: the home folder, for `~` in paths.
    """

    config_file: Path
    env_file: Path
    workspace: Path
    home: Path


class Draft:
    """What an import will do: (what, setting, value) to take, (what, why) to leave.

    Args:
        base: the folder of the imported file, which its relative paths count from.
        home: the home folder.
    """

    def __init__(self, base: Path, home: Path) -> None:
        self.taken: list[tuple[str, str, Any]] = []
        self.left: list[tuple[str, str]] = []
        self._base = base.absolute()
        self._home = home

    def take(self, what: str, field: str, raw: Any, *, text: bool = False) -> None:
        """Take a value for a setting; one that is not allowed is left, with the reason."""
        try:
            value = read_value(BY_NAME[field], raw, text=text, base=self._base, home=self._home)
        except ValueError as error:
            self.leave(what, f"it {error}")
            return
        self.taken.append((what, field, value))

    def leave(self, what: str, why: str) -> None:
        """Leave something out."""
        self.left.append((what, why))


def import_file(path: Path, targets: Targets) -> ImportReport:
    """Take over a file of an older system.

    Raises:
        ConfigError: it cannot be read or is none of the files that can be taken, or a target cannot be written.
    """
    content = read_small(path)
    if content is None:
        raise ConfigError(f"{path} does not exist, or is not a file", fix=f"name {_ACCEPTED}")
    if path.suffix.lower() != ".json" and not content.lstrip().startswith((b"{", b"[")):
        return _settle(_read_variables(content, path, targets), targets)
    parsed = parse_json(path, content)
    document = as_object(parsed)
    folder = targets.workspace / ".lmagent"
    jobs = document.get("jobs", parsed)
    if isinstance(jobs, list):
        return ImportReport(*import_jobs(jobs, folder / "cron.json"))  # pyright: ignore[reportUnknownArgumentType]
    if servers := as_object(document.get("mcpServers")) or as_object(document.get("servers")):
        return ImportReport(*import_servers(servers, folder / "mcp.json"))
    if {"agent", "gateway", "model", "sessions", "reflection"} & document.keys():
        return _settle(_read_document(document, path, targets), targets)
    raise ConfigError(f"{path} is JSON, but nothing that can be taken over", fix=f"name {_ACCEPTED}")


def _read_document(document: dict[str, Any], path: Path, targets: Targets) -> Draft:
    """The settings that agent_computer's `config.json` sets."""
    draft = Draft(path.parent, targets.home)
    read = read_agent_computer(document, path.parent.absolute())
    for key, field, value in read.taken:
        draft.take(key, field, value)
    draft.left += [*read.left, *((key, f"it {why}") for key, why in read.wrong)]
    for key, meant in read.unknown:
        draft.leave(key, f"it is no key that lmagent knows{f'; did you mean {meant}?' if meant else ''}")
    return draft


def _read_variables(content: bytes, path: Path, targets: Targets) -> Draft:
    """The settings that a `.env` sets; a variable's own name wins over an alias, as it does in the loader."""
    parsed = parse_env(decode_env(content))
    values = parsed.values
    draft = Draft(path.parent, targets.home)
    draft.left += [(problem.name or f"line {problem.line}", problem.reason) for problem in parsed.problems]
    for name, text in values.items():
        field = BY_NAME.get(FIELD_OF.get(name, ""))
        if field is None:
            draft.leave(name, why_not_used(name) or "it is no setting of lmagent")
            continue
        given = [other for other in VARIABLES[field.name] if other in values and is_given(field, values[other])]
        winner = next((other for other in given if not field.secret or values[other] not in PLACEHOLDER_KEYS), "")
        winner = winner or next(iter(given), "")
        if name != winner:
            draft.leave(name, f"{winner} is set too, and goes before it" if winner else "it is empty")
            continue
        draft.take(name, field.name, as_text(name, text), text=True)
    return draft


def _settle(draft: Draft, targets: Targets) -> ImportReport:
    """Write what a draft holds: secrets first, so that a failure leaves no half of it in `config.toml`."""
    secrets: dict[str, str] = {}
    settings: dict[str, FlatValue] = {}
    taken: list[tuple[str, str]] = []
    for what, name, value in draft.taken:
        field = BY_NAME[name]
        if field.secret:
            if value in PLACEHOLDER_KEYS:
                draft.leave(what, "it is a placeholder that local servers accept")
                continue
            secrets[field.env] = value
            taken.append((what, f"{field.env} in {targets.env_file}"))
        else:
            settings[name] = _as_toml(value)
            taken.append((what, f"{name} in {targets.config_file}"))
    if secrets:
        save_env(targets.env_file, secrets)
    if settings:
        save_settings(targets.config_file, settings)
    return ImportReport(tuple(taken), tuple(draft.left))


def save_settings(path: Path, settings: Mapping[str, FlatValue | None]) -> None:
    """Set settings in a `config.toml`, made if need be, or take them out (None); all else in it stays as it is.

    Raises:
        ConfigError: the file cannot be updated.
    """
    content = read_small(path) or b""
    try:
        text = update_flat(content.decode("utf-8-sig"), settings)
    except ValueError as error:
        raise ConfigError(f"{path} cannot be updated: {error}", fix="correct it, then try again") from error
    write_private(path, text)


def _as_toml(value: Any) -> FlatValue:
    """TOML has no null: the settings that may be without a value read "none" as that."""
    if value is None:
        return "none"
    return str(value) if isinstance(value, Path) else value
