"""Paths from the model: refused or normalised by their text alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lmagent.core.errors import ToolError
from lmagent.policy.paths import inside, require_path
from lmagent.tools.sanitize import one_line

Parts = tuple[str, ...]
"""Names from the workspace down, without `.`, `..` and empty ones; `()` is the workspace itself."""

TEMPORARY = ".lmagent-"
"""The prefix of the names of half-written files; only a crash leaves one."""

_GIT, _OURS = ".git", ".lmagent"


def parse(path: str, root: Path) -> Parts:
    """Return the parts of a model's path.

    Relative paths start at the workspace; absolute ones must be in it, or in `/workspace`, its name in the sandbox. A
    relative `workspace/x` is unchanged: the workspace may well have a folder of that name. Raises ToolError.
    """
    require_path(path)
    if path.startswith("~"):
        raise _outside(path, "'~' is not expanded")
    inner = path
    if path.startswith("/"):
        found = inside(path, str(root))
        if found is None:
            raise _outside(path, "it lies outside the workspace")
        inner = found
    parts = tuple(part for part in inner.split("/") if part not in ("", "."))
    if ".." in parts:
        raise _outside(path, "'..' is not followed")
    return parts


def lexical(path: str) -> str:
    """Normalise a model's path for summaries and permission rules, without a look at the disk.

    Absolute paths stay absolute: here the workspace is not known.
    """
    return ("/" if path.startswith("/") else "") + "/".join(
        part for part in path.split("/") if part not in ("", ".")
    ) or "."


def shown(parts: Parts) -> str:
    """Return the parts as one path relative to the workspace."""
    return "/".join(parts) or "."


def guard(parts: Parts, *, write: bool, own: Sequence[Parts] = ()) -> None:
    """Refuse the paths of git (for writing) and of lmagent (for both), at any depth, in any spelling of a file system.

    `own` is this program's own configuration and data, if they are in the workspace.
    """
    if own and any(is_below(parts, place) for place in own):
        raise ToolError(
            f"{one_line(shown(parts))} is refused: it holds lmagent's own configuration or data. Leave it alone.",
            data={"code": "protected"},
        )
    for part in parts:
        name = _folded(part)
        if name == _OURS:
            raise ToolError(
                f"{one_line(shown(parts))} is refused: .lmagent holds this program's own records. Leave it alone.",
                data={"code": "protected"},
            )
        if write and name in (_GIT, "git~1"):
            raise ToolError(
                f"{one_line(shown(parts))} is refused: file tools never write in .git. Use git itself for that.",
                data={"code": "protected"},
            )


def is_below(parts: Sequence[str], place: Parts) -> bool:
    """Return whether a path is `place` or is below it, in any spelling that some file system takes for it."""
    return len(parts) >= len(place) and all(map(_same, parts, place))


def _same(name: str, other: str) -> bool:
    return name == other or _folded(name) == _folded(other)


def is_internal(name: str) -> bool:
    """Return whether walkers skip this name: git's and our own folders, half-written files."""
    return _folded(name) in (_GIT, _OURS) or (name.startswith(TEMPORARY) and name.endswith(".tmp"))


def _folded(name: str) -> str:
    """Return the name as a case-insensitive or lenient file system (APFS, NTFS) would compare it."""
    if not name.isascii():
        import unicodedata

        name = "".join(char for char in unicodedata.normalize("NFKC", name) if unicodedata.category(char) != "Cf")
    return name.split(":", 1)[0].rstrip(" .").casefold()


def _outside(path: str, why: str) -> ToolError:
    return ToolError(
        f"{one_line(path)} is refused: {why}. Paths are relative to the workspace, such as src/main.py.",
        data={"code": "path"},
    )
