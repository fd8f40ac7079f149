"""Reads small files of a workspace for the program itself; refuses links and special files.

A workspace may come from a stranger. A link in it would send any file of the user's to the model, and opening a FIFO
would wait for ever.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from msgspec import Struct

from lmagent.tools.beneath import open_by_walking
from lmagent.tools.paths import Parts

_OBSTACLES = {
    errno.ELOOP: "a symbolic link",
    errno.ENOTDIR: "a symbolic link, or no folder, or below one of these",
    errno.ENXIO: "a special file",
}


class Plain(Struct, frozen=True):
    """The first characters of a file, and whether there are more."""

    text: str
    more: bool


class NotPlain(Exception):
    """The path exists and is not read; `args[0]` is its kind, as in "a symbolic link"."""


def read_plain(root: Path, parts: Parts, limit: int) -> Plain | None:
    """Return the first `limit` characters of a regular file beneath a folder; None if it does not exist.

    Raises NotPlain.
    """
    descriptor = _open(root, parts, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    if descriptor is None:
        return None
    try:
        found, data, wanted = os.fstat(descriptor), bytearray(), 4 * limit + 4  # a character has 4 bytes at most
        if not stat.S_ISREG(found.st_mode):
            raise NotPlain("a folder" if stat.S_ISDIR(found.st_mode) else "a special file")
        while len(data) < wanted and (piece := os.read(descriptor, wanted - len(data))):
            data += piece
    except OSError as error:
        raise NotPlain(f"not readable ({error.strerror})") from None
    finally:
        os.close(descriptor)
    text = data.decode("utf-8", "replace")
    return Plain(text[:limit], len(text) > limit or found.st_size > len(data))


def names_in(root: Path, parts: Parts) -> list[str]:
    """Return the names in a folder beneath another one, in order; an empty list if it does not exist.

    Raises NotPlain.
    """
    descriptor = _open(root, parts, os.O_RDONLY | os.O_DIRECTORY)
    if descriptor is None:
        return []
    try:
        return sorted(os.listdir(descriptor))
    finally:
        os.close(descriptor)


def _open(root: Path, parts: Parts, flags: int) -> int | None:
    try:
        base = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return open_by_walking(base, parts, flags)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NotPlain(_OBSTACLES.get(error.errno or 0, f"not readable ({error.strerror})")) from None
    finally:
        os.close(base)
