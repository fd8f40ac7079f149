"""Tool: a tool of the model, and its contract with the engine.

arguments  a msgspec Struct (the engine decodes, validates and words the errors), or a JSON schema for tools
           from outside
effect     its possible effect on the world; the gate decides by it, and reads of one reply run in parallel
run        gets decoded arguments and a context; returns a ToolOutput or raises ToolError; any other exception
           is a bug, is caught at the tool boundary and reported to the model as such
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from lmagent.core.model import ToolSpec

AskHost = Callable[[str, int], Awaitable[bool]]
"""Asks whether the call may reach a host and port."""


async def refuse_host(_host: str, _port: int) -> bool:
    """Refuse every host: no user can be asked."""
    return False


class Question(Struct, frozen=True):
    """A question of a running call to the user.

    Attributes:
        id: distinguishes the questions of a call; the same question of the same call is asked once.
        tool: the name that the approval shows.
        summary: the question in one line.
        preview: the facts on which the user decides, in lines.
        reason: why it is asked.
    """

    id: str
    tool: str
    summary: str
    preview: str = ""
    reason: str = ""


class Answer(Struct, frozen=True):
    """The user's answer to a question; `text` is what they typed besides yes or no."""

    approved: bool
    text: str = ""
    attended: bool = True


Ask = Callable[[Question], Awaitable[Answer]]
"""Asks the user, and waits for the answer."""


async def refuse(_question: Question) -> Answer:
    """Answer no: no user can be asked."""
    return Answer(False, attended=False)


Effect = Literal["read", "write", "exec", "net"]


class FileMark(Struct, frozen=True):
    """The session's knowledge of a file: its content's SHA-256 when the model last saw or wrote it."""

    sha256: str
    changed: bool


class KeptText(Struct, frozen=True):
    """The text of a `write` that was refused until it is confirmed, and the SHA-256 of the file that it was for."""

    text: str
    file: str


def _nothing(_path: str) -> bool:
    return False


def _none_barred(_host: str, _port: int) -> bool:
    return False


def _nothing_kept(_path: str) -> KeptText | None:
    return None


class ToolContext(Struct, frozen=True):
    """The facts and abilities of a running call. A tool that needs more closes over it when it is registered.

    Attributes:
        session: the session's id.
        call: the call's id.
        workspace: absolute path of the workspace.
        seen: files the model was shown or has written in this session, by path relative to the workspace ("/"
            separated).
        emit: shows a piece of output to watchers.
        hidden: whether permission rules keep a path (relative to the workspace) from this call. A tool that goes
            further than the paths in its `targets` asks for each, leaves out hidden ones, and says how many.
        ask_host: asks whether the call may reach another host: its command, or the redirect that it follows. Rules
            answer, then the user.
        ask_packages: asks whether the session's commands may reach package registries, of which this host is one.
        barred: whether a rule forbids that the call reaches a host and port. No user is asked.
        ask: asks the user about another step of the call. No mode and no rule answers.
        kept: the text that a refused `write` to a path left, if there is one.
    """

    session: str
    call: str
    workspace: Path
    seen: Mapping[str, FileMark]
    emit: Callable[[str], None]
    hidden: Callable[[str], bool] = field(default=_nothing)
    ask_host: AskHost = refuse_host
    ask_packages: AskHost = refuse_host
    barred: Callable[[str, int], bool] = field(default=_none_barred)
    ask: Ask = refuse
    kept: Callable[[str], KeptText | None] = field(default=_nothing_kept)


class ToolOutput(Struct, frozen=True):
    """The result of a call.

    Attributes:
        content: the text for the model. The engine caps it once, by the free room, and keeps the whole as an
            artifact.
        data: facts for surfaces and the ledger. Known keys: `path` and `sha256` (a file read or written; `changed`
            true for a write), `shown` (files that a command showed, with their SHA-256), `diff` (unified diff),
            `lines`, `truncated`, `page` (a web page that was read: its address and title).
        full: the whole output, if `content` is already a page or an excerpt of it.
        file: a file of ours that holds the whole output, if that is too long for memory; the engine takes it over.
        fit: the same output within so many bytes, for a tool that shows a page: the page's own remarks (its lines,
            where to continue) are then true. Without it the engine cuts the middle out.
    """

    content: str
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    full: str | None = None
    file: Path | None = None
    fit: Callable[[int], ToolOutput] | None = None


Run = Callable[[Any, ToolContext], Awaitable[ToolOutput]]


