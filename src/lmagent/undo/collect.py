"""Drops contents that are no longer needed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection
from contextlib import suppress

from msgspec import Struct

from lmagent.undo.copies import entries
from lmagent.undo.names import join
from lmagent.undo.objects import Objects

_BLOCK = 512  # bytes; the unit of st_blocks, see stat(2)


class _Held(Struct, frozen=True):
    """The bytes that are freed when a content is removed."""

    age: int
    cost: int
    content: str
    path: str


def collect(objects: Objects, keep: Collection[str], total_max: int) -> int:
    """Drop contents, oldest first, until the store is within its limit; return the number of bytes freed.

    Unfinished files, and links to files that were changed in place, are always dropped. No other process may use the
    store.

    Args:
        keep: ids of the contents that stay, whatever their size.
        total_max: bytes.
    """
    freed = _clean(objects)
    held = [*_copies(objects), *_links(objects)]
    total = sum(one.cost for one in held)
    for one in sorted(held, key=lambda one: one.age):
        if total <= total_max:
            break
        if one.cost and one.content not in keep:
            with suppress(FileNotFoundError):
                os.unlink(one.path)
            total -= one.cost
            freed += one.cost
    objects.copies.survey()
    return freed


def _clean(objects: Objects) -> int:
    """Remove unfinished files of processes that died."""
    freed = 0
    folder = objects.folder / "tmp"
    names = [join(str(folder), name) for name in _names(str(folder))]
    names += [join(str(objects.folder), name) for name in _names(str(objects.folder)) if name.endswith(".new")]
    for path in names:
        with suppress(OSError):
            size = os.stat(path, follow_symlinks=False).st_size
            os.unlink(path)
            freed += size
    return freed


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _copies(objects: Objects) -> list[_Held]:
    held = list[_Held]()
    for prefix, entry in entries(str(objects.folder / "objects")):
        found = entry.stat(follow_symlinks=False)
        held.append(_Held(found.st_ctime_ns, found.st_blocks * _BLOCK, prefix + entry.name, entry.path))
    return held


def _links(objects: Objects) -> list[_Held]:
    """List the links; only a link whose file has no other name takes space of its own."""
    valid = list[tuple[os.DirEntry[str], os.stat_result]]()
    names = Counter[int]()
    for _, entry in entries(str(objects.folder / "links")):
        if objects.links.is_valid(f"link:{entry.name}"):
            found = entry.stat(follow_symlinks=False)
            valid.append((entry, found))
            names[found.st_ino] += 1
        else:
            with suppress(FileNotFoundError):
                os.unlink(entry.path)
    return [
        _Held(
            found.st_ctime_ns,
            found.st_blocks * _BLOCK // names[found.st_ino] if found.st_nlink <= names[found.st_ino] else 0,
            f"link:{entry.name}",
            entry.path,
        )
        for entry, found in valid
    ]
