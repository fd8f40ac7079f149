"""The folder of an agent project with tools, and calls of them as the engine makes them, on a real sandbox."""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from lmagent.core.sandbox import Sandbox
from lmagent.core.tool import Tool, ToolContext
from lmagent.engine.toolbox import decode
from lmagent.projects.spec import ToolEntry
from lmagent.projects.tools.own import own_tools
from lmagent.projects.tools.spec import OwnTools, ToolPlace
from lmagent.sandbox.bubblewrap import Bubblewrap
from lmagent.sandbox.choose import alike
from lmagent.sandbox.environment import SandboxRequest

GUIDE = Path(__file__).with_name("guide_tools")
"""Files of the guide to LM Studio agents, byte for byte."""


@functools.cache
def why_no_bubblewrap() -> str:
    with TemporaryDirectory() as folder:
        report = anyio.run(Bubblewrap(Path(folder), SandboxRequest(env=dict(os.environ))).probe)
    return "" if report.works else report.reason


class AgentFolder:
    """A project's folder, and a workspace beside it. `engine` is what runs JavaScript: node, or quickjs without it."""

    def __init__(self, root: Path, engine: str = "node") -> None:
        if why := why_no_bubblewrap():
            pytest.skip(f"needs bubblewrap: {why}")
        self.folder, self.workspace = root / "project", root / "workspace"
        (self.folder / "tools").mkdir(parents=True)
        self.workspace.mkdir()
        env = dict(os.environ)
        if engine == "quickjs":
            env["PATH"] = str(self._path_without_node(root))
        self.request = SandboxRequest(env=env, memory_mb=512)
        self.place = ToolPlace(self.workspace, self._sandbox, lambda: "bubblewrap", lambda: self.request)
        self.entries: list[ToolEntry] = []
        self._found: OwnTools | None = None

    @staticmethod
    def _path_without_node(root: Path) -> Path:
        programs = root / "programs"
        programs.mkdir()
        for name in ("bwrap", "python3"):
            found = next(Path(at, name) for at in os.get_exec_path() if os.access(Path(at, name), os.X_OK))
            (programs / name).symlink_to(found.resolve())
        return programs

    async def _sandbox(self) -> Sandbox:
        return alike(self.workspace, self.request, "bubblewrap")

    def write(self, path: str, text: str, *, executable: bool = False) -> Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755 if executable else 0o644)
        return file

    def add(self, path: str, text: str, /, **row: Any) -> None:
        """Write a tool's file, and a row for it."""
        self.write(path, text, executable=path.endswith(".sh"))
        name = re.sub(r"\W", "_", Path(path).stem)
        self.entries.append(ToolEntry(**{"name": name, "path": path, **row}))
        self._found = None

    def gets(self, **changed: Any) -> None:
        self.place = replace(self.place, **changed)
        self._found = None

    @property
    def found(self) -> OwnTools:
        if self._found is None:
            self._found = anyio.run(own_tools, self.folder, self.entries, self.place)
        return self._found

    def tool(self, name: str) -> Tool:
        return next(tool for tool in self.found.tools if tool.name == name)

    def schema(self, name: str) -> dict[str, Any]:
        arguments = self.tool(name).arguments
        assert isinstance(arguments, dict)
        return arguments

    def call(self, name: str, **arguments: Any) -> str:
        tool = self.tool(name)
        context = ToolContext("s", "call", self.workspace, {}, lambda _: None)
        return anyio.run(tool.run, decode(tool, arguments), context).content
