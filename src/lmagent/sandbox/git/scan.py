"""Finds the places of a workspace where git would see a repository, by the names in each folder.

A folder can be a repository under any name (`HEAD`, `objects`, `refs`; or `HEAD` and `commondir`), and a `.git` can be
a folder, a file that names one, or a link. Names count in any case: other file systems make no difference.
"""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Callable, Collection
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
        hit: the bound that stopped the look, as text; empty if it was complete.
        seen: number of names that were looked at.
    """

    gitdirs: dict[str, Ident] = field(default_factory=dict[str, Ident])
    pointers: list[str] = field(default_factory=list[str])
    closed: set[str] = field(default_factory=set[str])
    hit: str = ""
    seen: int = 0


_NAMES = frozenset({".git", "git~1", "head", "objects", "refs", "commondir"})
_IGNORED = dict.fromkeys(
    [*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF]  # HFS+ drops them from names
)


def is_dot_git(name: str) -> bool:
    """Return whether some file system takes this name for `.git`."""
    return _folded(name) in (".git", "git~1")


def _folded(name: str) -> str:
    low = name.lower() if name.isascii() else name.translate(_IGNORED).lower()
    return low.split(":")[0].rstrip(" .") if low.startswith(".git") else low


def scan(
    root: str,
    bounds: ScanBounds,
    *,
    open_up: Callable[[str], bool] | None = None,
    skip: Collection[str] = (),
    depth: int | None = None,
) -> Places:
    """Look, the upper folders first, without following links.

    Args:
        open_up: makes an unreadable folder readable and returns whether it could.
        skip: names of folders that are not looked into.
    """
    places, end = Places(), time.monotonic() + bounds.seconds
    queue: deque[tuple[str, int]] = deque([("", 0)])
    while queue:
        rel, level = queue.popleft()
        try:
            folders = _look(root, rel, places)
        except PermissionError:
            if open_up is None or not open_up(rel):
                places.closed.add(rel)
                _probe(root, rel, places)
                continue
            folders = _look_again(root, rel, places)
        except FileNotFoundError:
            continue
        except OSError:
            places.closed.add(rel)
            continue
        if depth is None or level < depth:
            start = f"{rel}/" if rel else ""
            queue.extend((start + name, level + 1) for name in folders if name not in skip)
        places.hit = _hit(places, bounds, end)
        if places.hit and queue:
            return places
        places.hit = ""
    return places


def _hit(places: Places, bounds: ScanBounds, end: float) -> str:
    if places.seen > bounds.entries:
        return f"only the first {bounds.entries:,} names were looked at"
    if len(places.gitdirs) > bounds.repositories:
        return f"only the first {bounds.repositories:,} git repositories were looked at"
    if time.monotonic() > end:
        return f"the look was stopped after {bounds.seconds:g} s"
    return ""


def _look(root: str, rel: str, places: Places) -> list[str]:
    folders: list[str] = []
    marks: list[tuple[str, str]] = []
    path = f"{root}/{rel}" if rel else root
    with os.scandir(path) as entries:
        for entry in entries:
            name = entry.name
            places.seen += 1
            if entry.is_dir(follow_symlinks=False):
                folders.append(name)
            low = name.lower() if name.isascii() and name[:1] != "." else _folded(name)
            if low in _NAMES:
                marks.append((low, name))
    if marks:
        _note(path, rel, marks, places)
    return folders


def _look_again(root: str, rel: str, places: Places) -> list[str]:
    try:
        return _look(root, rel, places)
    except OSError:
        places.closed.add(rel)
        return []


def _probe(root: str, rel: str, places: Places) -> None:
    """Look for the names of a repository: git needs no right to list a folder in order to find one in it."""
    path = f"{root}/{rel}" if rel else root
    names = (".git", "HEAD", "objects", "refs", "commondir")
    marks = [(name.lower(), name) for name in names if os.path.lexists(os.path.join(path, name))]
    _note(path, rel, marks, places)


def _note(path: str, rel: str, marks: list[tuple[str, str]], places: Places) -> None:
    start = f"{rel}/" if rel else ""
    for low, name in marks:
        if low in (".git", "git~1"):
            note_pointer(os.path.join(path, name), start + name, places)
    lows = {low for low, _ in marks}
    if "head" in lows and ("commondir" in lows or {"objects", "refs"} <= lows):
        note_pointer(path, rel, places)


def note_pointer(path: str, rel: str, places: Places) -> None:
    """Note a place that git looks at: a repository if it is a folder, else a pointer."""
    try:
        info = os.lstat(path)
    except OSError:
        return
    if stat.S_ISDIR(info.st_mode):
        places.gitdirs[rel] = (info.st_dev, info.st_ino)
    elif rel not in places.pointers:
        places.pointers.append(rel)
