"""Byproducts: paths that builds, tests and tools write by themselves and that no user works on."""

from __future__ import annotations

import re

_FOLDERS = frozenset(
    (
        *("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".nyc_output", "htmlcov"),
        *(".git", ".lmagent", ".ipynb_checkpoints", ".benchmarks", ".tsbuildinfo"),
    )
)
_FILES = re.compile(r".*\.(?:pyc|pyo|log|tsbuildinfo)|\.coverage(?:\..+)?|coverage\.(?:xml|json|lcov)|lcov\.info")


def is_byproduct(path: str) -> bool:
    """Return whether a path, relative to the workspace, is a byproduct."""
    folders = path.split("/")
    return not _FOLDERS.isdisjoint(folders) or _FILES.fullmatch(folders[-1]) is not None
