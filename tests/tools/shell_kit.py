"""One session's shell and jobs in a real sandbox, for the tests beside it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import anyio

from lmagent.app.confined import Confined
from lmagent.config.settings import Settings
from lmagent.core import events as ev
from lmagent.core.tool import ToolContext, ToolOutput
from lmagent.tools.shell import Shell, ShellRunner
from lmagent.tools.shell.jobs import Jobs, JobsArgs

T = TypeVar("T")


class Bench:
    """One session's shell."""

    def __init__(self, workspace: Path, events: tuple[ev.DurableEvent, ...] = ()) -> None:
        self.workspace = workspace
        self.shown: list[str] = []
        self.spill = workspace / ".lmagent" / "spill"
        self.confined = Confined(workspace, Settings())
        self.jobs = Jobs(self.spill)
        self.runner = ShellRunner(self.confined.get, lambda _: events, self.spill, self.jobs)

    def context(self) -> ToolContext:
        return ToolContext("s1", "c1", self.workspace, {}, self.shown.append)

    async def shell(self, command: str, **more) -> ToolOutput:
        return await self.runner.run(Shell(command, **more), self.context())

    async def waited(self, **more) -> ToolOutput:
        return await self.jobs.run(JobsArgs("wait", **{"id": "job1", **more}), self.context())

    async def job(self, action: str, **more) -> str:
        return (await self.jobs.run(JobsArgs(action, **more), self.context())).content  # type: ignore[arg-type]

    async def aclose(self) -> None:
        await self.jobs.aclose()
        await self.confined.aclose()


def during(bench: Bench, act: Callable[[], Awaitable[T]]) -> T:
    """Run an act of a session, and end the session."""

    async def main() -> T:
        try:
            return await act()
        finally:
            await bench.aclose()

    return anyio.run(main)


def play(bench: Bench, *commands: str) -> list[ToolOutput]:
    """Run commands one after the other, and end the session."""

    async def act() -> list[ToolOutput]:
        return [await bench.shell(command) for command in commands]

    return during(bench, act)


def logged(output: ToolOutput) -> ev.DurableEvent:
    """What the log has of a call, read back from its bytes."""
    finished = ev.ToolFinished(call_id="c", tool="shell", status="ok", content="", data=output.data)
    return ev.decode(ev.encode(finished))
