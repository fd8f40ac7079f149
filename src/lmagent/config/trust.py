"""Trust: folders whose configuration files the user vouches for.

What is vouched for is what the files said at that moment, by their SHA-256: a repository that is pulled, or a model
that was talked into writing to `.env`, does not inherit the trust. The list lies in the user's data folder.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from lmagent.config.files import read_small, write_private
from lmagent.core.decoding import decode_json
from lmagent.core.errors import ConfigError

CONFIG_FILES = (".lmagent/config.toml", ".env", "config.json")
"""The files of a folder that settings are read from."""


class _Trusted(msgspec.Struct):
    version: int = 1
    folders: dict[str, dict[str, str]] = {}  # folder → file → SHA-256


def is_trusted(data_dir: Path, folder: Path) -> bool:
    """Whether the user trusts the folder; its files may have changed since.

    Raises:
        ConfigError: the list cannot be read.
    """
    return _canonical(folder) in _load(data_dir).folders


def vouches_for(data_dir: Path, folder: Path, file: str, content: bytes) -> bool:
    """Whether the user trusts the folder, and this file of it still says what it said then.

    Args:
        data_dir: the user's data folder.
        folder: the folder.
        file: one of `CONFIG_FILES`.
        content: what the file says now.

    Raises:
        ConfigError: the list cannot be read.
    """
    then = _load(data_dir).folders.get(_canonical(folder), {}).get(file)
    return then is not None and then == _digest(content)


def trust(data_dir: Path, folder: Path) -> tuple[str, ...]:
    """Trust the folder with its configuration files as they are now, and return those that it has.

    Raises:
        ConfigError: a file cannot be read, or the list cannot be written.
    """
    found = {name: _digest(content) for name in CONFIG_FILES if (content := _content(folder / name)) is not None}
    known = _load(data_dir)
    known.folders[_canonical(folder)] = found
    _save(data_dir, known)
    return tuple(found)


def untrust(data_dir: Path, folder: Path) -> bool:
    """Stop trusting the folder; False if it was not trusted.

    Raises:
        ConfigError: the list cannot be read or written.
    """
    known = _load(data_dir)
    if known.folders.pop(_canonical(folder), None) is None:
        return False
    _save(data_dir, known)
    return True


def trusted_folders(data_dir: Path) -> tuple[str, ...]:
    """All trusted folders, in the order of being trusted.

    Raises:
        ConfigError: the list cannot be read.
    """
    return tuple(_load(data_dir).folders)


def trust_file(data_dir: Path) -> Path:
    """Where the list is kept."""
    return data_dir / "trust.json"


def _content(path: Path) -> bytes | None:
    """Return the content of a configuration file; None if it does not exist or is another program's `config.json`."""
    if path.name != "config.json":
        return read_small(path)
    from lmagent.config.seeds import is_agent_computers

    try:
        content = read_small(path)
    except ConfigError:
        return None  # agent_computer's is small, and its user can read it
    return content if content is not None and is_agent_computers(content.decode("utf-8-sig", "replace")) else None


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


def _canonical(folder: Path) -> str:
    return os.path.realpath(folder)


def _digest(content: bytes) -> str:
    import hashlib  # loads OpenSSL; only needed where a folder wants more than it may

    return hashlib.sha256(content).hexdigest()
