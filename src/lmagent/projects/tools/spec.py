"""Spec: the types that the parts of this package exchange."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from lmagent.core.sandbox import Sandbox
from lmagent.core.tool import Tool

if TYPE_CHECKING:
    from lmagent.sandbox.environment import SandboxRequest


class ToolPlace(Struct, frozen=True):
    """Where the tools of a project run, and what they get.

    Attributes:
        workspace: the folder of the session: they begin in it, and may write there.
        sandbox: returns the sandbox of the commands; raises SandboxError without one. Only its kind is used.
        backend: the name of that sandbox, after it was returned.
        request: the options of sandboxes here.
        builtin: the tools that are there already.
        reserved: further names that no tool may take.
        hosts: `host:port` patterns that the tools may reach; without them they have no network.
        env: variables that the tools get, with their secrets.
        kept: a folder of ours for what loading files has shown; None to load them each time.
        libraries: folders of installed packages, for Python.
        modules: folders of installed packages, for Node.js; `node_modules` in the project is found without them.
    """

    workspace: Path
    sandbox: Callable[[], Awaitable[Sandbox]]
    backend: Callable[[], str]
    request: Callable[[], SandboxRequest]
    builtin: Collection[Tool] = ()
    reserved: Collection[str] = ("use_tool",)
    hosts: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    kept: Path | None = None
    libraries: tuple[Path, ...] = ()
    modules: tuple[Path, ...] = ()


class Declared(Struct, frozen=True):
    """What a tool's file says about it.

    Attributes:
        name: the name that it gives itself; empty if it gives none.
        schema: the JSON schema of its arguments.
        origin: where the schema is from, for the user.
        shown: whether the user is shown it, since it was read out of code or comments.
        function: of Python, the function that is called.
        argv: of a program, its command line.
    """

    name: str
    description: str
    schema: dict[str, Any]
    origin: str
    shown: bool = False
    function: str = ""
    argv: tuple[str, ...] = ()


class OwnTool(Struct, frozen=True):
    """A tool of the project, ready to be called.

    Attributes:
        path: of its file, relative to the project's folder.
        kind: the program that runs it.
        source: of JavaScript and Python, the text that was read, and is run; of a program, its manifest.
    """

    name: str
    description: str
    declared: Declared
    folder: Path
    path: str
    kind: str
    source: bytes
    timeout: float

    @property
    def file(self) -> Path:
        return self.folder / self.path


class OwnTools(Struct, frozen=True):
    """The tools of a project that have a file.

    Attributes:
        facts: lines for the user: the inferred parameters with their source, and the files that do not exist.
    """

    tools: tuple[Tool, ...]
    facts: tuple[str, ...] = ()
