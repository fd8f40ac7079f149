"""FakeSandbox: commands that end as a test says, without a process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio.lowlevel

from lmagent.core.errors import SandboxError
from lmagent.core.ports import Clock, ExecResult, Promises

KILLED = -9


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command does.

    Attributes:
        output: what it prints.
        exit_code: its exit status; negative is the signal that ended it.
        seconds: how long it takes, on the sandbox's clock; it prints first.
        writes: files that it leaves in the workspace, by relative path.
    """

    output: str = ""
    exit_code: int = 0
    seconds: float = 0.0
    writes: Mapping[str, bytes] = field(default_factory=dict[str, bytes])


Program = Mapping[tuple[str, ...], Ran] | Callable[[Sequence[str]], Ran | None]


class FakeSandbox:
    """Runs what the program knows; anything else is a command that is not found (exit 127).

    Args:
        program: what each command line does: a mapping, or a function that gives None for an unknown command.
        clock: passes the time that commands take.
        promises: what it claims to keep.

    Attributes:
        runs: every command line that was run.
        broken: set it, and nothing is run any more: every call is a SandboxError with this text.
    """

    def __init__(
        self,
        program: Program,
        clock: Clock,
        promises: Promises = Promises("fake", filesystem=True, network=True, processes=True, limits=True),  # noqa: B008
    ) -> None:
        self.promises = promises
        self.runs: list[tuple[str, ...]] = []
        self.broken = ""
        self._program = program
        self._clock = clock

    async def run(
        self, argv: Sequence[str], *, workspace: Path, timeout: float, emit: Callable[[str], None]
    ) -> ExecResult:
        """See `lmagent.core.ports.Sandbox`."""
        if self.broken:
            raise SandboxError(self.broken)
        line = tuple(argv)
        self.runs.append(line)
        known = self._program(line) if callable(self._program) else self._program.get(line)
        ran = known or Ran(f"{line[0] if line else ''}: command not found\n", 127)
        await anyio.lowlevel.checkpoint()
        if ran.output:
            emit(ran.output)
        if ran.seconds > timeout:
            await self._clock.sleep(timeout)
            return ExecResult(KILLED, timed_out=True, output=ran.output)
        if ran.seconds:
            await self._clock.sleep(ran.seconds)
        for name, content in ran.writes.items():
            path = workspace / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return ExecResult(ran.exit_code, timed_out=False, output=ran.output)
