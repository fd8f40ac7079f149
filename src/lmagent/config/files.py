"""Files: reading small configuration files, and writing them whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from lmagent.core.errors import ConfigError

MAX_BYTES = 1_000_000
"""A configuration file is small; a larger one is something else."""


def read_small(path: Path) -> bytes | None:
    """The content of a regular file, or None where there is none (a folder or a pipe of that name counts as none).

    Raises:
        ConfigError: it cannot be read, or is too large to be a configuration file.
    """
    try:
        # Without O_NONBLOCK, opening a pipe of this name would wait for a writer for ever.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if os.path.isdir(path):
            return None
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}", fix=f"make it readable, or move it away: ls -l {path}"
        ) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", fix=f"look at it: ls -l {path}") from error
    finally:
        os.close(descriptor)
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_BYTES:,} bytes; it is no configuration file", fix="move it away")
    return content


def write_private(path: Path, text: str) -> None:
    """Replace a file in one step; only its owner can read it. A link is followed, so that it stays one.

    Raises:
        ConfigError: it cannot be written; the old file is untouched.
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
                os.fsync(descriptor)
            os.replace(fresh, target)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}", fix=f"check the folder: ls -ld {target.parent}"
        ) from error
