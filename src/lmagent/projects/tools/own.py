"""Own tools: from the rows of `tools:` in agent.yaml to tools for the toolbox.

A row names a file of the project, or a built-in tool. Own tools take the names that other agents have for built-in
tools, and never the name of one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
from msgspec import Struct, field

from lmagent.core.errors import ConfigError, LmagentError
from lmagent.core.tool import Tool, ToolContext, ToolOutput, plain
from lmagent.projects.tools.call import call, describe, javascript, read_source
from lmagent.projects.tools.schema import declared_schema, fitting, signature
from lmagent.projects.tools.spec import Declared, OwnTool, OwnTools, ToolEntry, ToolPlace
from lmagent.tools.sanitize import one_line, printable, visible

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
DESCRIBED = 1000
"""Characters of a description."""

LONGEST = 3600.0
"""Seconds that a call may take at most."""

FORMAT = 1
"""Of the facts that are kept; another number makes them read anew."""

_JAVASCRIPT, _ELSEWHERE = (".js", ".cjs"), (".mjs", ".ts", ".mts", ".jsx", ".tsx")


class _Found(Struct):
    tools: list[Tool] = field(default_factory=list[Tool])
    builtin: list[str] = field(default_factory=list[str])
    off: list[str] = field(default_factory=list[str])
    facts: list[str] = field(default_factory=list[str])


async def own_tools(folder: Path, entries: Sequence[ToolEntry], place: ToolPlace) -> OwnTools:
    """Return the tools that the rows name. Nothing of the project runs outside of the sandbox.

    Raises ConfigError: a row cannot be followed; the text names it.
    """
    folder, found, taken = Path(os.path.realpath(folder)), _Found(), set[str]()
    for entry in entries:
        named = f"the tool {one_line(entry.name, 60)!r}"
        if NAME.fullmatch(entry.name) is None:
            raise ConfigError(f"{named} has a name that models cannot call", fix="use 1-64 letters, digits, _ and -")
        if plain(entry.name) in taken:
            raise ConfigError(f"{named} is in two rows", fix="rename or remove one")
        taken.add(plain(entry.name))
        if not 0 < entry.timeout <= LONGEST:
            raise ConfigError(f"{named} has the timeout {entry.timeout:g}", fix=f"give seconds, at most {LONGEST:g}")
        try:
            await _row(folder, entry, place, found)
        except ConfigError as wrong:
            raise ConfigError(f"{named}: {wrong.message}", fix=wrong.fix) from None
    return OwnTools(tuple(found.tools), tuple(found.builtin), tuple(found.off), tuple(found.facts))


async def _row(folder: Path, entry: ToolEntry, place: ToolPlace, found: _Found) -> None:
    """Add the tool of a row to the found ones."""
    same = _builtin(entry.name, place)
    if PurePosixPath(entry.path).is_absolute() or ".." in PurePosixPath(entry.path).parts:
        raise ConfigError(f"its path {one_line(entry.path, 100)} leads out of the folder", fix="write ./tools/NAME.js")
    if entry.path and (folder / entry.path).exists():
        if not entry.enabled:
            return
        if (same is not None and plain(entry.name) == same.name) or entry.name in place.reserved:
            fix = f"rename it, for example my_{plain(entry.name)}, or leave `path` out to use the built-in tool"
            raise ConfigError(f"the name {entry.name} is taken by a built-in tool", fix=fix)
        own = await _own(folder, entry, place)
        found.facts += _facts(own)
        found.tools.append(_tool(own, place))
        return
    if same is None:
        if not entry.enabled:
            return
        where = f"its file {one_line(entry.path, 100)} does not exist" if entry.path else "no built-in tool is named so"
        raise ConfigError(where, fix="create the file, or set `enabled: false`" if entry.path else _near(entry, place))
    (found.builtin if entry.enabled else found.off).append(same.name)
    if entry.path and entry.enabled:
        path = one_line(entry.path, 100)
        found.facts.append(f"{entry.name}: {path} does not exist, so the built-in tool {same.name} is used")


def _builtin(name: str, place: ToolPlace) -> Tool | None:
    """Return the built-in tool of a name, in the toolbox's spellings of it, or of an alias."""
    spelled = {name, plain(name)}
    tools = list(place.builtin)
    return next((tool for tool in tools if tool.name in spelled), None) or next(
        (tool for tool in tools if spelled & set(tool.aliases)), None
    )


def _near(entry: ToolEntry, place: ToolPlace) -> str:
    import difflib  # only for a wrong name

    near = difflib.get_close_matches(entry.name, [tool.name for tool in place.builtin], n=1)
    return f"give the `path` of its file{f', or write {near[0]}' if near else ''}"


