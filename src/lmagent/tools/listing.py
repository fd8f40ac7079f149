"""ls and mkdir."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from lmagent.core.errors import ToolError
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.tools import paths
from lmagent.tools.beneath import Beneath, Entry
from lmagent.tools.page import LINES, fitting, paged, size
from lmagent.tools.paths import lexical
from lmagent.tools.read import PATH_NAMES, REMARKS, adapting
from lmagent.tools.sanitize import one_line
from lmagent.tools.walk import Walk, suggesting

_REST = 80
"""Bytes that a line about further entries may take."""

LEVELS = 10
"""The deepest level that is shown."""

DIRECTORY_NAMES = {
    **PATH_NAMES,
    **REMARKS,
    **dict.fromkeys(
        ("directory", "dir", "folder", "dir_path", "directory_path", "folder_path", "relative_path"), "path"
    ),
}
"""Names of `path` in other agents' directory tools."""


class Ls(Struct, frozen=True):
    """Arguments of ls."""

    path: str = "."
    depth: int = 1


class Mkdir(Struct, frozen=True):
    """Arguments of mkdir."""

    path: str


class _Tree(Struct, frozen=True):
    """The entries beneath a directory down to `levels`, each with its level, directories before their contents."""

    entries: list[tuple[int, Entry]]
    levels: int
    notes: list[str]


async def _ls(arguments: Ls, ctx: ToolContext) -> ToolOutput:
    from anyio import to_thread

    return await to_thread.run_sync(_list, arguments, ctx, abandon_on_cancel=True)


def _list(arguments: Ls, ctx: ToolContext) -> ToolOutput:
    path, depth = arguments.path or ".", min(arguments.depth, LEVELS)
    if arguments.depth < 1:
        raise ToolError("depth is the number of levels to list, from 1.", data={"code": "invalid_arguments"})
    with Beneath(ctx.workspace) as files:
        name = files.locate(path)
        with suggesting(files, path, ctx.hidden):
            tree = _look(files, path, depth, ctx.hidden)
    if not tree.entries:
        label = one_line(name, 300)
        text = f"{label} holds nothing else. {' '.join(tree.notes)}" if tree.notes else f"{label} is empty."
        return ToolOutput(text, {"count": 0, "truncated": False})
    return paged(lambda room: _page(tree, depth, room))


def _look(files: Beneath, path: str, depth: int, hidden: Callable[[str], bool]) -> _Tree:
    """Look deeper, level by level, until the entries may not fit a page: no directory crowds out its neighbours."""
    base = len(paths.parse(path, files.root))
    found, level = list[tuple[int, Entry]](), 1
    walk = Walk(
        files,
        path,
        gitignore=depth > 1,
        enter=lambda entered: len(found) <= LINES and entered.count("/") + 1 < base + depth,
        hidden=hidden,
        listing=True,
    )
    for entry in walk:
        level = entry.path.count("/") + 1 - base
        found.append((level, entry))
        if level > 1 and len(found) > LINES:
            break
    levels = max(1, level - 1) if len(found) > LINES else depth
    entries = sorted((each for each in found if each[0] <= levels), key=lambda each: _order(each[1]))
    return _Tree(entries, levels, walk.notes)


def _order(entry: Entry) -> list[tuple[bool, str]]:
    """Sort the directories first in each directory, then by name."""
    *above, name = entry.path.split("/")
    return [*((False, part) for part in above), (entry.kind != "dir", name)]


def _page(tree: _Tree, depth: int, room: int) -> ToolOutput:
    """Show the deepest levels that fit whole; of the first level, as many entries as fit."""
    told = [f"({' '.join(tree.notes)})"] if tree.notes else []
    rows, level, rest = list[str](), tree.levels, 0
    for level in range(tree.levels, 0, -1):
        wanted = [_row(at, entry) for at, entry in tree.entries if at <= level]
        rows = fitting(wanted, room - _REST * min(depth, 2) - size(told))
        rest = len(wanted) - len(rows)
        if not rest:
            break
    count = len(rows) + rest
    if rest:
        rows.append(f"… and {rest} more; glob with a pattern finds them")
    if level < depth:
        rows.append(f"… {level} of {depth} levels shown; ls a directory by its path to see more of it")
    return ToolOutput("\n".join([*rows, *told]), {"count": count, "truncated": rest > 0 or level < depth})


def _row(level: int, entry: Entry) -> str:
    name = "  " * (level - 1) + one_line(entry.path.rpartition("/")[2], 255)
    if entry.kind == "dir":
        return f"{name}/"
    if entry.kind == "file":
        return f"{name}  {entry.size:,}"
    return f"{name}  ({'symbolic link' if entry.kind == 'link' else 'special file'})"


async def _mkdir(arguments: Mkdir, ctx: ToolContext) -> ToolOutput:
    with Beneath(ctx.workspace) as files:
        made = files.mkdir(arguments.path)
        label = one_line(files.locate(arguments.path), 300)
    return ToolOutput(f"Made the directory {label}." if made else f"The directory {label} was there already.")


def _summary(arguments: Ls) -> str:
    deep = f" {arguments.depth} levels deep" if arguments.depth > 1 else ""
    return f"ls {one_line(lexical(arguments.path))}{deep}"


LS = Tool(
    name="ls",
    description="List a directory with sizes.",
    arguments=Ls,
    effect="read",
    run=_ls,
    replay_safe=True,
    aliases=("list_files", "list_directory", "list_dir", "dir"),
    renames={**DIRECTORY_NAMES, **dict.fromkeys(("max_depth", "levels"), "depth")},
    implied={"recursive": (False,)},
    adapt=adapting("ls"),
    summary=_summary,
    targets=lambda arguments: (lexical(arguments.path),),
)

MKDIR = Tool(
    name="mkdir",
    description="Make a directory and its parents.",
    arguments=Mkdir,
    effect="write",
    run=_mkdir,
    replay_safe=True,
    deferred=True,
    aliases=("create_directory", "make_directory", "create_dir", "create_folder", "make_dir"),
    renames=DIRECTORY_NAMES,
    implied={"parents": (True,), "recursive": (True,), "exist_ok": (True,), "create_parents": (True,)},
    summary=lambda arguments: f"mkdir {one_line(lexical(arguments.path))}",
    targets=lambda arguments: (lexical(arguments.path),),
)
