"""Content: the files that a backup holds, and how a file of settings is written without its keys.

Of the user's data only the files named here are taken: a new kind of file could hold a key. Indexes, caches and logs
are made again; trust, logins and the page's token belong to one machine; models and the copies that undo needs are
large.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, cast

from msgspec import Struct

from lmagent.config.files import read_small
from lmagent.config.paths import config_dir
from lmagent.config.settings import SETTINGS
from lmagent.core.errors import ConfigError

Part = Literal["workspace", "data", "config"]
"""The roots of the files: the workspace's `.lmagent`, the user's data folder, the user's configuration folder."""

REPLACED = "replaced"
"""The folder, in the root of a part, of the files that a restore has replaced."""

_DATA = ("memory", "models.json", "history")
_CONFIG = ("config.toml", "mcp.json", "hooks.json", "commands", "agents", "skills", "AGENTS.md", "SOUL.md", "USER.md")
_NOT_OF_WORKSPACES = frozenset({"logs", "spill", "scratch", "cache", ".gitignore", REPLACED})
_TEMPORARY = (".lock", ".sqlite", ".sqlite-wal", ".sqlite-shm", ".db", ".db-wal", ".db-shm", ".new", ".tmp")
_NOWHERE = ("lock", ".env")
_KEYS_OF_SERVERS = ("env", "headers", "oauth")


class BackupFile(Struct, frozen=True):
    """A file for a backup. `name` is its path below the root of its part, with "/"."""

    part: Part
    name: str
    path: Path

    @property
    def entry(self) -> str:
        return f"{self.part}/{self.name}"


def roots(workspace: Path, data: Path, env: Mapping[str, str]) -> dict[Part, Path]:
    """Return the folder of each part on this machine."""
    return {"workspace": workspace / ".lmagent", "data": data, "config": config_dir(env)}


def sources(places: Mapping[Part, Path]) -> Iterator[BackupFile]:
    """Yield the files that are there, sorted by name; links are left out. Raise OSError for an unreadable folder."""
    for part, root in places.items():
        for path in _files(root):
            file = BackupFile(part, path.relative_to(root).as_posix(), path)
            if belongs(file.entry):
                yield file


def _files(root: Path) -> Iterator[Path]:
    def fail(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    for folder, folders, names in os.walk(root, onerror=fail):  # it follows no links
        folders.sort()
        yield from (path for name in sorted(names) if (path := Path(folder, name)).is_file() and not path.is_symlink())


def belongs(entry: str) -> bool:
    """Return whether a backup holds a file of this name: one that is made does not take others, and one that is
    restored is refused for them."""
    part, *names = entry.split("/")
    if not names or {"", ".", ".."} & {*names} or names[-1] in _NOWHERE or names[-1].endswith(_TEMPORARY):
        return False
    first = names[0]
    match part:
        case "workspace":
            return first not in _NOT_OF_WORKSPACES
        case "data":
            return first in _DATA
        case "config":
            return first in _CONFIG
        case _:
            return False


def without_keys(name: str, path: Path) -> bytes | None:
    """Return a file of settings without its keys; None for another file. `name` as in `BackupFile`.

    Raise ConfigError if it cannot be read as what it should be: its keys could not be found then.
    """
    if name not in ("config.toml", "mcp.json"):
        return None
    content = read_small(path) or b""
    try:
        return _toml(content) if name == "config.toml" else _servers(content)
    except ValueError as error:
        fix = "correct the file, then try again"
        raise ConfigError(f"the keys in {path} cannot be left out: {error}", fix=fix) from error


def _toml(content: bytes) -> bytes:
    import tomlkit  # slow to import

    document = tomlkit.parse(content.decode("utf-8-sig"))
    for setting in SETTINGS:
        if setting.secret and setting.name in document:
            del document[setting.name]
    return tomlkit.dumps(document).encode()


def _servers(content: bytes) -> bytes:
    document: Any = json.loads(content.decode("utf-8-sig") or "{}")
    for servers in _values(document):
        for entry in _values(servers):
            for name in _KEYS_OF_SERVERS:
                if isinstance(entry, dict) and name in entry:
                    entry[name] = _blank(entry[name])
    return json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n"


def _blank(values: Any) -> Any:
    return dict.fromkeys(cast("dict[str, Any]", values), "") if isinstance(values, dict) else ""


def _values(table: Any) -> list[Any]:
    return [*cast("dict[str, Any]", table).values()] if isinstance(table, dict) else []
