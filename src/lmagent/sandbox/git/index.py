"""Reads the gitlinks in git's index: the folders in which a `git status` of the outer repository runs git again.

The format is that of `gitformat-index(5)`, versions 2 to 4, with SHA-1 and SHA-256.
"""

from __future__ import annotations

_HEADER = 12
_FIXED = 40
_GITLINK = 0xE000
_EXTENDED = 0x4000


class IndexDamagedError(ValueError):
    """Git could not read the index."""


def gitlinks(data: bytes) -> frozenset[str]:
    """Return the paths of its gitlinks, relative to the worktree.

    Raises:
        IndexDamagedError: it is not an index, or of a later version.
    """
    if not data:
        return frozenset()
    try:
        return _gitlinks(data, 20)
    except IndexDamagedError:
        return _gitlinks(data, 32)


def _gitlinks(data: bytes, hash_bytes: int) -> frozenset[str]:
    version, count = int.from_bytes(data[4:8], "big"), int.from_bytes(data[8:12], "big")
    if data[:4] != b"DIRC" or version not in (2, 3, 4):
        raise IndexDamagedError("no index, or of an unknown version")
    found: set[str] = set()
    at, end, name = _HEADER, len(data) - hash_bytes, b""
    flags_at = _FIXED + hash_bytes
    for _ in range(count):
        start, flags = at, int.from_bytes(data[at + flags_at : at + flags_at + 2], "big")
        at += flags_at + (4 if flags & _EXTENDED else 2)
        strip = 0
        if version == 4:
            strip, at = _number(data, at)
            if strip > len(name):
                raise IndexDamagedError("a name that takes more from the one before than it has")
        stop = data.find(b"\0", at, end)
        if stop < 0:
            raise IndexDamagedError("ends too early")
        if version == 4:
            name, at = name[: len(name) - strip] + data[at:stop], stop + 1
        else:
            name, at = data[at:stop], start + (stop - start + 8) // 8 * 8
        if not name:
            raise IndexDamagedError("an entry without a name")
        if int.from_bytes(data[start + 24 : start + 28], "big") == _GITLINK:
            found.add(name.decode("utf-8", "surrogateescape"))
    if at > end:
        raise IndexDamagedError("ends too early")
    return frozenset(found)


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Read git's variable-width number: seven bits a byte, and each further byte adds one."""
    value = 0
    for offset in range(at, min(at + 10, len(data))):
        byte = data[offset]
        value = (value << 7) | (byte & 0x7F)
        if not byte & 0x80:
            return value, offset + 1
        value += 1
    raise IndexDamagedError("a number without an end")
