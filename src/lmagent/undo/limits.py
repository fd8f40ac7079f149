"""Limits on the kept contents, and the folders whose files are linked rather than copied."""

from __future__ import annotations

from msgspec import Struct

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


class UndoLimits(Struct, frozen=True):
    """How much is kept.

    Attributes:
        copy_max: bytes; a larger file is linked rather than copied.
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


def is_bulky(parent: str, name: str) -> bool:
    """Return whether a folder has so many or so large files that they are not all copied."""
    return name in _BULKY or is_of_git(f"{parent}/{name}/")


def is_of_git(path: str) -> bool:
    """Return whether a path is among git's objects: git renews their times when it meets their content again."""
    _, git, inside = f"/{path}".partition("/.git/")
    return bool(git) and ("objects/" in inside or "lfs/" in inside)
