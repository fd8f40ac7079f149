"""Records: the knowledge of a path as a few bytes, since a workspace may have hundreds of thousands of files.

A record is the signature (mode, size, mtime, ctime, inode, owner), then how the content was kept. Equal signatures mean
a file that did not change, and is not read again: no program can put a ctime back. A file that changed in the instant
in which it was recorded could change again without a new signature (the "racy git" problem); its ctime is recorded as
0, which never matches.

A file name is bytes. Python shows bytes that are no UTF-8 as lone surrogates, which neither JSON nor msgspec takes. In
records and in values that leave this package such a byte is written as `\\xff`, and a backslash as two.
"""

from __future__ import annotations

import os
import re
import stat as modes
import struct

from lmagent.core.changes import Kind, PathState

Record = bytes
Tree = dict[str, dict[str, Record]]
"""Folder path -> name -> record, all escaped; an empty folder has no entry of its own, only one in its parent."""

HEAD = struct.Struct("<IqqqQII")
WIDTH = HEAD.size
LINKED = b"L"
"""Follows the signature of a file whose content is kept by a hard link."""

_LONGEST = (1 << 63) - 1
_SPECIAL = re.compile("[\\\\\ud800-\udfff]")
_ESCAPE = re.compile(r"\\(\\|x[89a-f][0-9a-f])")
_SURROGATE = 0xDC00  # os.fsdecode shows the byte b as the code point 0xDC00 + b (PEP 383)


def signature(found: os.stat_result, *, settled: bool = True, size: int | None = None) -> Record:
    """Return the record of a path whose content is not kept; one that is not `settled` matches no file."""
    mtime = max(-_LONGEST, min(_LONGEST, found.st_mtime_ns))
    ctime = found.st_ctime_ns if settled and found.st_ctime_ns <= _LONGEST else 0
    size = found.st_size if size is None else size
    return HEAD.pack(found.st_mode, size, mtime, ctime, found.st_ino, found.st_uid, found.st_gid)


def bare(found: os.stat_result) -> Record:
    """Return the record of a folder or special file: mode and owner alone, since a folder's times vary."""
    return HEAD.pack(found.st_mode, 0, 0, 0, 0, found.st_uid, found.st_gid)


def is_kept(record: Record) -> bool:
    """Return whether the content, if the path has one, was kept."""
    return len(record) > WIDTH or not modes.S_ISREG(HEAD.unpack(record)[0])


def link_id(found: os.stat_result) -> str:
    """Return the id of a file's content that is kept by a link; see `objects`."""
    return _link_id(found.st_ino, found.st_size, found.st_mtime_ns)


def _link_id(inode: int, size: int, mtime: int) -> str:
    return f"link:{inode:x}-{size:x}-{mtime & 0xFFFF_FFFF_FFFF_FFFF:x}"


def content_id(record: Record) -> str:
    """Return the id of a file's kept content; empty if it was not kept."""
    mode, size, mtime, _, inode, _, _ = HEAD.unpack(record[:WIDTH])
    tail = record[WIDTH:]
    if not tail or not modes.S_ISREG(mode):
        return ""
    return _link_id(inode, size, mtime) if tail == LINKED else tail.hex()


def size_of(record: Record) -> int:
    return HEAD.unpack(record[:WIDTH])[1]


def same_content(one: PathState, other: PathState) -> bool:
    """Return whether the ids show that two states of a file have the same content, or the times if it was not kept."""
    same = (one.size, one.sha256) == (other.size, other.sha256)
    return same and (bool(one.sha256) or one.mtime == other.mtime)


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


def escaped(name: str) -> str:
    """Return a name or path of the operating system as text without surrogates."""
    if name.isascii() and "\\" not in name:
        return name
    return _SPECIAL.sub(lambda found: _escape(found[0]), name)


def _escape(character: str) -> str:
    return "\\\\" if character == "\\" else f"\\x{ord(character) - _SURROGATE:02x}"


def unescaped(text: str) -> str:
    """Return the name or path that `escaped` received."""
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda found: "\\" if found[1] == "\\" else chr(_SURROGATE + int(found[1][1:], 16)), text)


def join(folder: str, name: str) -> str:
    """Return the path of a name in a folder; the workspace is the empty path."""
    return f"{folder}/{name}" if folder else name


def split(path: str) -> tuple[str, str]:
    folder, _, name = path.rpartition("/")
    return folder, name
