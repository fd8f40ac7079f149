"""shell: run a command in the sandbox. Folder and exported variables carry over to the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from lmagent.core.errors import ToolError
from lmagent.core.events import DurableEvent
from lmagent.core.sandbox import Exec, Exit, GetSandbox, Sandbox, Stream
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.tools.collect import Collector
from lmagent.tools.jobs import Jobs
from lmagent.tools.sanitize import one_line
from lmagent.tools.shell_state import ShellState, command_line, learn, restore

LONGEST = 600
LARGEST = 1_500_000
"""Characters of a command: the kernel's limit on all arguments is 2 MiB."""

_INVALID: dict[str, object] = {"code": "invalid_arguments"}


class Shell(Struct, frozen=True):
    """Arguments of shell."""

    command: str
    timeout: Annotated[int, Meta(description="seconds, at most 600", ge=1)] = 120
    background: Annotated[bool, Meta(description="return at once; see jobs")] = False


class ShellRunner:
    """Runs the commands of all sessions.

    Args:
        sandbox: where.
        events: the log of a session, to find the folder and variables that it ended with.
        spill: folder for long outputs.
        jobs: commands in the background.
        hosts: what commands may reach; empty means no network.
    """

    def __init__(
        self,
        sandbox: GetSandbox,
        events: Callable[[str], Iterable[DurableEvent]],
        spill: Path,
        jobs: Jobs,
        hosts: tuple[str, ...] = (),
    ) -> None:
        self._sandbox = sandbox
        self._events = events
        self._spill = spill
        self._jobs = jobs
        self._hosts = hosts
        self._states: dict[str, ShellState] = {}

    async def run(self, arguments: Shell, ctx: ToolContext) -> ToolOutput:
        """The tool."""
        _check(arguments)
        sandbox = await self._sandbox()
        state = self._state(ctx.session)
        if not (ctx.workspace / state.cwd).is_dir():
            state.cwd = "."
        command = Exec(
            command_line(arguments.command),
            cwd=state.cwd,
            env=dict(state.exports),
            timeout=None if arguments.background else min(arguments.timeout, LONGEST),
            hosts=self._hosts,
            decide=ctx.ask_host,
            channel=True,
            merge=True,
        )
        if arguments.background:
            return await self._jobs.start(sandbox, command, arguments.command, ctx)
        return await self._foreground(sandbox, command, ctx, state)

    async def _foreground(self, sandbox: Sandbox, command: Exec, ctx: ToolContext, state: ShellState) -> ToolOutput:
        collector = Collector(self._spill, ctx.emit)
        report = bytearray()

        def take(stream: Stream, piece: bytes) -> None:
            if stream == "channel":
                report.extend(piece[: 1 << 20])
            else:
                collector.feed(piece)

        try:
            running = await sandbox.start(command, take)
            end = await running.wait()
        except BaseException:
            collector.discard()
            raise
        collector.close()
        before = state.cwd
        left = learn(state, bytes(report), sandbox.root, sandbox.environment)
        told = "\n".join(filter(None, (collector.text().rstrip("\n"), *_remarks(end, state, before, left))))
        return ToolOutput(told, _facts(end, state, collector), full=collector.whole(), file=collector.file)

    def _state(self, session: str) -> ShellState:
        if session not in self._states:
            self._states[session] = restore(self._events(session))
        return self._states[session]


def shell_tool(runner: ShellRunner) -> Tool:
    """The tool, running commands by `runner`."""
    return Tool(
        name="shell",
        description=(
            "Run a bash command in the workspace, sandboxed, without network. "
            "Folder and exported variables persist; processes do not, except in background."
        ),
        arguments=Shell,
        effect="exec",
        run=runner.run,
        aliases=("bash", "run_command", "execute_command", "run_shell_command", "terminal", "exec"),
        renames={
            "cmd": "command",
            "script": "command",
            "timeout_seconds": "timeout",
            "run_in_background": "background",
        },
        summary=lambda arguments: f"shell {one_line(arguments.command, 110)}",
        preview=lambda arguments, _: arguments.command,
        command=lambda arguments: arguments.command,
    )


def _check(arguments: Shell) -> None:
    if "\0" in arguments.command:
        raise ToolError(
            "A command cannot contain a NUL character. Nothing was run.", data={"code": "invalid_arguments"}
        )
    if not arguments.command.strip():
        raise ToolError("The command is empty. Nothing was run.", data={"code": "invalid_arguments"})
    if len(arguments.command) > LARGEST:
        raise ToolError(
            f"The command has {len(arguments.command)} characters, at most {LARGEST} can be run. Nothing was run. "
            "Write it to a file and run the file.",
            data=_INVALID,
        )


def _remarks(end: Exit, state: ShellState, before: str, left: int) -> list[str]:
    """What the model should know besides the output."""
    remarks: list[str] = []
    if end.reason == "timeout":
        remarks.append(f"[timed out after {end.seconds:.0f} s; everything it started was killed]")
    elif end.reason == "memory":
        remarks.append("[killed: it used more memory than the sandbox allows]")
    elif end.reason == "killed":
        remarks.append("[killed]")
    elif end.code:
        remarks.append(f"[exit code {end.code}]")
    if left:
        remarks.append(f"[{left} background processes were killed with the command; use background=true to keep one]")
    if state.cwd != before:
        remarks.append(f"[folder: {state.cwd}]")
    return remarks + [f"[{note}]" for note in end.notes]


def _facts(end: Exit, state: ShellState, collector: Collector) -> dict[str, object]:
    saved = {"cwd": state.cwd, "exports": state.exports}
    return {
        "exit_code": end.code,
        "reason": end.reason,
        "seconds": round(end.seconds, 3),
        "bytes": collector.total,
        "shell": saved,
    }
