"""Sandbox: where commands run, and its actual guarantees. One instance serves one workspace.

    running = await sandbox.start(Exec(("make", "test"), timeout=120), show)
    exit = await running.wait()

`wait` does the reading, so every started command must be awaited. Cancelling `wait` kills the command with everything
that it started, and so does the end of this process, however it ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct, field

Stream = Literal["stdout", "stderr", "channel"]
OnOutput = Callable[[Stream, bytes], None]
"""Receives raw pieces as they come; "channel" is the command's private channel."""

CHANNEL = "LMAGENT_CHANNEL"
"""Variable that names the file descriptor of the private channel inside."""

EndReason = Literal["exit", "timeout", "killed", "memory"]


class Limits(Struct, frozen=True):
    """Limits of one command, with everything it starts. The probe says which of them are enforced.

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


NOT_ALLOWED = "package registries are not allowed in this session; the user can allow them: --allow-host packages"
"""Why a command does not reach a registry."""


class HostOpener(Struct, frozen=True):
    """Decides on a group of hosts that a command may reach besides the listed ones.

    Attributes:
        pattern: returns the pattern by which the command may reach a host and port; an empty text if the host is of the
            group and refused, None if it is not of the group.
        loopback: names of this machine among them, which programs must not reach inside.
    """

    pattern: Callable[[str, int], Awaitable[str | None]]
    loopback: tuple[str, ...] = ()


class Exec(Struct, frozen=True):
    """A command.

    Attributes:
        argv: program and arguments; the program is looked for inside.
        cwd: folder, relative to the workspace.
        env: variables; the rest of the environment is the sandbox's own small one.
        timeout: seconds after which it is killed; None for no end.
        hosts: `host:port` patterns that it may reach; empty means no network at all.
        opens: more hosts, which are asked about. A sandbox that cannot let hosts through runs the command without
            network, unless `hosts` names some.
        decide: asked about a host that is not among them; None refuses it.
        barred: whether a rule of the user forbids a host, listed or not.
        channel: give it a private channel, a socket whose number is in `LMAGENT_CHANNEL`.
        merge: its errors go to its output, in order.
        session: its commands share /tmp and home, if the sandbox can do that; empty for new ones.
    """

    argv: tuple[str, ...]
    cwd: str = "."
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    timeout: float | None = 120.0
    hosts: tuple[str, ...] = ()
    opens: HostOpener | None = None
    decide: Callable[[str, int], Awaitable[bool]] | None = None
    barred: Callable[[str, int], bool] | None = None
    channel: bool = False
    merge: bool = False
    session: str = ""


class Exit(Struct, frozen=True):
    """How a command ended.

    Attributes:
        code: its exit status, in a shell's form: 128 + the signal that ended it, 127 for a missing program.
        reason: whether it ended by itself, at its timeout, by `kill`, or for want of memory.
        seconds: how long it ran.
        notes: actions of the sandbox afterwards, in words: a quarantined git hook.
    """

    code: int
    reason: EndReason
    seconds: float
    notes: tuple[str, ...] = ()


class Promise(Struct, frozen=True):
    """One guarantee of a sandbox, and whether an attack on it from inside failed.

    Attributes:
        name: `files`, `network`, `processes`, `kernel`, `environment`, `memory`, `pids` …
        kept: True when the attack failed (or the limit is in force).
        detail: how it is kept, or which part is open.
    """

    name: str
    kept: bool
    detail: str


class SandboxReport(Struct, frozen=True):
    """The result of a probe.

    Attributes:
        backend: `bubblewrap`, `docker`, `landlock` or `off`.
        version: of its program.
        works: whether commands run with the required guarantees: files, network and processes.
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
        """Whether it works, but does not keep every promise."""
        return self.works and not all(promise.kept for promise in self.promises)


class Running(Protocol):
    """A command that was started."""

    async def wait(self) -> Exit:
        """Read until it has ended and everything it started is gone. Cancelled, it kills them. Await it once."""
        ...

    async def send(self, data: bytes) -> None:
        """Write to the private channel. Raises SandboxError if the command has ended or has closed it."""
        ...

    def mark(self) -> None:
        """Exclude changes made so far from the next `inspect`; called before the command gets more work."""
        ...

    def inspect(self) -> tuple[str, ...]:
        """Check the command's changes since `mark`; returns the actions of the sandbox, see `Exit.notes`."""
        ...

    def kill(self) -> None:
        """Kill it with everything that it started; `wait` returns soon after."""
        ...


GetSandbox: TypeAlias = "Callable[[], Awaitable[Sandbox]]"
"""Returns the sandbox of a workspace; raises SandboxError if none is available."""


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

    async def probe(self) -> SandboxReport:
        """Attack itself from inside and report which guarantees held. Never raises for a sandbox that does not work."""
        ...

    async def start(self, command: Exec, output: OnOutput) -> Running:
        """Start a command. Raises SandboxError if nothing was run."""
        ...

    async def aclose(self) -> None:
        """Release its resources (a container, a proxy)."""
        ...
