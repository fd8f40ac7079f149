"""Sandbox: where commands run, and what it really promises. One instance serves one workspace.

    running = await sandbox.start(Exec(("make", "test"), timeout=120), show)
    exit = await running.wait()

`wait` does the reading: whoever starts a command waits for it. Cancelling `wait` kills the command with everything
that it started, and so does the end of this process, however it ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct, field

Stream = Literal["stdout", "stderr", "channel"]
OnOutput = Callable[[Stream, bytes], None]
"""Takes raw pieces as they come; "channel" is what the command wrote to its private channel."""

CHANNEL = "LMAGENT_CHANNEL"
"""Variable that names the file descriptor of the private channel inside."""

EndReason = Literal["exit", "timeout", "killed", "memory"]


class Limits(Struct, frozen=True):
    """What one command, with everything it starts, may use. How much of it is enforced, the probe says.

    Attributes:
        memory_mb: main memory, MiB.
        pids: processes and threads at once.
        cpus: processors.
        file_mb: size of one file, MiB.
        tmp_mb: size of its /tmp, MiB.
    """

    memory_mb: int = 2048
    pids: int = 256
    cpus: float = 0.0
    file_mb: int = 1024
    tmp_mb: int = 256


class Exec(Struct, frozen=True):
    """A command.

    Attributes:
        argv: program and arguments; the program is looked for inside.
        cwd: folder, relative to the workspace.
        env: variables; the rest of the environment is the sandbox's own small one.
        timeout: seconds after which it is killed; None for no end.
        hosts: `host:port` patterns that it may reach; empty means no network at all.
        decide: asked about a host that is not among them; None refuses it.
        channel: give it a private channel, a socket whose number is in `LMAGENT_CHANNEL`.
        merge: its errors go to its output, in order.
        session: whose /tmp and home it shares with the session's other commands, where the sandbox can; empty for new
            ones of its own.
    """

    argv: tuple[str, ...]
    cwd: str = "."
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    timeout: float | None = 120.0
    hosts: tuple[str, ...] = ()
    decide: Callable[[str, int], Awaitable[bool]] | None = None
    channel: bool = False
    merge: bool = False
    session: str = ""


class Exit(Struct, frozen=True):
    """How a command ended.

    Attributes:
        code: its exit status, as a shell has it: 128 + the signal that ended it, 127 for a program that is not there.
        reason: whether it ended by itself, at its timeout, by `kill`, or for want of memory.
        seconds: how long it ran.
        notes: what the sandbox did about it afterwards, in words: a quarantined git hook.
    """

    code: int
    reason: EndReason
    seconds: float
    notes: tuple[str, ...] = ()


class Promise(Struct, frozen=True):
    """One thing that a sandbox claims, and whether an attack on it from inside failed.

    Attributes:
        name: `files`, `network`, `processes`, `kernel`, `environment`, `memory`, `pids` …
        kept: True when the attack failed (or the limit is in force).
        detail: how it is kept, or what is open.
    """

    name: str
    kept: bool
    detail: str


class Report(Struct, frozen=True):
    """What a probe found.

    Attributes:
        backend: `bubblewrap`, `docker`, `landlock` or `off`.
        version: of the program behind it.
        works: whether commands can be run with what must hold: files, network and processes.
        promises: all of them.
        reason: why it does not work.
        fix: what to type to make it work.
    """

    backend: str
    version: str = ""
    works: bool = True
    promises: tuple[Promise, ...] = ()
    reason: str = ""
    fix: str = ""

    @property
    def degraded(self) -> bool:
        """It works, and not everything is kept."""
        return self.works and not all(promise.kept for promise in self.promises)


class Running(Protocol):
    """A command that was started."""

    async def wait(self) -> Exit:
        """Read until it has ended and everything it started is gone. Cancelled, it kills them. Await it once."""
        ...

    async def send(self, data: bytes) -> None:
        """Write to the private channel.

        Raises:
            SandboxError: the command has ended or has closed it.
        """
        ...

    def mark(self) -> None:
        """Before it is told to do more: what was done meanwhile was not its doing."""
        ...

    def inspect(self) -> tuple[str, ...]:
        """What the sandbox did about what it has done since `mark`, in words; see `Exit.notes`."""
        ...

    def kill(self) -> None:
        """Kill it with everything that it started; `wait` returns soon after."""
        ...


GetSandbox: TypeAlias = "Callable[[], Awaitable[Sandbox]]"
"""Gives the sandbox of a workspace; raises SandboxError where there is none."""


class Sandbox(Protocol):
    """Where commands run.

    Attributes:
        workspace: the folder that they work in.
        root: that folder's path inside.
        environment: the variables that every command begins with.
    """

    workspace: Path
    root: str
    environment: Mapping[str, str]

    async def probe(self) -> Report:
        """Attack itself from inside and say what held. Never raises for a sandbox that does not work."""
        ...

    async def start(self, command: Exec, output: OnOutput) -> Running:
        """Start a command.

        Raises:
            SandboxError: nothing was run.
        """
        ...

    async def aclose(self) -> None:
        """Release what it holds (a container, a proxy)."""
        ...
