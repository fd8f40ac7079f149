"""Limits on the kept contents, and the names of folders that are too large to be copied."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Bulk = Literal["", "bulky", "sealed"]
"""How a folder's files are treated: like other files, kept without copying, or as files that never change."""

_MIB = 1 << 20

_BULKY = frozenset(
    (
        *("node_modules", "bower_components", "jspm_packages", ".yarn", ".pnpm-store", ".parcel-cache", ".turbo"),
        *(".next", ".nuxt", ".svelte-kit"),
        *(".venv", "venv", "site-packages", "__pycache__", ".tox", ".nox", ".eggs", ".hypothesis"),
        *(".mypy_cache", ".pytest_cache", ".ruff_cache"),
        *("target", ".cargo", ".gradle", ".terraform", "Pods", "DerivedData"),
        *("dist", "build", ".cache"),
    )
)
"""Folders of dependencies, caches and build products, by the names that their tools give them."""
_GIT_OBJECTS = ("objects", "lfs")
"""In `.git`: files that are named by their content. Git renews their times when it meets the content again."""


class UndoLimits(Struct, frozen=True):
    """How much is kept.

    Attributes:
        copy_max: bytes; a larger file is cloned or linked rather than copied.
        small_max: bytes; smaller files in a bulky tree are copied, since a copy survives a change in place: `build` may
            well be a folder of sources.
        small_copies: such copies in one walk (0.1 ms each), since a bulky tree may have 50,000 files.
        total_max: bytes of all copies; `collect` brings the store below it.
        entries_max: paths of one walk; further paths are reported as not kept.
        depth_max: folders below each other that are open at once; some systems allow a process 256 descriptors.
    """

    copy_max: int = 16 * _MIB
    small_max: int = 65_536
    small_copies: int = 2_000
    total_max: int = 2048 * _MIB
    entries_max: int = 500_000
    depth_max: int = 100


def bulk_of(parent: str, name: str, outer: Bulk = "") -> Bulk:
    """Return how the files of a folder are treated, by its name alone; `outer` is the treatment of its parent."""
    if name in _GIT_OBJECTS and (f"/{parent}".endswith("/.git") or "/.git/modules/" in f"/{parent}/"):
        return "sealed"
    return "bulky" if not outer and name in _BULKY else outer
