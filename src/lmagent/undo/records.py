"""Records: what the manifest knows about a path, as a few bytes.

A workspace may have hundreds of thousands of files and two states of it are held at once, so a record is one `bytes`:
the signature (mode, size, mtime, ctime, inode, owner), then how the content was kept. Equal signatures mean a file that
did not change, which is not read again: nobody can put a ctime back. A file that changed in the instant in which it was
recorded could change again without a new signature (the "racy git" problem); its ctime is recorded as 0, which never
matches.
"""

from __future__ import annotations

import os
import stat as modes
import struct

from lmagent.core.changes import Kind, PathState

Record = bytes
Tree = dict[str, dict[str, Record]]
"""Folder path -> name -> record, all escaped; an empty folder has no entry of its own, only one in its parent."""

HEAD = struct.Struct("<IqqqQII")
WIDTH = HEAD.size
LINKED = b"L"
"""Behind the signature of a file whose content is kept by a hard link or a clone. After it come the first bytes of its
SHA-256; or nothing, where it was too much to be read; or the ctime at which it may have been changed since."""

SEALED = b"S"
"""The same for a file that was not read, and whose content never changes, whatever its mtime."""

MARK = 16
"""Bytes of a SHA-256 behind `LINKED`."""
_LINKS = (1, 1 + 8, 1 + MARK)
"""Lengths of what stands behind the signature of a linked file; a SHA-256 of its own has 32."""

_LONGEST = (1 << 63) - 1


def signature(found: os.stat_result) -> bytes:
    """Mode, size, mtime and ctime (ns), inode, user and group."""
    try:
        return HEAD.pack(
            found.st_mode,
            found.st_size,
            found.st_mtime_ns,
            found.st_ctime_ns,
            found.st_ino,
            found.st_uid,
            found.st_gid,
        )
    except struct.error:  # a time behind the year 2262; such a file is read every time
        mtime = max(-_LONGEST, min(_LONGEST, found.st_mtime_ns))
        return HEAD.pack(found.st_mode, found.st_size, mtime, 0, found.st_ino, found.st_uid, found.st_gid)


def unsettled(head: bytes) -> bytes:
    """The same signature, so that it matches no file."""
    mode, size, mtime, _, inode, user, group = HEAD.unpack(head)
    return HEAD.pack(mode, size, mtime, 0, inode, user, group)


def bare(found: os.stat_result) -> Record:
    """The record of a folder or of a special file: mode and owner alone, since the rest changes with what is in it."""
    return HEAD.pack(found.st_mode, 0, 0, 0, 0, found.st_uid, found.st_gid)


def is_kept(record: Record) -> bool:
    """Whether all there is to keep was kept."""
    return len(record) > WIDTH or not modes.S_ISREG(HEAD.unpack(record)[0])


def same_content(record: Record, head: bytes) -> bool:
    """Whether size, mtime and inode are the same: all that can be said about a file that may not be read."""
    _, size, mtime, _, inode, _, _ = HEAD.unpack(head)
    _, was, then, _, number, _, _ = HEAD.unpack(record[:WIDTH])
    return (size, mtime, inode) == (was, then, number)


def is_link(tail: bytes) -> bool:
    """Whether what stands behind a file's signature says that its content is kept by a link."""
    return len(tail) in _LINKS


def is_unread(tail: bytes) -> bool:
    """Whether it is kept by a link and was never read."""
    return is_link(tail) and len(tail) != 1 + MARK


def link_id(inode: int, size: int, mtime: int | None, mark: str = "") -> str:
    """The id of a content that is kept by a link; see `objects`. No mtime stands for any."""
    time = "any" if mtime is None else format(mtime & 0xFFFF_FFFF_FFFF_FFFF, "x")
    return f"link:{inode:x}-{size:x}-{time}{mark and '-'}{mark}"


def content_id(record: Record) -> str:
    """The id of a file's kept content; empty where there is none."""
    mode, size, mtime, _, inode, _, _ = HEAD.unpack(record[:WIDTH])
    tail = record[WIDTH:]
    if not tail or not modes.S_ISREG(mode):
        return ""
    if is_link(tail):
        timeless = len(tail) == 1 + MARK or tail[:1] == SEALED
        return link_id(inode, size, None if timeless else mtime, tail[1:].hex())
    return tail.hex()


def hash_of(content: str) -> str:
    """What an id says of the content itself, the first half of its SHA-256; empty where it was never read."""
    if content.startswith("link:"):
        mark = content.rpartition("-")[2]
        return mark if len(mark) == 2 * MARK else ""
    return content[: 2 * MARK]


def equal_contents(one: str, other: str) -> bool | None:
    """Whether two ids stand for the same content; None where they do not tell."""
    if one and one == other:
        return True
    left, right = hash_of(one), hash_of(other)
    return left == right if left and right else None


def state(record: Record | None) -> PathState | None:
    """The record in the words of the port."""
    if record is None:
        return None
    mode, size, mtime, _, _, user, group = HEAD.unpack(record[:WIDTH])
    kind, bits = kind_of(mode), modes.S_IMODE(mode)
    if kind == "file":
        return PathState(kind, bits, content_id(record), size, mtime, uid=user, gid=group)
    if kind == "link":
        return PathState(kind, 0, "", 0, mtime, record[WIDTH:].decode(), user, group)
    return PathState(kind, bits, uid=user, gid=group)


def kind_of(mode: int) -> Kind:
    """The kind of a path from its `st_mode`."""
    if modes.S_ISREG(mode):
        return "file"
    if modes.S_ISDIR(mode):
        return "folder"
    return "link" if modes.S_ISLNK(mode) else "other"
