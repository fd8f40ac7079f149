"""The edit tool: replaces a piece of a file that the model quotes. `replace.py` says what counts as a match."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from lmagent.core.errors import ToolError
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.tools import diff
from lmagent.tools.beneath import Beneath, LoadedFile
from lmagent.tools.change import (
    difference_of,
    load_if_there,
    require_no_mask,
    require_unchanged,
    require_unmasked_search,
    store,
    tally,
)
from lmagent.tools.paths import lexical
from lmagent.tools.read import PATH_NAMES, REMARKS
from lmagent.tools.sanitize import one_line
from lmagent.tools.textfile import decode, encode
from lmagent.tools.walk import missing

LIMIT = 16 << 20
"""Bytes up to which a file is edited; a bigger file is data."""

_TOLD = 20  # changed lines that the model is shown


class Edit(Struct, frozen=True):
    """Arguments of edit."""

    path: str
    search: Annotated[str, Meta(description="copied from the file, without line numbers")]
    replace: str
    replace_all: bool = False


async def _run(arguments: Edit, ctx: ToolContext) -> ToolOutput:
    with Beneath(ctx.workspace) as files:
        name = files.locate(arguments.path)
        old = _load(files, arguments.path, ctx)
    require_unchanged(ctx, name, old.data)
    from anyio import to_thread

    new, remark = await to_thread.run_sync(_edited, arguments, name, old.data)
    facts = await store(ctx, arguments.path, new, old)
    told = f"Edited {one_line(name, 300)} ({tally(facts['diff'])}).{remark}"
    return ToolOutput(f"{told}\n{_around(facts['diff'])}", facts)


def _load(files: Beneath, path: str, ctx: ToolContext) -> LoadedFile:
    old = load_if_there(files, path, LIMIT)
    if old is None:
        raise missing(files, path, ctx.hidden)
    return old


def _edited(arguments: Edit, name: str, data: bytes) -> tuple[bytes, str]:
    """Return the new content, and a remark if the search differs from the file."""
    from lmagent.tools.edit.replace import edited  # its patterns take time to compile: not at start

    decoded = decode(data)
    if decoded is None:
        raise ToolError(f"{one_line(name)} is a binary file; it is not edited as text.", data={"code": "binary"})
    text, encoding = decoded
    require_unmasked_search(name, text, arguments.search)
    found = edited(text, arguments.search, arguments.replace, arguments.replace_all)
    require_no_mask(name, text, found.text)
    remark = f" The search differed from the file in {' and '.join(found.bridged)}." if found.bridged else ""
    return encode(found.text, encoding), remark


def _around(difference: str) -> str:
    """Return enough of the diff for the model to check the change."""
    rows = difference.split("\n")[2:]
    if len(rows) > _TOLD:
        rows = [*rows[:_TOLD], f"… {len(rows) - _TOLD} more lines of diff"]
    return "\n".join(rows)


def _preview(arguments: Edit, ctx: ToolContext) -> str:
    with Beneath(ctx.workspace) as files:
        name = files.locate(arguments.path)
        old = _load(files, arguments.path, ctx)
    require_unchanged(ctx, name, old.data)
    return difference_of(name, old.data, _edited(arguments, name, old.data)[0])


def _summary(arguments: Edit) -> str:
    added, removed = diff.changed_lines(arguments.search, arguments.replace)
    every = ", everywhere" if arguments.replace_all else ""
    return f"edit {one_line(lexical(arguments.path))} (+{added} −{removed}{every})"


TOOL = Tool(
    name="edit",
    description="Replace text in a file. search must match one place only, or set replace_all.",
    arguments=Edit,
    effect="write",
    run=_run,
    aliases=("edit_file", "str_replace", "search_replace", "replace_in_file", "replace", "update_file"),
    renames={
        **PATH_NAMES,
        **REMARKS,
        **dict.fromkeys(("old_string", "old_text", "old_str", "old", "find", "search_text"), "search"),
        **dict.fromkeys(("new_string", "new_text", "new_str", "new", "replacement", "replace_text"), "replace"),
        "all": "replace_all",
    },
    summary=_summary,
    preview=_preview,
    targets=lambda arguments: (lexical(arguments.path),),
)
