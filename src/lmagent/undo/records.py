"""Records: what the manifest knows about a path, as a few bytes.

A workspace may have hundreds of thousands of files and two states of it are held at once, so a record is one `bytes`:
the signature (mode, size, mtime, ctime, inode), then how the content was kept. Equal signatures mean an unchanged file,
which is not read again. A file that changed in the instant in which it was recorded could change again without a new
signature (the "racy git" problem); its ctime is recorded as 0, which never matches.
"""

from __future__ import annotations

import os
import stat as modes
import struct

from lmagent.core.changes import Kind, PathState

Record = bytes
Tree = dict[str, dict[str, Record]]
"""Folder path -> name -> record, all escaped; an empty folder has no entry of its own, only one in its parent."""

HEAD = struct.Struct("<IqqqQ")
WIDTH = HEAD.size
LINKED = b"L"
"""Behind the signature of a file whose content is kept by a hard link or a clone, under an id made of the signature."""

SEALED = b"S"
"""The same for a file whose content never changes, whatever its mtime."""

_LONGEST = (1 << 63) - 1


def signature(found: os.stat_result) -> bytes:
    """Mode, size, mtime and ctime (ns), inode."""
    try:
        return HEAD.pack(found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
    except struct.error:  # a time behind the year 2262; such a file is read every time
        mtime = max(-_LONGEST, min(_LONGEST, found.st_mtime_ns))
        return HEAD.pack(found.st_mode, found.st_size, mtime, 0, found.st_ino)


def unsettled(head: bytes) -> bytes:
    """The same signature, so that it matches no file."""
    mode, size, mtime, _, inode = HEAD.unpack(head)
    return HEAD.pack(mode, size, mtime, 0, inode)


def bare(mode: int) -> Record:
    """The record of a folder or of a special file: its mode alone, since the rest changes with what is in it."""
    return HEAD.pack(mode, 0, 0, 0, 0)


def is_kept(record: Record) -> bool:
    """Whether all there is to keep was kept."""
    return len(record) > WIDTH or not modes.S_ISREG(HEAD.unpack(record)[0])


def same_content(record: Record, head: bytes) -> bool:
    """Whether size, mtime and inode are the same: all that can be said about a file that may not be read."""
    _, size, mtime, _, inode = HEAD.unpack(head)
    _, was, then, _, number = HEAD.unpack(record[:WIDTH])
    return (size, mtime, inode) == (was, then, number)


def link_id(inode: int, size: int, mtime: int | None) -> str:
    """The id of a content that is kept without reading it; see `objects`. No mtime stands for any."""
    return f"link:{inode:x}-{size:x}-{'any' if mtime is None else format(mtime & 0xFFFF_FFFF_FFFF_FFFF, 'x')}"


def content_id(record: Record) -> str:
    """The id of a file's kept content; empty where there is none."""
    mode, size, mtime, _, inode = HEAD.unpack(record[:WIDTH])
    tail = record[WIDTH:]
    if not tail or not modes.S_ISREG(mode):
        return ""
    if tail in (LINKED, SEALED):
        return link_id(inode, size, mtime if tail == LINKED else None)
    return tail.hex()


def state(record: Record | None) -> PathState | None:
    """The record in the words of the port."""
    if record is None:
        return None
    mode, size, mtime, _, _ = HEAD.unpack(record[:WIDTH])
    kind, bits = kind_of(mode), modes.S_IMODE(mode)
    if kind == "file":
        return PathState(kind, bits, content_id(record), size, mtime)
    if kind == "link":
        return PathState(kind, 0, "", 0, mtime, record[WIDTH:].decode())
    return PathState(kind, bits)


def kind_of(mode: int) -> Kind:
    """The kind of a path from its `st_mode`."""
    if modes.S_ISREG(mode):
        return "file"
    if modes.S_ISDIR(mode):
        return "folder"
    return "link" if modes.S_ISLNK(mode) else "other"
