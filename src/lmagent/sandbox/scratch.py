"""The /tmp and the home folder that the commands of one session share, kept on disk between them.

They are in the user's data folder, outside the workspace, so that no program that looks through the workspace finds
files of a command there, such as a repository with hooks.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from lmagent.core.errors import SandboxError

UNUSED = 14 * 86_400.0
"""Seconds after which the folders of a session that runs no command are removed."""


def scratch_root(data: Path, workspace: Path) -> Path:
    """Return the folder for the scratch folders of a workspace's sessions, in the user's data folder."""
    key = hashlib.sha256(str(workspace).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return data / "scratch" / key


class Scratch:
    """The scratch folders of a workspace's sessions; for `root`, see `scratch_root`."""

    def __init__(self, root: Path) -> None:
        """Remove the folders of sessions that ran no command for a while."""
        self._root = root
        with contextlib.suppress(OSError):
            for entry in os.scandir(root):
                if entry.stat(follow_symlinks=False).st_mtime < time.time() - UNUSED:
                    _remove(Path(entry.path))

    def folders(self, session: str) -> tuple[Path, Path]:
        """Return the /tmp and the home of a session; its first command makes them; raises SandboxError."""
        own = self._root / session
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder, mode in ((own, 0o700), (own / "tmp", 0o1777), (own / "home", 0o755)):
                folder.mkdir(mode=0o700, exist_ok=True)
                if folder.is_symlink() or not folder.is_dir():
                    raise NotADirectoryError(20, "not a folder", str(folder))
                folder.chmod(mode)
            os.utime(own)
        except OSError as error:
            raise SandboxError(
                f"no /tmp can be made for this session: {error}; nothing was run",
                fix=f"make {self._root} writable, or name another data folder: AGENT_DATA_DIR",
            ) from error
        return own / "tmp", own / "home"


def make_private(folder: Path) -> None:
    """Make a folder of its own for a sandbox, with a home and a tmp in it; raises SandboxError."""
    try:
        for name in ("", "home", "tmp"):
            (folder / name).mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise SandboxError(f"no folder for temporary files can be made: {error}; nothing was run") from error


def covered(kept: Path, inside: Path, over: Sequence[Path]) -> list[str]:
    """Return options that cover the places in a kept folder where other folders are mounted.

    An earlier command of the session could have put a link on the way to a place, and the mount would follow it. So the
    first name on the way is a mount of its own, which no command can rename; a link from before that is refused.

    Args:
        kept: the folder outside; `inside` is the same folder, as commands see it.
        over: folders that are mounted afterwards.

    Raises:
        SandboxError: such a place is no folder.
    """
    names = dict.fromkeys(path.relative_to(inside).parts[0] for path in over if inside in path.parents)
    for name in names:
        if os.path.lexists(kept / name) and ((kept / name).is_symlink() or not (kept / name).is_dir()):
            raise SandboxError(
                f"{inside / name} of this session is no folder; nothing was run", fix=f"rm {kept / name}"
            )
    return [part for name in names for part in ("--size", "1048576", "--tmpfs", str(inside / name))]


def forget_scratch(data: Path, workspace: Path, session: str) -> None:
    _remove(scratch_root(data, workspace) / session)


def _remove(folder: Path) -> None:
    """Remove a folder in which commands may have changed permissions; follows no link."""
    for parent, names, _ in os.walk(folder):
        for path in (os.path.join(parent, name) for name in names):
            if not os.path.islink(path):
                with contextlib.suppress(OSError):
                    os.chmod(path, 0o700)
    shutil.rmtree(folder, ignore_errors=True)
