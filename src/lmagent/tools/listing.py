"""ls and mkdir."""

from __future__ import annotations

from msgspec import Struct

from lmagent.core.errors import ToolError
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.tools import suggest
from lmagent.tools.beneath import Beneath, Entry
from lmagent.tools.page import fitting, paged, size
from lmagent.tools.paths import is_internal, lexical
from lmagent.tools.read import PATH_NAMES, REMARKS
from lmagent.tools.sanitize import one_line
from lmagent.tools.walk import withheld

_REST = 80
"""Bytes that the line about further entries may take."""

DIRECTORY_NAMES = {
    **PATH_NAMES,
    **REMARKS,
    **dict.fromkeys(
        ("directory", "dir", "folder", "dir_path", "directory_path", "folder_path", "relative_path"), "path"
    ),
}
"""What other agents' directory tools call `path`."""


class Ls(Struct, frozen=True):
    """Arguments of ls."""

    path: str = "."


class Mkdir(Struct, frozen=True):
    """Arguments of mkdir."""

    path: str


async def _ls(arguments: Ls, ctx: ToolContext) -> ToolOutput:
    path = arguments.path or "."
    with Beneath(ctx.workspace) as files:
        name = files.locate(path)
        try:
            entries = files.listdir(path, sizes=True)
        except ToolError as error:
            if error.data.get("code") == "missing":
                raise suggest.missing(files, path, ctx.hidden) from None
            if error.data.get("code") != "kind":
                raise
            size = files.stat(path).st_size
            return ToolOutput(f"{one_line(name, 300)} is a file of {size:,} bytes, not a directory. Use read.")
    entries = [entry for entry in entries if not is_internal(_name(entry)) or _name(entry) == ".git"]
    seen = [entry for entry in entries if not ctx.hidden(entry.path)]
    note = withheld(len(entries) - len(seen))
    entries = sorted(seen, key=lambda entry: (entry.kind != "dir", entry.path))
    if not entries:
        text = f"{one_line(name, 300)} holds nothing else. {note}" if note else f"{one_line(name, 300)} is empty."
        return ToolOutput(text, {"count": 0, "truncated": False})
    return paged(lambda room: _page(entries, room, [f"({note})"] if note else []))


def _page(entries: list[Entry], room: int, told: list[str]) -> ToolOutput:
    rows = fitting([_row(entry) for entry in entries], room - _REST - size(told))
    rest = len(entries) - len(rows)
    if rest:
        rows.append(f"… and {rest} more; glob with a pattern finds them")
    return ToolOutput("\n".join([*rows, *told]), {"count": len(entries), "truncated": rest > 0})


def _row(entry: Entry) -> str:
    name = one_line(_name(entry), 255)
    if entry.kind == "dir":
        return f"{name}/"
    if entry.kind == "file":
        return f"{name}  {entry.size:,}"
    return f"{name}  ({'symbolic link' if entry.kind == 'link' else 'special file'})"


def _name(entry: Entry) -> str:
    return entry.path.rpartition("/")[2]


async def _mkdir(arguments: Mkdir, ctx: ToolContext) -> ToolOutput:
    with Beneath(ctx.workspace) as files:
        made = files.mkdir(arguments.path)
        label = one_line(files.locate(arguments.path), 300)
    return ToolOutput(f"Made the directory {label}." if made else f"The directory {label} was there already.")


LS = Tool(
    name="ls",
    description="List a directory: names and sizes in bytes.",
    arguments=Ls,
    effect="read",
    run=_ls,
    replay_safe=True,
    aliases=("list_files", "list_directory", "list_dir", "dir"),
    renames=DIRECTORY_NAMES,
    implied={"recursive": (False,), "depth": (1,), "max_depth": (1,)},
    summary=lambda arguments: f"ls {one_line(lexical(arguments.path))}",
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