async def _own(folder: Path, entry: ToolEntry, place: ToolPlace) -> OwnTool:
    path, manifest = str(PurePosixPath(entry.path)), str(PurePosixPath(entry.path).with_suffix(".json"))
    suffix = PurePosixPath(path).suffix.lower()
    if suffix in _ELSEWHERE:
        raise ConfigError(f"{one_line(path)} is {suffix}, which is not run", fix="write it as .js with module.exports")
    if suffix not in (*_JAVASCRIPT, ".py", ".json"):
        if not (folder / manifest).is_file():
            fix = f"write {manifest} with name, description, parameters, command; or use a .js or .py file"
            raise ConfigError(f"{one_line(path)} has no manifest beside it", fix=fix)
        path = manifest
    kind = javascript(place) if suffix in _JAVASCRIPT else "python" if suffix == ".py" else "program"
    try:
        source = read_source(folder, path)
    except LmagentError as unreadable:
        raise ConfigError(unreadable.message, fix="use a file of the project's folder") from None
    tool = OwnTool(entry.name, "", Declared("", "", {}, ""), folder, path, kind, source, entry.timeout)
    declared = await _declared(tool, entry, place)
    if entry.parameters is not None:
        schema = declared_schema(entry.parameters, "`parameters`")
        declared = msgspec.structs.replace(declared, schema=schema, origin="declared", shown=False)
    description = " ".join(printable(entry.description or declared.description).split())[:DESCRIBED] or entry.name
    return msgspec.structs.replace(tool, description=description, declared=declared)


async def _declared(tool: OwnTool, entry: ToolEntry, place: ToolPlace) -> Declared:
    where = one_line(tool.path)
    if tool.kind == "program":
        from lmagent.projects.tools.program import read_manifest

        return read_manifest(tool.source, where, tool.folder)
    if tool.kind == "python":
        from lmagent.projects.tools.python import read_python

        return read_python(tool.source, entry.name, where)
    from lmagent.projects.tools.javascript import NotConstant, read_javascript, read_loaded

    try:
        return read_javascript(tool.source, where)
    except NotConstant:
        return read_loaded(await _loaded(tool, place), where)


async def _loaded(tool: OwnTool, place: ToolPlace) -> dict[str, Any]:
    """Return the facts that loading a file shows, kept until a file of its folder changes."""
    from lmagent.config.files import write_private

    beside = sorted(path for path in tool.file.parent.iterdir() if path.is_file())
    stamps = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in beside[:1000]]
    key = hashlib.sha256(repr((FORMAT, tool.kind, str(tool.file), stamps)).encode() + tool.source).hexdigest()
    kept = place.kept / f"{key}.json" if place.kept is not None else None
    if kept is not None and kept.is_file():
        with contextlib.suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode(kept.read_bytes(), type=dict[str, Any])
    facts = await describe(place, tool)
    if kept is not None:
        write_private(kept, msgspec.json.encode(facts).decode(), sync=False)
    return facts


def _facts(tool: OwnTool) -> list[str]:
    declared, facts = tool.declared, list[str]()
    if declared.shown:
        facts.append(f"{signature(tool.name, declared.schema)}: {declared.origin} ({one_line(tool.path)})")
    if declared.name and declared.name != tool.name and tool.kind != "python":
        facts.append(f"{tool.name}: {one_line(tool.path)} calls itself {one_line(declared.name, 60)}")
    if tool.description == tool.name:
        facts.append(f"{tool.name}: it has no description, so the model knows only its name")
    return facts


def _tool(own: OwnTool, place: ToolPlace) -> Tool:
    schema = own.declared.schema

    async def run(arguments: dict[str, Any], _: ToolContext) -> ToolOutput:
        return await call(place, own, fitting(own.name, schema, arguments))

    def preview(arguments: dict[str, Any], _: ToolContext) -> str:
        fitted = fitting(own.name, schema, arguments)
        shown = visible(msgspec.json.format(msgspec.json.encode(fitted), indent=2).decode())
        reach = f"may reach {', '.join(place.hosts)}" if place.hosts else "without network"
        secrets = f"; it gets {', '.join(map(one_line, place.env))}" if place.env else ""
        return f"{one_line(own.path)} of this agent, in the sandbox, {reach}{secrets}, with\n{shown}"

    return Tool(
        name=own.name,
        description=own.description,
        arguments=schema,
        effect="exec",
        run=run,
        summary=lambda arguments: one_line(f"{own.name} {msgspec.json.encode(arguments).decode()}"),
        preview=preview,
    )
