"""Files: read small configuration files whole, and change them atomically, with the rest of their content unchanged."""

from __future__ import annotations

import io
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from lmagent.core.errors import ConfigError

MAX_BYTES = 1_000_000
"""A larger file is not a configuration file."""


def read_small(path: Path) -> bytes | None:
    """Return the content of a regular file; None if it does not exist, or is a folder or a pipe.

    Raises ConfigError if it cannot be read, or is too large to be a configuration file.
    """
    try:
        # Without O_NONBLOCK, opening a pipe of this name would wait for a writer for ever.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            content = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        fix = f"make it readable, or move it away: ls -l {path}"
        raise ConfigError(f"{path} cannot be read: {error.strerror}", fix=fix) from error
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_BYTES:,} bytes; it is no configuration file", fix="move it away")
    return content


def read_agent_json(path: Path) -> bytes | None:
    """Return the content of a `config.json` if it is agent_computer's; other programs have files of that name too."""
    try:
        content = read_small(path)
    except ConfigError:
        return None  # agent_computer's is small, and its user can read it
    return content if content is not None and re.search(rb'"agent"\s*:\s*\{', content) else None


def write_private(path: Path, text: str, *, sync: bool = True) -> None:
    """Replace a file atomically; only its owner can read it. A link is followed, so that it stays a link.

    Without `sync`, a failure of the machine may lose the new content and the old one.

    Raises ConfigError if it cannot be written; the old file is untouched.
    """
    target = Path(os.path.realpath(path))
    fresh = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh.unlink(missing_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(text.encode("utf-8", "surrogateescape"))
                file.flush()
                if sync:
                    os.fsync(descriptor)
            os.replace(fresh, target)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
    except OSError as error:
        fix = f"check the folder: ls -ld {target.parent}"
        raise ConfigError(f"{path} cannot be written: {error.strerror}", fix=fix) from error


def save_settings(path: Path, values: Mapping[str, Any]) -> None:
    """Set keys of a `config.toml`, or delete them (None); all else in it stays. The file is made if needed.

    Raises ConfigError if it is not valid TOML, or cannot be written.
    """
    import tomlkit  # slow to import, and only a change needs it

    content = read_small(path) or b""
    try:
        document = tomlkit.parse(content.decode("utf-8-sig"))
    except ValueError as error:
        raise ConfigError(f"{path} cannot be updated: {error}", fix="correct it, then try again") from error
    for name, value in values.items():
        if value is not None:
            document[name] = value
        elif name in document:
            del document[name]
    write_private(path, tomlkit.dumps(document))


def toml_of(value: Any) -> Any:
    """Return a setting's value for TOML, which has no null: "none" is read as no value."""
    if isinstance(value, tuple):
        return list(cast("tuple[str, ...]", value))
    return "none" if value is None else str(value) if isinstance(value, Path) else value


def save_env(path: Path, values: Mapping[str, str]) -> None:
    """Set variables in a `.env` file; other lines stay. The file is made if needed; only the owner can read it."""
    write_private(path, with_values(decode_env(read_small(path) or b""), values))


class EnvLine(NamedTuple):
    """A line of a `.env` file."""

    name: str  # empty for a comment
    value: str | None  # without quotes and escapes; None if the line is not a valid assignment
    text: str  # its source, with the blank lines above it


def decode_env(content: bytes) -> str:
    """Return the text: UTF-16 by its byte order mark (PowerShell writes it), else UTF-8 with odd bytes kept."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", "replace")
    return content.decode("utf-8-sig", "surrogateescape")


def parse_env(text: str) -> Iterator[EnvLine]:
    """Yield the lines of a `.env` file; invalid lines do not raise. A name's last assignment counts."""
    from dotenv.parser import parse_stream  # few folders have such a file

    for found in parse_stream(io.StringIO(text, newline="")):
        written = found.original.string
        name = re.match(r"\s*(?:export\s+)?([A-Za-z_][\w.-]*)", written)
        yield EnvLine(name[1] if name else "", None if found.error else found.value, written)


def with_values(text: str, values: Mapping[str, str]) -> str:
    """Return the text of a `.env` file with variables set, at its end; lines of other variables stay."""
    newline = "\r\n" if "\r\n" in text else "\n"
    kept = "".join(line.text for line in parse_env(text) if line.value is None or line.name not in values)
    begun = newline if kept and not kept.endswith(("\n", "\r")) else ""
    return kept + begun + "".join(f"{name}={quoted(value)}{newline}" for name, value in values.items())


def quoted(value: str) -> str:
    """Return a value quoted for `NAME=`, so that it is read back unchanged."""
    if re.fullmatch(r"[\w./:@%+,=-]*", value, re.ASCII):
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
