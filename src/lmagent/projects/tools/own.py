"""Own tools: from the rows of `tools:` in agent.yaml to tools for the toolbox.

A row names a file of the project, or a built-in tool. Own tools take the names that other agents have for built-in
tools, and never the name of one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
from msgspec.structs import replace

from lmagent.core.decoding import convert, decode_json
from lmagent.core.errors import ConfigError, LmagentError
from lmagent.core.tool import Tool, ToolContext, ToolOutput, plain
from lmagent.projects.spec import ToolEntry
from lmagent.projects.tools.call import call, describe, javascript, read_source
from lmagent.projects.tools.schema import declared_schema, fitting, signature
from lmagent.projects.tools.spec import Declared, OwnTool, OwnTools, ToolPlace
from lmagent.tools.sanitize import one_line, printable, visible

DESCRIBED = 1000
"""Characters of a description."""

FORMAT = 2
"""Of the facts that are kept; another number makes them read anew."""

_JAVASCRIPT, _ELSEWHERE = (".js", ".cjs"), (".mjs", ".ts", ".mts", ".jsx", ".tsx")


async def own_tools(folder: Path, entries: Sequence[ToolEntry], place: ToolPlace) -> OwnTools:
    """Return the tools that the rows name; none of these is switched off.

    Files in JavaScript are loaded in the sandbox, once for each version.

    Raises ConfigError: a row cannot be followed; the text names it.
    """
    folder, tools, facts = Path(os.path.realpath(folder)), list[Tool](), list[str]()
    for entry in entries:
        with _naming(entry):
            own = await _row(folder, entry, place, facts)
        if own is not None:
            facts += _facts(own)
            tools.append(_tool(own, place))
    return OwnTools(tuple(tools), tuple(facts))


@contextlib.contextmanager
def _naming(entry: ToolEntry) -> Generator[None]:
    """Name the row in the errors about it."""
    try:
        yield
    except ConfigError as wrong:
        raise ConfigError(f"the tool {one_line(entry.name, 60)!r}: {wrong.message}", fix=wrong.fix) from None


async def _row(folder: Path, entry: ToolEntry, place: ToolPlace, facts: list[str]) -> OwnTool | None:
    """Return the tool of a row; None if it means a built-in one. Raise ConfigError."""
    path, same = PurePosixPath(entry.path), _builtin(entry.name, place)
    if path.is_absolute() or ".." in path.parts:
        raise ConfigError(f"its path {one_line(entry.path, 100)} leads out of the folder", fix="write ./tools/NAME.js")
    if entry.path and (folder / entry.path).exists():
        if (same is not None and plain(entry.name) == same.name) or entry.name in place.reserved:
            fix = f"rename it, for example my_{plain(entry.name)}, or leave `path` out to use the built-in tool"
            raise ConfigError(f"the name {entry.name} is taken by a built-in tool", fix=fix)
        return await _own(_bare(folder, entry, place), entry, place)
    if same is None:
        where = f"its file {one_line(entry.path, 100)} does not exist" if entry.path else "no built-in tool is named so"
        raise ConfigError(where, fix="create the file, or set `enabled: false`" if entry.path else _near(entry, place))
    if entry.path:
        missing = one_line(entry.path, 100)
        facts.append(f"{entry.name}: {missing} does not exist, so the built-in tool {same.name} is used")
    return None


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


def _bare(folder: Path, entry: ToolEntry, place: ToolPlace) -> OwnTool:
    """Return a row's tool with its file as it is now, and nothing that the file says. Raise ConfigError."""
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
    return OwnTool(entry.name, "", Declared("", "", {}, ""), folder, path, kind, source, entry.timeout)


async def _own(tool: OwnTool, entry: ToolEntry, place: ToolPlace) -> OwnTool:
    declared = await _declared(tool, place)
    if entry.parameters is not None:
        schema = declared_schema(entry.parameters, "`parameters`")
        declared = replace(declared, schema=schema, origin="declared", shown=False)
    description = " ".join(printable(entry.description or declared.description).split())[:DESCRIBED] or entry.name
    return replace(tool, description=description, declared=declared)


async def _declared(tool: OwnTool, place: ToolPlace) -> Declared:
    where = one_line(tool.path)
    if tool.kind == "program":
        from lmagent.projects.tools.program import read_manifest

        return read_manifest(tool.source, where, tool.folder)
    if tool.kind == "python":
        from lmagent.projects.tools.python import read_python

        return read_python(tool.source, tool.name, where)
    from lmagent.config.files import write_private
    from lmagent.projects.tools.javascript import Facts, read_javascript

    file, facts = _kept_file(tool, place), None
    with contextlib.suppress(OSError, msgspec.DecodeError):
        facts = decode_json(file.read_bytes(), Facts) if file is not None else None
    if facts is None:
        try:
            facts = convert(await describe(place, tool), Facts)
        except msgspec.ValidationError as wrong:
            raise ConfigError(f"{where} describes itself in another form: {wrong}", fix="correct it") from None
        if file is not None:
            write_private(file, msgspec.json.encode(facts).decode(), sync=False)
    return read_javascript(facts, tool.source.decode("utf-8", "replace"), where)


def _kept_file(tool: OwnTool, place: ToolPlace) -> Path | None:
    """Return where facts about a file are kept: another place once a file of its folder has changed."""
    if place.kept is None:
        return None
    import hashlib  # few agents have such files

    beside = sorted(path for path in tool.file.parent.iterdir() if path.is_file())
    stamps = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in beside[:1000]]
    key = repr((FORMAT, tool.kind, str(tool.file), stamps)).encode() + tool.source
    return place.kept / f"{hashlib.sha256(key).hexdigest()}.json"


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
        where = f"in the sandbox, {reach}" if place.backend() != "off" else "without a sandbox"
        return f"{one_line(own.path)} of this agent, {where}{secrets}, with\n{shown}"

    return Tool(
        name=own.name,
        description=own.description,
        arguments=schema,
        effect="exec",
        run=run,
        summary=lambda arguments: one_line(f"{own.name} {msgspec.json.encode(arguments).decode()}"),
        preview=preview,
    )
