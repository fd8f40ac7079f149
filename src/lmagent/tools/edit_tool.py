"""edit: replace a piece of a file. What counts as a match is decided in `edit.py`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from lmagent.core.errors import ToolError
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.tools import diff, suggest
from lmagent.tools.beneath import Beneath, Loaded
from lmagent.tools.change import (
    difference_of,
    load_if_there,
    require_no_mask,
    require_unmasked_search,
    store,
    tally,
)
from lmagent.tools.paths import lexical
from lmagent.tools.read import PATH_NAMES
from lmagent.tools.sanitize import one_line
from lmagent.tools.seen import require_read
from lmagent.tools.textfile import decode, encode

LIMIT = 16 << 20
"""Bytes of a file that is edited; bigger ones are data."""

_TOLD = 20  # lines of the diff that the model sees
_THREAD_FROM = 256 << 10  # bytes from which looking for a close match takes its time


class Edit(Struct, frozen=True):
    """Arguments of edit."""

    path: str
    search: Annotated[str, Meta(description="text to find, copied from the file without line numbers")]
    replace: str
    replace_all: bool = False


async def _run(arguments: Edit, ctx: ToolContext) -> ToolOutput:
    with Beneath(ctx.workspace) as files:
        name = files.locate(arguments.path)
        old = _load(files, arguments.path, ctx)
    require_read(ctx, name, old.data)
    if len(old.data) < _THREAD_FROM:
        new = _edited(arguments, name, old.data)
    else:
        from anyio import to_thread

        new = await to_thread.run_sync(_edited, arguments, name, old.data)
    facts = await store(ctx, arguments.path, new, old)
    return ToolOutput(f"Edited {one_line(name, 300)} ({tally(facts['diff'])}).\n{_around(facts['diff'])}", facts)


def _load(files: Beneath, path: str, ctx: ToolContext) -> Loaded:
    old = load_if_there(files, path, LIMIT)
    if old is None:
        raise suggest.missing(files, path, ctx.hidden)
    return old


def _edited(arguments: Edit, name: str, data: bytes) -> bytes:
    from lmagent.tools.edit import replace_text  # its many patterns are compiled when a file is edited, not before

    decoded = decode(data)
    if decoded is None:
        raise ToolError(f"{one_line(name)} is a binary file; it is not edited as text.", data={"code": "binary"})
    text, encoding = decoded
    require_unmasked_search(name, text, arguments.search)
    after = replace_text(text, arguments.search, arguments.replace, arguments.replace_all)
    require_no_mask(name, text, after)
    return encode(after, encoding)


def _around(difference: str) -> str:
    """The changed places as the model is told of them: enough to see whether it is what was meant."""
    lines = difference.split("\n")[2:]
    if len(lines) <= _TOLD:
        return "\n".join(lines)
    return "\n".join([*lines[:_TOLD], f"… {len(lines) - _TOLD} more lines of diff"])


def _preview(arguments: Edit, ctx: ToolContext) -> str:
    try:
        with Beneath(ctx.workspace) as files:
            old = _load(files, arguments.path, ctx)
            name = files.locate(arguments.path)
        return difference_of(name, old.data, _edited(arguments, name, old.data))
    except ToolError as refusal:
        return f"This call will be refused: {refusal.message}"


def _summary(arguments: Edit) -> str:
    added, removed = diff.changed_lines(arguments.search, arguments.replace)
    every = ", everywhere" if arguments.replace_all else ""
    return f"edit {one_line(lexical(arguments.path))} (+{added} −{removed}{every})"


TOOL = Tool(
    name="edit",
    description="Replace text in a file you have read. search must match one place only, or set replace_all.",
    arguments=Edit,
    effect="write",
    run=_run,
    aliases=("edit_file", "str_replace", "search_replace", "replace_in_file", "replace", "update_file"),
    renames={
        **PATH_NAMES,
        **dict.fromkeys(("old_string", "old_text", "old_str", "old", "find", "search_text"), "search"),
        **dict.fromkeys(("new_string", "new_text", "new_str", "new", "replacement", "replace_text"), "replace"),
        "all": "replace_all",
    },
    summary=_summary,
    preview=_preview,
    targets=lambda arguments: (lexical(arguments.path),),
)
