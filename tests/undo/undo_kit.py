"""What the tests of undo share: a workspace whose every bit can be compared, and calls that change it."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import msgspec
import pytest

from lmagent.core.changes import Change, Restored
from lmagent.undo import UndoLimits, WorkspaceSnapshots

Picture = dict[str, tuple[Any, ...]]


def picture(root: Path, without: Sequence[str] = ()) -> Picture:
    """Everything about a tree that undo promises: kind, permission bits, content, target, mtime in ns."""
    seen: Picture = {}
    for folder, folders, files in os.walk(root):
        for name in [*folders, *files]:
            path = os.path.join(folder, name)
            inner = os.path.relpath(path, root)
            if inner.split("/")[0] in (".lmagent", *without):
                continue
            found = os.lstat(path)
            mode = stat.S_IMODE(found.st_mode)
            if stat.S_ISLNK(found.st_mode):
                seen[inner] = ("link", os.readlink(path), found.st_mtime_ns)
            elif stat.S_ISDIR(found.st_mode):
                seen[inner] = ("folder", mode)
            elif stat.S_ISREG(found.st_mode):
                seen[inner] = ("file", mode, Path(path).read_bytes(), found.st_mtime_ns)
            else:
                seen[inner] = ("other", mode)
    return seen


def through_json(changes: Sequence[Change]) -> list[Change]:
    """As they come back from the log."""
    return msgspec.json.decode(msgspec.json.encode(list(changes)), type=list[Change])


class Lab:
    """A workspace with its store beside it."""

    def __init__(self, folder: Path, limits: UndoLimits | None = None) -> None:
        self.workspace = folder / "workspace"
        self.workspace.mkdir(exist_ok=True)
        self.store = folder / "data" / "undo" / "key"
        self.limits = limits or UndoLimits()
        self.snapshots = self.another()

    def another(self) -> WorkspaceSnapshots:
        return WorkspaceSnapshots(self.workspace, self.store, self.limits)

    def before(self, paths: Sequence[str] | None = None):
        return anyio.run(self.snapshots.before, paths)

    def after(self, paths: Sequence[str] | None = None) -> list[Change]:
        return through_json(anyio.run(self.snapshots.after, paths))

    def call(self, act: str | Callable[[], object], paths: Sequence[str] | None = None) -> list[Change]:
        """What a call changes: a shell script, or a function."""
        self.before(paths)
        self.do(act)
        return self.after(paths)

    def do(self, act: str | Callable[[], object]) -> None:
        if isinstance(act, str):
            subprocess.run(["bash", "-euc", act], cwd=self.workspace, check=True, capture_output=True, timeout=120)
        else:
            act()

    def restore(self, changes: Sequence[Change], to: Literal["before", "after"] = "before") -> Restored:
        return anyio.run(self.snapshots.restore, changes, to)

    def write(self, path: str, content: str | bytes = "content", mode: int = 0o644, age: float = 100.0) -> Path:
        """A file of the user's that is `age` seconds old."""
        file = self.workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        file.chmod(mode)
        if age:
            moment = file.stat().st_mtime_ns - int(age * 1e9) - 123_456
            os.utime(file, ns=(moment, moment))
        return file

    def read(self, path: str) -> str:
        return (self.workspace / path).read_text()

    def picture(self, without: Sequence[str] = ()) -> Picture:
        return picture(self.workspace, without)


@contextmanager
def small_disk(folder: Path, size: str = "64k") -> Iterator[Path]:
    """A file system of its own: no hard links to it, and soon full."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)


def paths_of(changes: Sequence[Change]) -> list[str]:
    return [change.path for change in changes]


def reasons_of(restored: Restored) -> dict[str, str]:
    return {refusal.path: refusal.reason for refusal in restored.refused}
