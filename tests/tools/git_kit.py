"""A user's repository and the git tools, on a real sandbox."""

import os
import subprocess
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from python_kit import need_bubblewrap

from lmagent.core.errors import ToolError
from lmagent.core.sandbox import Sandbox
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.sandbox.bubblewrap import Bubblewrap
from lmagent.sandbox.environment import SandboxRequest
from lmagent.tools.git import git_tools


class Repo:
    """A workspace with a repository of a user's, and the tools."""

    def __init__(self, workspace: Path, sandbox: Sandbox | None = None) -> None:
        if sandbox is None:
            need_bubblewrap()
        self.workspace = workspace
        self.sandbox = sandbox or Bubblewrap(workspace, SandboxRequest(env=dict(os.environ)))
        self.tools: dict[str, Tool] = {tool.name: tool for tool in git_tools(self.get)}
        self.hidden = ""

    async def get(self) -> Sandbox:
        return self.sandbox

    def git(self, *arguments: str, cwd: Path | None = None) -> str:
        """The user's own git, outside."""
        who = {
            f"GIT_{role}_{what}": f"user{at}"
            for role in ("AUTHOR", "COMMITTER")
            for what, at in (("NAME", ""), ("EMAIL", "@x"))
        }
        env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", **who}
        done = subprocess.run(["git", *arguments], cwd=cwd or self.workspace, env=env, capture_output=True, text=True)
        return done.stdout

    def write(self, path: str, text: str = "one\n") -> Path:
        file = self.workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def output(self, tool: str, **arguments: Any) -> ToolOutput:
        one = self.tools[f"git_{tool}"]
        hides = lambda path: bool(self.hidden) and path.startswith(self.hidden)  # noqa: E731
        context = ToolContext("s", "c", self.workspace, {}, lambda _: None, hidden=hides)
        return anyio.run(one.run, msgspec.convert(arguments, one.arguments), context)

    def __call__(self, tool: str, **arguments: Any) -> str:
        return self.output(tool, **arguments).content

    def refused(self, tool: str, **arguments: Any) -> str:
        with pytest.raises(ToolError) as caught:
            self.output(tool, **arguments)
        return caught.value.message
