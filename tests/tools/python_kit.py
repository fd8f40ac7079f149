"""Calls of the python tool on a real sandbox, and a look at the processes that are left."""

import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import msgspec
import pytest

from lmagent.core.tool import ToolContext, ToolOutput
from lmagent.sandbox.bubblewrap import Bubblewrap
from lmagent.sandbox.environment import SandboxRequest
from lmagent.tools.python import Python, python_tool
from lmagent.tools.python.kernel import Kernels


@functools.cache
def why_no_bubblewrap() -> str:
    with TemporaryDirectory() as folder:
        report = anyio.run(Bubblewrap(Path(folder), SandboxRequest(env=dict(os.environ))).probe)
    return "" if report.works else report.reason


def need_bubblewrap() -> None:
    if why := why_no_bubblewrap():
        pytest.skip(f"needs bubblewrap: {why}")


class Cells:
    """A session's calls of the tool, in one run of the event loop."""

    def __init__(self, workspace: Path, *, grace: float = 30.0, **options: Any) -> None:
        need_bubblewrap()
        self.workspace = workspace
        self.sandbox = Bubblewrap(workspace, SandboxRequest(env=dict(os.environ), **options))
        self.kernels = Kernels(workspace / ".lmagent" / "spill", grace=grace)
        self.tool = python_tool(self.get, self.kernels)
        self.live: list[str] = []
        self.emit: Callable[[str], None] = self.live.append

    async def get(self) -> Bubblewrap:
        return self.sandbox

    async def call(self, code: str, session: str = "s", **arguments: Any) -> ToolOutput:
        decoded = msgspec.convert({"code": code, **arguments}, Python)
        context = ToolContext(session, "c", self.workspace, {}, lambda text: self.emit(text))
        return await self.tool.run(decoded, context)

    def run(self, *codes: str | dict[str, Any]) -> list[ToolOutput]:
        async def main() -> list[ToolOutput]:
            try:
                return [await self.call(**({"code": code} if isinstance(code, str) else code)) for code in codes]
            finally:
                await self.kernels.aclose()

        return anyio.run(main)

    def __call__(self, *codes: str | dict[str, Any]) -> list[str]:
        return [output.content for output in self.run(*codes)]


def processes_with(text: str) -> list[str]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if text.encode() in Path(f"/proc/{name}/cmdline").read_bytes():
                found.append(name)
        except OSError:
            continue
    return found


def is_gone_soon(text: str) -> bool:
    deadline = time.monotonic() + 10
    while processes_with(text) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not processes_with(text)
