"""Trust: the folders whose configuration files the user trusts.

Trust is in the files' content at that moment, by SHA-256: content from a later pull, or written to `.env` by a
manipulated model, is not trusted. The list is in the user's data folder.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from lmagent.config.files import read_agent_json, read_small, write_private
from lmagent.core.decoding import decode_json
from lmagent.core.errors import ConfigError

MCP_FILES = (".lmagent/mcp.json", ".mcp.json", ".vscode/mcp.json")
"""A workspace's files that may name MCP servers; the first is our own."""

HOOK_FILES = (".lmagent/hooks.json", ".claude/settings.json", ".claude/settings.local.json")
"""A workspace's files that may name hooks; the first is our own."""


class _Trusted(msgspec.Struct):
    version: int = 1
    folders: dict[str, dict[str, str]] = {}  # folder → file → SHA-256


def is_trusted(data_dir: Path, folder: Path) -> bool:
    """Return whether the user trusts the folder; its files may have changed since."""
    return os.path.realpath(folder) in _load(data_dir).folders


def trusts(data_dir: Path, folder: Path, file: Path, content: bytes) -> bool:
    """Return whether the user trusts the folder, and its file has the same content as then."""
    then = _load(data_dir).folders.get(os.path.realpath(folder), {}).get(file.relative_to(folder).as_posix())
    return then is not None and then == _digest(content)


def trust(data_dir: Path, folder: Path) -> tuple[str, ...]:
    """Trust the folder with the present content of its configuration files; return their names."""
    names = (".lmagent/config.toml", ".env", *MCP_FILES, *HOOK_FILES)
    contents = {name: read_small(folder / name) for name in names}
    contents["config.json"] = read_agent_json(folder / "config.json")
    found = {name: _digest(content) for name, content in contents.items() if content is not None}
    known = _load(data_dir)
    known.folders[os.path.realpath(folder)] = found
    _save(data_dir, known)
    return tuple(found)


def untrust(data_dir: Path, folder: Path) -> bool:
    """Stop trusting the folder; return False if it was not trusted."""
    known = _load(data_dir)
    if known.folders.pop(os.path.realpath(folder), None) is None:
        return False
    _save(data_dir, known)
    return True


def trust_file(data_dir: Path) -> Path:
    return data_dir / "trust.json"


def _load(data_dir: Path) -> _Trusted:
    path = trust_file(data_dir)
    content = read_small(path)
    if content is None:
        return _Trusted()
    try:
        return decode_json(content, _Trusted)
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"the list of trusted folders, {path}, is damaged: {error}",
            fix=f"delete it (rm {path}) and trust your folders again: lmagent config trust",
        ) from error


def _save(data_dir: Path, known: _Trusted) -> None:
    write_private(trust_file(data_dir), msgspec.json.format(msgspec.json.encode(known), indent=2).decode() + "\n")


def _digest(content: bytes) -> str:
    import hashlib  # loads OpenSSL, and only a folder with restricted settings needs it

    return hashlib.sha256(content).hexdigest()
