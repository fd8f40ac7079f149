"""Paths: the real locations of the paths that a call names, for permission rules."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from lmagent.core.errors import ToolError

ALIAS = "/workspace"
"""The name of the workspace for a command in the sandbox; models use it in paths of file tools too."""

Hides = Callable[[str], bool]
"""Returns whether a path relative to the workspace must be hidden from a call."""


def inside(path: str, root: str) -> str | None:
    """Return an absolute path relative to the workspace, or None if it is elsewhere.

    `/workspace` is the workspace, unless the workspace itself is at or below a real folder of that name.
    """
    roots = list(dict.fromkeys((root, os.path.realpath(root))))
    if not any(place == ALIAS or place.startswith(f"{ALIAS}/") for place in roots):
        roots.append(ALIAS)
    for place in roots:
        if path == place or path.startswith(place.rstrip("/") + "/"):
            return path[len(place) :].lstrip("/")
    return None


def located(root: str, targets: Sequence[str]) -> tuple[str, ...]:
    """Return the paths that rules match: relative to the workspace, as named and with links resolved."""
    found = dict[str, None]()
    real_root = os.path.realpath(root)
    for target in targets:
        require_path(target)
        inner = inside(target, root) if target.startswith("/") else None
        named = os.path.normpath(os.path.join(root, target if inner is None else inner))
        found[_relative(named, root)] = None
        found[_relative(os.path.realpath(named), real_root)] = None
    return tuple(found)


def require_path(path: str) -> None:
    """Raise a ToolError if no operating system accepts the text as a path."""
    if "\0" in path:
        raise ToolError("The path holds a NUL character. Write it without.", data={"code": "path"})
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise ToolError("The path holds half a character. Write it in UTF-8.", data={"code": "path"}) from None


def through_links(root: str, hides: Hides) -> Hides:
    """Extend `hides` to the folders' real locations: a walk may begin at a link, but follows none on its way."""
    real_root = os.path.realpath(root)
    real_places = dict[str, str]()

    def hidden(path: str) -> bool:
        if hides(path):
            return True
        folder, _, name = path.rpartition("/")
        if folder not in real_places:
            real_places[folder] = _relative(os.path.realpath(os.path.join(root, folder)), real_root)
        real = os.path.normpath(f"{real_places[folder]}/{name}")
        return real != path and hides(real)

    return hidden


def _relative(path: str, root: str) -> str:
    return os.path.relpath(path, root).replace(os.sep, "/")
