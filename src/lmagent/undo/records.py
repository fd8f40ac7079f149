"""Records: the manifest's knowledge of a path, as a few bytes.

A workspace may have hundreds of thousands of files and two states of it are held at once, so a record is one `bytes`:
the signature (mode, size, mtime, ctime, inode, owner), then how the content was kept. Equal signatures mean a file that
did not change, and is not read again: no program can put a ctime back. A file that changed in the instant in which it
was recorded could change again without a new signature (the "racy git" problem); its ctime is recorded as 0, which
never matches.
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
"""Follows the signature of a file whose content is kept by a hard link or a clone."""

SEALED = b"S"
"""The same for a file whose content never changes, so that its mtime does not matter."""

_LONGEST = (1 << 63) - 1


def signature(found: os.stat_result) -> bytes:
    """Return mode, size, mtime and ctime (ns), inode, user and group."""
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
    except struct.error:  # a time after the year 2262; such a file is read every time
        mtime = max(-_LONGEST, min(_LONGEST, found.st_mtime_ns))
        return HEAD.pack(found.st_mode, found.st_size, mtime, 0, found.st_ino, found.st_uid, found.st_gid)


def unsettled(head: bytes) -> bytes:
    """Return the signature changed so that it matches no file."""
    mode, size, mtime, _, inode, user, group = HEAD.unpack(head)
    return HEAD.pack(mode, size, mtime, 0, inode, user, group)


def bare(found: os.stat_result) -> Record:
    """Return the record of a folder or special file: mode and owner alone, since a folder's times vary."""
    return HEAD.pack(found.st_mode, 0, 0, 0, 0, found.st_uid, found.st_gid)


def is_kept(record: Record) -> bool:
    """Return whether the content, if the path has one, was kept."""
    return len(record) > WIDTH or not modes.S_ISREG(HEAD.unpack(record)[0])


def same_content(record: Record, head: bytes) -> bool:
    """Return whether size, mtime and inode are the same, for a file that may not be read."""
    _, size, mtime, _, inode, _, _ = HEAD.unpack(head)
    _, was, then, _, number, _, _ = HEAD.unpack(record[:WIDTH])
    return (size, mtime, inode) == (was, then, number)


def is_link(tail: bytes) -> bool:
    return tail in (LINKED, SEALED)


def link_id(inode: int, size: int, mtime: int | None) -> str:
    """Return the id of a content that is kept by a link; see `objects`. Without an mtime, every mtime is right."""
    time = "any" if mtime is None else format(mtime & 0xFFFF_FFFF_FFFF_FFFF, "x")
    return f"link:{inode:x}-{size:x}-{time}"


def content_id(record: Record) -> str:
    """Return the id of a file's kept content; empty if it was not kept."""
    mode, size, mtime, _, inode, _, _ = HEAD.unpack(record[:WIDTH])
    tail = record[WIDTH:]
    if not tail or not modes.S_ISREG(mode):
        return ""
    if is_link(tail):
        return link_id(inode, size, None if tail == SEALED else mtime)
    return tail.hex()


def equal_contents(one: str, other: str) -> bool | None:
    """Return whether two ids are of the same content; None if the ids do not show it, as those of links."""
    if one and one == other:
        return True
    return None if not one or not other or "link:" in (one[:5], other[:5]) else False


def state(record: Record | None) -> PathState | None:
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
    if modes.S_ISREG(mode):
        return "file"
    if modes.S_ISDIR(mode):
        return "folder"
    return "link" if modes.S_ISLNK(mode) else "other"
