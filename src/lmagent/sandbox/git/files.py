"""Reads, sets aside and puts back files of a workspace that a hostile command may still be changing.

Each step goes down from a descriptor of the workspace, name by name and without following a link, so no file outside
is kept, renamed or written, whatever the command swaps meanwhile.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Generator
from typing import Literal

from msgspec import Struct

MOST_KEPT = 1 << 20
"""Bytes of a file that are kept to put it back."""

MOST_LISTED = 2_000
"""Names that a list of a folder holds at most."""

ASIDE = re.compile(r"\.lmagent-quarantine-\d+\Z")
"""The ending of the names of files that were set aside."""

_PATH_ONLY: int = getattr(os, "O_PATH", os.O_RDONLY)  # reaches into folders that may not be listed
_FOLDER = _PATH_ONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MOST_NAME = 255


class HeldFile(Struct, frozen=True):
    """A file at one moment.

    Attributes:
        kind: a regular file, a symbolic link, or something that is neither.
        data: its content; for a link, the content of its target in the workspace; empty if too large.
        names: how many names the file has (hard links).
        other: size, number and times where `data` is not kept, to recognise a large file by.
    """

    kind: Literal["file", "link", "other"]
    data: bytes = b""
    mode: int = 0o644
    names: int = 1
    target: str = ""
    other: tuple[int, ...] = ()

    def same(self, was: HeldFile | None) -> bool:
        """Return whether git would treat it the same."""
        if was is None or (self.kind, self.data, self.target, self.other) != (
            was.kind,
            was.data,
            was.target,
            was.other,
        ):
            return False
        return bool(self.mode & 0o111) == bool(was.mode & 0o111) and self.names <= was.names

    @property
    def whole(self) -> bool:
        return self.kind == "file" and not self.other


class Root:
    """The workspace, open; `path` is absolute, with links resolved.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, _FOLDER)

    def __enter__(self) -> Root:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def inside(self, path: str) -> str | None:
        """Return where an absolute path leads, relative to the workspace (`""` is itself); None if out of it."""
        try:
            real = os.path.realpath(path)
        except (OSError, ValueError):
            return None
        if real == self.path:
            return ""
        start = self.path.rstrip("/") + "/"
        return real[len(start) :] if real.startswith(start) else None

    def leads(self, base: str, path: str) -> str | None:
        """Return the same for a path that git reads relative to the folder `base` of the workspace."""
        return self.inside(os.path.join(self.path, base, os.path.expanduser(path)))

    @contextlib.contextmanager
    def folder(self, rel: str) -> Generator[int]:
        """Open a folder and yield its descriptor.

        Raises:
            OSError: it does not exist, or a link is on the way.
        """
        fd = os.dup(self._fd)
        try:
            for part in rel.split("/") if rel else ():
                inner = os.open(part, _FOLDER, dir_fd=fd)
                os.close(fd)
                fd = inner
            yield fd
        finally:
            os.close(fd)

    def held(self, rel: str, most: int = MOST_KEPT) -> HeldFile | None:
        """Return the file, with its content up to `most` bytes; None if nothing or a folder is there."""
        parent, name = os.path.split(rel)
        try:
            with self.folder(parent) as fd:
                return self._held(fd, name, rel, most)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            return HeldFile("other", other=(error.errno or 0,))

    def _held(self, fd: int, name: str, rel: str, most: int) -> HeldFile | None:
        info = os.stat(name, dir_fd=fd, follow_symlinks=False)
        mode, marks = stat.S_IMODE(info.st_mode), (info.st_size, info.st_ino, info.st_mtime_ns, info.st_ctime_ns)
        if stat.S_ISDIR(info.st_mode):
            return None
        if stat.S_ISLNK(info.st_mode):
            return self._link(os.readlink(name, dir_fd=fd), rel)
        if not stat.S_ISREG(info.st_mode):
            return HeldFile("other", mode=mode, other=marks)
        if info.st_size > most:
            return HeldFile("file", mode=mode, names=info.st_nlink, other=marks)
        try:
            data = _content(fd, name, most)
        except OSError:
            return HeldFile("other", mode=mode, other=marks)
        return HeldFile("file", data, mode, info.st_nlink)

    def _link(self, target: str, rel: str) -> HeldFile:
        leads = self.inside(os.path.join(self.path, rel))
        if not leads:
            return HeldFile("link", target=target)
        found = self.held(leads)
        return HeldFile("link", target=target) if found is None else HeldFile("link", found.data, found.mode, 1, target)

    def lists(self, rel: str) -> list[str]:
        """Return up to `MOST_LISTED` names in a folder; an empty list if it does not exist or is no folder."""
        try:
            with self.folder(rel) as fd:
                inner = os.open(".", _LIST, dir_fd=fd)
        except OSError:
            return []
        names: list[str] = []
        try:
            with os.scandir(inner) as entries:
                for entry in entries:
                    names.append(entry.name)
                    if len(names) >= MOST_LISTED:
                        break
        except OSError:
            pass  # the folder shrank or vanished meanwhile: the names so far are the result
        finally:
            os.close(inner)
        return names

    def status(self, rel: str) -> os.stat_result | None:
        """Return the `lstat` of a name; None if it does not exist, or a link is on the way."""
        parent, name = os.path.split(rel)
        try:
            with self.folder(parent) as fd:
                return os.stat(name or ".", dir_fd=fd, follow_symlinks=False)
        except OSError:
            return None

    def set_aside(self, rel: str) -> str:
        """Rename a file within its folder and return the new name; raises OSError."""
        parent, name = os.path.split(rel)
        with self.folder(parent) as fd:
            for number in range(1, 10_000):
                new = _aside(name, number)
                if _exists(fd, new):
                    continue
                try:
                    os.rename(name, new, src_dir_fd=fd, dst_dir_fd=fd)
                except PermissionError:
                    _allow(fd)
                    os.rename(name, new, src_dir_fd=fd, dst_dir_fd=fd)
                return new
        raise FileExistsError(f"{rel}: too many of them")

    def put_back(self, rel: str, held: HeldFile, *, as_file: bool = False) -> None:
        """Restore a file at a path where nothing is now; raises OSError.

        `as_file` writes a link's content instead of the link.
        """
        parent, name = os.path.split(rel)
        with self.folder(parent) as fd:
            if held.kind == "link" and not as_file:
                os.symlink(held.target, name, dir_fd=fd)
                return
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            out = os.open(name, flags, 0o600, dir_fd=fd)
            with open(out, "wb") as file:
                file.write(held.data)
                os.fchmod(out, held.mode)

    def move(self, old: str, new: str) -> None:
        """Rename within the workspace; raises OSError."""
        (old_parent, old_name), (new_parent, new_name) = os.path.split(old), os.path.split(new)
        with self.folder(old_parent) as source, self.folder(new_parent) as target:
            os.rename(old_name, new_name, src_dir_fd=source, dst_dir_fd=target)

    def open_up(self, rel: str) -> bool:
        """Give the owner back the right to list a folder; return whether that worked."""
        try:
            with self.folder(rel) as fd:
                _allow(fd)
        except OSError:
            return False
        return True


def _content(fd: int, name: str, most: int) -> bytes:
    file = os.open(name, _READ, dir_fd=fd)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError("swapped meanwhile")
        parts: list[bytes] = []
        while sum(map(len, parts)) <= most and (part := os.read(file, most)):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(file)


def _exists(fd: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _aside(name: str, number: int) -> str:
    tail = f".lmagent-quarantine-{number}"
    raw = os.fsencode(name)
    if len(raw) + len(tail) > _MOST_NAME:  # a name of the agent's choosing: truncated, and still unique
        digest = hashlib.sha256(raw).hexdigest()[:8]
        raw = raw[: _MOST_NAME - len(tail) - 9] + b"-" + digest.encode()
    return os.fsdecode(raw) + tail


def _allow(fd: int) -> None:
    """Let the owner into a folder. fchmod refuses an O_PATH descriptor; the kernel's name for it cannot be swapped."""
    mode = stat.S_IMODE(os.fstat(fd).st_mode) | 0o700
    if os.path.isdir(f"/proc/self/fd/{fd}"):
        os.chmod(f"/proc/self/fd/{fd}", mode)
    else:
        os.fchmod(fd, mode)
