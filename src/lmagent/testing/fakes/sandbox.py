"""FakeSandbox: commands with results from the test, without a process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.lowlevel

from lmagent.core.errors import SandboxError
from lmagent.core.ports import Clock
from lmagent.core.sandbox import EndReason, Exec, Exit, OnOutput, Promise, SandboxReport

KILLED = 137


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """The effects of a command."""

    output: str = ""
    errors: str = ""  # its error output, after that
    exit_code: int = 0  # its exit status; 128 + the signal that ended it
    seconds: float = 0.0  # how long it takes, on the sandbox's clock; it prints first
    # files that it leaves in the workspace, by relative path
    writes: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    channel: bytes = b""  # its output on the private channel, at its end


Program = Mapping[tuple[str, ...], ProgramRun] | Callable[[Sequence[str]], ProgramRun | None]


class FakeSandbox:
    """Runs the commands of `program`; any other is a command that is not found (exit 127).

    Args:
        program: the effects of each command line: a mapping, or a function that returns None for an unknown command.
        clock: passes the time that commands take.
        workspace: where they leave their files.
        report: the result of its probe.

    Attributes:
        runs: every command that was started.
        broken: set it, and every later start raises a SandboxError with this text.
    """

    def __init__(
        self,
        program: Program,
        clock: Clock,
        workspace: Path,
        report: SandboxReport = SandboxReport("fake", promises=(Promise("files", True, "nothing is run"),)),  # noqa: B008
    ) -> None:
        self.workspace = workspace
        self.root = str(workspace)
        self.environment: Mapping[str, str] = {"PATH": "/usr/bin:/bin"}
        self.runs: list[Exec] = []
        self.broken = ""
        self._program = program
        self._clock = clock
        self._report = report

    async def probe(self) -> SandboxReport:
        return self._report

    async def start(self, command: Exec, output: OnOutput) -> FakeRunning:
        if self.broken:
            raise SandboxError(self.broken)
        self.runs.append(command)
        known = self._program(command.argv) if callable(self._program) else self._program.get(command.argv)
        ran = known or ProgramRun(
            errors=f"{command.argv[0] if command.argv else ''}: command not found\n", exit_code=127
        )
        return FakeRunning(command, ran, output, self._clock, self.workspace)

    async def aclose(self) -> None:
        pass


class FakeRunning:
    """A command of a `FakeSandbox`. `sent`: the bytes written to its channel."""

    def __init__(self, command: Exec, ran: ProgramRun, output: OnOutput, clock: Clock, workspace: Path) -> None:
        self.sent = b""
        self._command = command
        self._ran = ran
        self._output = output
        self._clock = clock
        self._workspace = workspace
        self._killed = anyio.Event()

    async def wait(self) -> Exit:
        await anyio.lowlevel.checkpoint()
        if self._ran.output:
            self._output("stdout", self._ran.output.encode())
        if self._ran.errors:
            self._output("stdout" if self._command.merge else "stderr", self._ran.errors.encode())
        timeout = self._command.timeout
        reason: EndReason = "exit"
        if timeout is not None and self._ran.seconds > timeout:
            reason = "timeout"
        spent = min(self._ran.seconds, timeout) if timeout is not None else self._ran.seconds
        if spent and await self._is_killed_within(spent):
            reason = "killed"
        if reason != "exit":
            return Exit(KILLED, reason, spent)
        for name, content in self._ran.writes.items():
            path = self._workspace / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        if self._command.channel and self._ran.channel:
            self._output("channel", self._ran.channel)
        return Exit(self._ran.exit_code, "exit", spent)

    async def _is_killed_within(self, seconds: float) -> bool:
        async with anyio.create_task_group() as tasks:

            async def sleep() -> None:
                await self._clock.sleep(seconds)
                tasks.cancel_scope.cancel()

            tasks.start_soon(sleep)
            await self._killed.wait()
            tasks.cancel_scope.cancel()
        return self._killed.is_set()

    async def send(self, data: bytes) -> None:
        self.sent += data

    def mark(self) -> None:
        pass

    def inspect(self) -> tuple[str, ...]:
        return ()

    def kill(self) -> None:
        self._killed.set()
