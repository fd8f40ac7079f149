"""write: creates or replaces a whole file, or appends text."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from lmagent.core.errors import ToolError
from lmagent.core.plurals import plural
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.tools.beneath import Beneath, LoadedFile
from lmagent.tools.change import difference_of, load_if_there, require_no_mask, require_seen, sha256, store, tally
from lmagent.tools.paths import lexical
from lmagent.tools.read import PATH_NAMES, REMARKS, TEXT, adapting
from lmagent.tools.sanitize import one_line
from lmagent.tools.textfile import Encoding, decode, encode

LIMIT = 64 << 20
"""Bytes of a file that may be replaced: it is read before, for the diff."""


class Write(Struct, frozen=True):
    """Arguments of write."""

    path: str
    content: str | UnsetType = UNSET
    mode: Annotated[str, Meta(extra_json_schema={"enum": ["overwrite", "append"]})] = "overwrite"
    confirm: Annotated[bool, Meta(description="write the text of a refused call, without content")] = False


class _Plan(Struct, frozen=True):
    """The effect of a call: write `new` over `old` (None: no such file), which holds the text `before`."""

    name: str
    text: str
    old: LoadedFile | None
    before: str
    new: bytes

    @property
    def changes(self) -> bool:
        return self.old is None or self.old.data != self.new

    @property
    def label(self) -> str:
        return one_line(self.name, 300)

    @property
    def unchanged(self) -> str:
        return f"{self.label} has exactly this content already: no change."


async def _run(arguments: Write, ctx: ToolContext) -> ToolOutput:
    plan = _planned(arguments, ctx)
    if not plan.changes:
        return ToolOutput(plan.unchanged, {"path": plan.name, "sha256": sha256(plan.new)})
    facts = await store(ctx, arguments.path, plan.new, plan.old)
    size = f"{len(plan.text.encode()):,} bytes, {_lines(plan.text)}"
    if plan.old is None:
        return ToolOutput(f"Created {plan.label} ({size}).", facts)
    if _appends(arguments.mode):
        is_open = plan.before and not plan.before.endswith(("\n", "\r"))
        joins = " It had no line end at its end: the text continues its last line." if is_open else ""
        return ToolOutput(f"Appended to {plan.label} ({size}).{joins}", facts)
    ends = " Its line ends were CRLF and are LF now." if "\r\n" in plan.before and b"\r\n" not in plan.new else ""
    return ToolOutput(f"Replaced {plan.label} ({size}, {tally(facts['diff'])}).{ends}", facts)


def _planned(arguments: Write, ctx: ToolContext) -> _Plan:
    """Return the effect of a call; appended text takes the file's encoding and line ends. Raises ToolError."""
    with Beneath(ctx.workspace) as files:
        name = files.locate(arguments.path)
        old = load_if_there(files, arguments.path, LIMIT)
    text, new = _content(arguments, ctx, name), b""
    decoded = decode(old.data if old else b"")
    if decoded is None:
        raise ToolError(
            f"{one_line(name, 300)} is a binary file; it is not replaced by text. Write to another path.",
            data={"code": "binary"},
        )
    before, encoding = decoded
    if _appends(arguments.mode):
        crlf = "\r\n" in before and before.count("\r\n") == before.count("\n")
        new = encode(before + (text.replace("\r\n", "\n").replace("\n", "\r\n") if crlf else text), encoding)
    else:
        new = encode(text, Encoding("utf-8"))
    plan = _Plan(name, text, old, before, new)
    if plan.changes:
        if old is not None and not _appends(arguments.mode):
            require_seen(ctx, name, old.data, text, confirmed=arguments.confirm)
        require_no_mask(name, before, before + text if _appends(arguments.mode) else text)
    return plan


def _appends(mode: str) -> bool:
    """Return whether a mode appends. Models also write the modes of `open`."""
    if mode.lower() in ("append", "a"):
        return True
    if mode.lower() in ("overwrite", "write", "w", ""):
        return False
    raise ToolError(
        f"write has no mode {one_line(mode)!r}: it is overwrite or append. Nothing was written.",
        data={"code": "invalid_arguments"},
    )


def _content(arguments: Write, ctx: ToolContext, name: str) -> str:
    if not isinstance(arguments.content, UnsetType):
        return arguments.content
    kept = ctx.kept(name) if arguments.confirm else None
    if kept is None:
        lacks = "no text is kept for it" if arguments.confirm else "content is missing"
        raise ToolError(
            f"{one_line(name)} was not written: {lacks}. Send the whole text of the file as content.",
            data={"code": "invalid_arguments"},
        )
    return kept.text


def _preview(arguments: Write, ctx: ToolContext) -> str:
    plan = _planned(arguments, ctx)
    if not plan.changes:
        raise ToolError(plan.unchanged, data={"code": "unchanged", "path": plan.name})
    return difference_of(plan.name, b"" if plan.old is None else plan.old.data, plan.new)


def _summary(arguments: Write) -> str:
    path = one_line(lexical(arguments.path))
    if isinstance(arguments.content, UnsetType):
        return f"write {path} (the text that was kept)"
    verb = "append to" if _appends(arguments.mode) else "write"
    return f"{verb} {path} ({_lines(arguments.content)})"


def _lines(text: str) -> str:
    count = text.count("\n") + (not text.endswith("\n") and bool(text))
    return plural(count, "line")


_ANYWAY: dict[str, tuple[Any, ...]] = {
    **TEXT,
    "overwrite": (True,),
    "append": (False,),
    **dict.fromkeys(("create_dirs", "create_directories", "create_parents", "make_parents", "parents"), (True,)),
}
"""Options of other agents' tools that are the default here."""

TOOL = Tool(
    name="write",
    description="Create or replace a file, or append to it. Parents are made.",
    arguments=Write,
    effect="write",
    run=_run,
    aliases=("write_file", "create_file", "save_file", "write_to_file", "create"),
    renames={
        **PATH_NAMES,
        **dict.fromkeys(("text", "contents", "data", "file_text"), "content"),
        **REMARKS,
    },
    implied=_ANYWAY,
    adapt=adapting("write"),
    summary=_summary,
    preview=_preview,
    targets=lambda arguments: (lexical(arguments.path),),
)
