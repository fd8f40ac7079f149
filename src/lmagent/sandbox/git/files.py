"""Reads, sets aside and puts back files of a workspace that a hostile command may still be changing.

Each step goes down from a descriptor of the workspace, name by name and without following a link, so no file outside
is kept, renamed or written, whatever the command swaps meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Generator
from typing import Literal

from msgspec import Struct

MOST_KEPT = 1 << 20
"""Bytes of a file that are kept to put it back."""

ASIDE = re.compile(r"\.lmagent-quarantine-\d+\Z")
"""The ending of the names of files that were set aside."""

_PATH_ONLY: int = getattr(os, "O_PATH", os.O_RDONLY)  # reaches into folders that may not be listed
_FOLDER = _PATH_ONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LONG_NAME = 200


class HeldFile(Struct, frozen=True):
    """A file at one moment.

    Attributes:
        kind: "link" is a link that leads to no file of the workspace; "other" is no file, or cannot be read.
        data: its content, or that of the link's target.
        names: how many names the file has (hard links).
        target: of a link.
        marks: size, number and times, instead of content that is not kept.
    """

    kind: Literal["file", "link", "other"]
    data: bytes = b""
    mode: int = 0o644
    names: int = 1
    target: str = ""
    marks: tuple[int, ...] = ()

    def same(self, was: HeldFile | None) -> bool:
        """Return whether git would treat it the same."""
        if was is None or self.names > was.names or bool(self.mode & 0o111) != bool(was.mode & 0o111):
            return False
        return (self.kind, self.data, self.target, self.marks) == (was.kind, was.data, was.target, was.marks)


class Root:
    """The workspace, open; `path` is absolute, with links resolved; raises OSError."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, _FOLDER)

    def __enter__(self) -> Root:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def leads(self, base: str, path: str) -> str | None:
        """Return where a path leads that git reads in a folder of the workspace; None if out of the workspace."""
        try:
            real = os.path.realpath(os.path.join(self.path, base, os.path.expanduser(path)))
        except (OSError, ValueError):
            return None
        inner = os.path.relpath(real, self.path)
        if inner == ".":
            return ""
        return None if inner == ".." or inner.startswith("../") else inner

    @contextlib.contextmanager
    def folder(self, rel: str) -> Generator[int]:
        """Open a folder and yield its descriptor; raises OSError."""
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
            return HeldFile("other", marks=(error.errno or 0,))

    def _held(self, fd: int, name: str, rel: str, most: int) -> HeldFile | None:
        info = os.stat(name, dir_fd=fd, follow_symlinks=False)
        mode, marks = stat.S_IMODE(info.st_mode), (info.st_size, info.st_ino, info.st_mtime_ns, info.st_ctime_ns)
        if stat.S_ISDIR(info.st_mode):
            return None
        if stat.S_ISLNK(info.st_mode):
            target, leads = os.readlink(name, dir_fd=fd), self.leads("", rel)
            found = self.held(leads) if leads else None
            if found is None:
                return HeldFile("link", target=target)
            return HeldFile(found.kind, found.data, found.mode, 1, target, found.marks)
        if not stat.S_ISREG(info.st_mode):
            return HeldFile("other", mode=mode, marks=marks)
        data = _content(fd, name, most) if info.st_size <= most else None
        if data is None:
            return HeldFile("other", mode=mode, marks=marks)
        return HeldFile("file", data, mode, info.st_nlink)

    def lists(self, rel: str, most: int) -> list[str]:
        """Return up to `most` names in a folder; an empty list if it does not exist or is no folder."""
        names: list[str] = []
        with contextlib.suppress(OSError), self.folder(rel) as fd:
            inner = os.open(".", _LIST, dir_fd=fd)
            try:
                with os.scandir(inner) as entries:
                    names += [entry.name for entry, _ in zip(entries, range(most), strict=False)]
            finally:
                os.close(inner)
        return names

    def status(self, rel: str) -> os.stat_result | None:
        """Return the `lstat` of a name; None if it does not exist, or a link is on the way."""
        parent, name = os.path.split(rel)
        with contextlib.suppress(OSError), self.folder(parent) as fd:
            return os.stat(name or ".", dir_fd=fd, follow_symlinks=False)
        return None

    def set_aside(self, rel: str) -> str:
        """Rename a file within its folder and return the new name; raises OSError."""
        parent, name = os.path.split(rel)
        short = name if len(os.fsencode(name)) < _LONG_NAME else "file"
        with self.folder(parent) as fd:
            for number in range(1, 10_000):
                new = f"{short}.lmagent-quarantine-{number}"
                if self.status(os.path.join(parent, new)) is not None:
                    continue
                try:
                    os.rename(name, new, src_dir_fd=fd, dst_dir_fd=fd)
                except PermissionError:
                    _allow(fd)
                    os.rename(name, new, src_dir_fd=fd, dst_dir_fd=fd)
                return new
        raise FileExistsError(f"{rel}: too many of them")

    def put_back(self, rel: str, held: HeldFile) -> None:
        """Restore a file at a path where nothing is now; raises OSError.

        A link that led to a file of the workspace becomes a copy of that file, which may have been changed since.
        """
        if held.kind == "other":
            raise OSError("its content was not kept")
        parent, name = os.path.split(rel)
        above, folder = os.path.split(parent)
        with self.folder(above) as fd, contextlib.suppress(FileExistsError):
            os.mkdir(folder or ".", dir_fd=fd)
        with self.folder(parent) as fd:
            if held.kind == "link":
                os.symlink(held.target, name, dir_fd=fd)
                return
            with open(os.open(name, _WRITE, 0o600, dir_fd=fd), "wb") as file:
                file.write(held.data)
                os.fchmod(file.fileno(), held.mode)

    def move(self, old: str, new: str) -> None:
        """Rename within the workspace; raises OSError."""
        (old_parent, old_name), (new_parent, new_name) = os.path.split(old), os.path.split(new)
        with self.folder(old_parent) as source, self.folder(new_parent) as target:
            os.rename(old_name, new_name, src_dir_fd=source, dst_dir_fd=target)

    def open_up(self, rel: str) -> bool:
        """Give the owner back the right to list a folder; return whether that worked."""
        with contextlib.suppress(OSError), self.folder(rel) as fd:
            _allow(fd)
            return True
        return False


def _content(fd: int, name: str, most: int) -> bytes | None:
    """Return the content of a file; None if it cannot be read, or was swapped for something else or a larger file."""
    try:
        with open(os.open(name, _READ, dir_fd=fd), "rb") as file:
            data = file.read(most + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    except OSError:
        return None
    return data if data is None or len(data) <= most else None


def _allow(fd: int) -> None:
    """Let the owner into a folder. fchmod refuses an O_PATH descriptor; the kernel's name for it cannot be swapped."""
    mode = stat.S_IMODE(os.fstat(fd).st_mode) | 0o700
    if os.path.isdir(f"/proc/self/fd/{fd}"):
        os.chmod(f"/proc/self/fd/{fd}", mode)
    else:
        os.fchmod(fd, mode)
