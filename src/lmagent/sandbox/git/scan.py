"""Finds the places of a workspace where git would see a repository, by the names in each folder.

A folder can be a repository under any name (`HEAD`, `objects`, `refs`; or `HEAD` and `commondir`), and a `.git` can be
a folder, a file that names one, or a link. Names count in any case: other file systems make no difference.
"""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from msgspec import Struct

Ident = tuple[int, int]
"""Device and number of a folder: it keeps them when it is renamed."""


class ScanBounds(Struct, frozen=True):
    entries: int = 1_000_000
    seconds: float = 5.0
    repositories: int = 2_000


@dataclass
class Places:
    """The places that were found; paths are relative to the workspace, `""` is itself.

    Attributes:
        gitdirs: folders that git takes for a repository, or might soon.
        pointers: a `.git` that is a file or a link.
        closed: folders that could not be listed.
        seen: number of names that were looked at.
        complete: whether no bound stopped the look.
    """

    gitdirs: dict[str, Ident] = field(default_factory=dict[str, Ident])
    pointers: set[str] = field(default_factory=set[str])
    closed: set[str] = field(default_factory=set[str])
    seen: int = 0
    complete: bool = True


_DOT_GIT = (".git", "git~1")
_NAMES = frozenset({*_DOT_GIT, "head", "objects", "refs", "commondir"})
_IGNORED = dict.fromkeys(
    [*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF]  # HFS+ drops them from names
)


def is_dot_git(name: str) -> bool:
    """Return whether some file system takes this name for `.git`."""
    return _folded(name) in _DOT_GIT


def _folded(name: str) -> str:
    low = name.lower() if name.isascii() else name.translate(_IGNORED).lower()
    return low.split(":")[0].rstrip(" .") if low.startswith(".git") else low


def joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def scan(
    root: str, bounds: ScanBounds, known: Iterable[str] = (), open_up: Callable[[str], bool] | None = None
) -> Places:
    """Look, the upper folders first, without following links.

    Args:
        known: places that count even if the look ends before them.
        open_up: makes an unreadable folder readable and returns whether it could.
    """
    places, end = Places(), time.monotonic() + bounds.seconds
    for rel in known:
        _note(root, rel, places)
    queue = deque([""])
    while queue:
        rel = queue.popleft()
        try:
            folders = _look(root, rel, places)
        except FileNotFoundError:
            continue
        except OSError:
            if rel not in places.closed and open_up is not None and open_up(rel):
                queue.append(rel)  # for one more look
            places.closed.add(rel)
            continue
        places.closed.discard(rel)
        queue.extend(joined(rel, name) for name in folders)
        over = places.seen > bounds.entries or len(places.gitdirs) > bounds.repositories or time.monotonic() > end
        if over and queue:
            places.complete = False
            break
    return places


def _look(root: str, rel: str, places: Places) -> list[str]:
    folders: list[str] = []
    lows: set[str] = set()
    with os.scandir(os.path.join(root, rel)) as entries:
        for entry in entries:
            name = entry.name
            places.seen += 1
            if entry.is_dir(follow_symlinks=False):
                folders.append(name)
            low = name.lower() if name.isascii() and name[:1] != "." else _folded(name)
            if low in _NAMES:
                lows.add(low)
                if low in _DOT_GIT:
                    _note(root, joined(rel, name), places)
    if "head" in lows and ("commondir" in lows or {"objects", "refs"} <= lows):
        _note(root, rel, places)
    return folders


def _note(root: str, rel: str, places: Places) -> None:
    """Note a place that git looks at: a repository if it is a folder, else a pointer."""
    try:
        info = os.lstat(os.path.join(root, rel))
    except OSError:
        return
    if stat.S_ISDIR(info.st_mode):
        places.gitdirs[rel] = (info.st_dev, info.st_ino)
    else:
        places.pointers.add(rel)