class Tool(Struct, frozen=True):
    """One tool.

    Attributes:
        name: as advertised.
        description: for the model; every byte is paid for in every prompt.
        arguments: a Struct type, or a JSON schema (of type object) for tools from outside.
        effect: read, write, exec or net.
        run: see the module.
        replay_safe: running it twice does no harm, so a crash may simply repeat it. Reads are, always.
        deferred: not in the tool block; listed in the catalogue and called through `use_tool`.
        unlisted: optional arguments that the catalogue leaves out: few calls need them, and the schema names them.
        aliases: other names accepted at dispatch and never advertised.
        renames: argument names of the aliases' owners, to ours (`file_path` → `path`); to "" if it only explains the
            call.
        implied: arguments of the aliases' owners that this tool lacks, with the values that ask for its usual
            behaviour.
            Any other argument is refused by its name.
        adapt: translates the other arguments of the aliases' owners; gets all given arguments, under our names if
            known.
        summary: the call in one line for the user; the default is `name(first argument)`.
        preview: the coming change (a diff), for the approval; may touch the disk, must not change it. It raises the
            ToolError with which the call would end: then the user is not asked.
        targets: workspace paths that the call touches, for permission rules, as the model named them.
        command: the shell line that the call runs, for permission rules.
        hosts: the hosts that the call connects to, each as `host:port` in its one spelling, for permission rules.
    """

    name: str
    description: str
    arguments: type[msgspec.Struct] | dict[str, Any]
    effect: Effect
    run: Run
    replay_safe: bool = False
    deferred: bool = False
    unlisted: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    renames: Mapping[str, str] = field(default_factory=dict[str, str])
    implied: Mapping[str, tuple[Any, ...]] = field(default_factory=dict[str, tuple[Any, ...]])
    adapt: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    summary: Callable[[Any], str] | None = None
    preview: Callable[[Any, ToolContext], str] | None = None
    targets: Callable[[Any], tuple[str, ...]] | None = None
    command: Callable[[Any], str] | None = None
    hosts: Callable[[Any], tuple[str, ...]] | None = None

    @property
    def spec(self) -> ToolSpec:
        """Return the tool in the form of a request."""
        return ToolSpec(self.name, self.description, argument_schema(self.arguments))


def plain(name: str) -> str:
    """Normalise a name to our spelling: `filePath`, `file-path` and `functions.filePath` become `file_path`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip().rpartition(".")[2]).replace("-", "_").lower()


def argument_schema(arguments: type[msgspec.Struct] | dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a tool's arguments, flat and short: no titles, no references, no defaults."""
    return arguments if isinstance(arguments, dict) else _struct_schema(arguments)


def signature(arguments: type[msgspec.Struct] | dict[str, Any], unlisted: tuple[str, ...] = ()) -> str:
    """List the names of a tool's arguments: `paths[]` is a list, `depth?` is optional. It costs no schema (0.2 ms)."""
    return ", ".join(
        f"{name}{'[]' * _is_list(arguments, name)}{'' if needed else '?'}"
        for name, needed in argument_names(arguments)
        if name not in unlisted
    )


def _is_list(arguments: type[msgspec.Struct] | dict[str, Any], name: str) -> bool:
    if isinstance(arguments, dict):
        return arguments["properties"][name].get("type") == "array"
    hint = str(arguments.__annotations__.get(name, ""))
    return hint.removeprefix("Annotated[").startswith(("list[", "tuple["))


def argument_names(arguments: type[msgspec.Struct] | dict[str, Any]) -> list[tuple[str, bool]]:
    """Return the names of a tool's arguments, and whether each is required."""
    if isinstance(arguments, dict):
        return [(name, name in arguments.get("required", ())) for name in arguments.get("properties", {})]
    names, defaults = arguments.__struct_encode_fields__, arguments.__struct_defaults__
    needed = [True] * (len(names) - len(defaults)) + [default is msgspec.NODEFAULT for default in defaults]
    return list(zip(names, needed, strict=True))


@lru_cache(maxsize=256)  # the catalogue is built again before every step, to see whether it has changed
def _struct_schema(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    (schema,), components = msgspec.json.schema_components([arguments], ref_template="{name}")
    resolved: Any = _inline(schema, components)
    resolved.setdefault("properties", {})
    if not resolved.get("required"):
        resolved.pop("required", None)
    resolved.pop("description", None)  # the Struct's docstring is for us; the tool has a description of its own
    return resolved


def _inline(node: Any, components: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inline(item, components) for item in node]  # type: ignore[reportUnknownVariableType]
    if not isinstance(node, dict):
        return node
    known: dict[str, Any] = node  # type: ignore[reportUnknownVariableType]
    if "$ref" in known:
        return _inline(components[known["$ref"]], components)
    return {
        key: {name: _inline(sub, components) for name, sub in value.items()}
        if key == "properties"
        else _inline(value, components)
        for key, value in known.items()
        if key not in ("title", "default")
    }
