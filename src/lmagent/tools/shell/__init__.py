"""shell: runs a command in the sandbox. Folder and exported variables carry over to the next command."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from lmagent.core.errors import ToolError
from lmagent.core.events import DurableEvent
from lmagent.core.sandbox import NOT_ALLOWED, Exec, Exit, GetSandbox, HostOpener, Sandbox, Stream
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.tools.page import BYTES, paged, size
from lmagent.tools.read import REMARKS, adapting
from lmagent.tools.sanitize import one_line
from lmagent.tools.shell.carry import Learned, ShellState, command_line, learn, restore, settle
from lmagent.tools.shell.collect import Collector
from lmagent.tools.shell.jobs import Jobs

if TYPE_CHECKING:
    from lmagent.sandbox.packages import PackageHosts

LONGEST = 600
LARGEST = 1_500_000
"""Characters of a command: the kernel's limit on all arguments is 2 MiB."""

_REPORT = 4 << 20
"""Bytes of a command's report at its end."""

_PROXIES = re.compile(r"(?:HTTPS?|ALL|NO)_PROXY|NODE_USE_ENV_PROXY", re.IGNORECASE)
"""Variables that the sandbox sets for a command that may reach hosts; an earlier command's values would be invalid."""

_INVALID: dict[str, object] = {"code": "invalid_arguments"}


class Shell(Struct, frozen=True):
    """Arguments of shell."""

    command: str
    timeout: Annotated[int, Meta(description="seconds, at most 600", ge=1)] = 120
    background: Annotated[bool, Meta(description="return at once; see jobs")] = False


class ShellNetwork(Struct, frozen=True):
    """The hosts that commands may reach; `packages` returns the registries that they may reach once the user agrees."""

    hosts: tuple[str, ...] = ()
    packages: Callable[[], PackageHosts] | None = None


class _Run(Struct, frozen=True):
    """A command in the foreground.

    Attributes:
        environment: its variables without those of earlier commands.
        refused: the registries that it was not allowed to reach, as they become known.
    """

    sandbox: Sandbox
    command: Exec
    text: str
    environment: Mapping[str, str]
    refused: Sequence[str]


class ShellRunner:
    """Runs the commands of all sessions.

    `events` returns the log of a session, which says in which folder it ended; `spill` is the folder for long outputs.
    With `apart`, every command begins anew, in a home of its own, and leaves no state to the commands that follow.
    """

    def __init__(
        self,
        sandbox: GetSandbox,
        events: Callable[[str], Iterable[DurableEvent]],
        spill: Path,
        jobs: Jobs,
        network: ShellNetwork = ShellNetwork(),  # noqa: B008 - frozen
        *,
        longest: int = LONGEST,
        apart: bool = False,
    ) -> None:
        self._sandbox = sandbox
        self._events = events
        self._spill = spill
        self._jobs = jobs
        self._hosts, self._packages = network.hosts, network.packages
        self._longest = longest
        self._apart = apart
        self._states: dict[str, ShellState] = {}

    async def run(self, arguments: Shell, ctx: ToolContext) -> ToolOutput:
        _check(arguments)
        sandbox = await self._sandbox()
        state = ShellState() if self._apart else self._state(ctx.session)
        moved = settle(state, sandbox.workspace)
        text = _line_feeds(arguments.command)
        refused: list[str] = []
        opens, added = self._ways(sandbox, text, ctx, refused)
        has_proxy = bool(self._hosts or opens)
        exports = {name: value for name, value in state.exports.items() if not (has_proxy and _PROXIES.match(name))}
        command = Exec(
            command_line(text, {**added, **exports}),
            cwd=state.cwd,
            timeout=None if arguments.background else min(arguments.timeout, self._longest),
            hosts=self._hosts,
            opens=opens,
            decide=ctx.ask_host if self._hosts else None,
            barred=ctx.barred,
            channel=True,
            merge=True,
            session="" if self._apart else ctx.session,
        )
        if arguments.background:
            return await self._jobs.start(sandbox, command, text, ctx, [f"[{remark}]" for remark in moved])
        run = _Run(sandbox, command, text, {**sandbox.environment, **added}, refused)
        return await self._foreground(run, ctx, state, moved)

    def _ways(
        self, sandbox: Sandbox, text: str, ctx: ToolContext, refused: list[str]
    ) -> tuple[HostOpener | None, dict[str, str]]:
        """Return a command's way to package registries, if it may need them, and its variables for packages."""
        from lmagent.tools.shell.installs import install_variables, may_install, venv_variables  # not before a command

        added = venv_variables(sandbox)
        packages = self._packages() if self._packages is not None else None
        if packages is None or not (may_install(text) or packages.allows(ctx.session)):
            return None, added

        async def ask(host: str, port: int) -> bool:
            allowed = await ctx.ask_packages(host, port)
            refused.extend(() if allowed else (host,))
            return allowed

        return packages.opener(ctx.session, ask), added | install_variables(sandbox, packages.env)

    async def _foreground(self, run: _Run, ctx: ToolContext, state: ShellState, moved: list[str]) -> ToolOutput:
        from lmagent.tools.shell.installs import hint

        collector = Collector(self._spill, ctx.emit)
        report = bytearray()

        def take(stream: Stream, piece: bytes) -> None:
            if stream == "channel":
                report.extend(piece[: _REPORT - len(report)])
            else:
                collector.feed(piece)

        try:
            running = await run.sandbox.start(run.command, take)
            end = await running.wait()
        except BaseException:
            collector.discard()
            raise
        collector.close()
        before = state.cwd
        learned = learn(state, bytes(report), run.sandbox.root, run.environment)
        if run.command.hosts or run.command.opens:
            state.exports = {name: value for name, value in state.exports.items() if not _PROXIES.match(name)}
        remarks = [*moved, *_remarks(end, state, before, learned), *hint(run.sandbox, run.text, end.code)]
        remarks += [NOT_ALLOWED] if run.refused else []
        told = [f"[{remark}]" for remark in remarks]
        facts = {**_facts(end, collector), **({} if self._apart else {"shell": state.saved}), "notes": told}

        def shown(room: int) -> ToolOutput:
            text = collector.text(room - size(told)).rstrip("\n")
            return ToolOutput("\n".join(filter(None, (text, *told))), facts, file=collector.file)

        return shown(BYTES) if collector.file is None else paged(shown)

    def _state(self, session: str) -> ShellState:
        if session not in self._states:
            self._states[session] = restore(self._events(session))
        return self._states[session]


def shell_tool(runner: ShellRunner) -> Tool:
    return Tool(
        name="shell",
        description=(
            "Run a bash command in the workspace. "
            "Folder and exported variables are kept for the next call; processes only with background."
        ),
        arguments=Shell,
        effect="exec",
        run=runner.run,
        aliases=("bash", "run_command", "execute_command", "run_shell_command", "terminal", "exec"),
        renames={
            **dict.fromkeys(("cmd", "script"), "command"),
            "timeout_seconds": "timeout",
            **dict.fromkeys(("run_in_background", "is_background"), "background"),
            **REMARKS,
        },
        adapt=adapting("shell"),
        summary=lambda arguments: f"shell {one_line(arguments.command, 110)}",
        preview=lambda arguments, _: _line_feeds(arguments.command),
        command=lambda arguments: _line_feeds(arguments.command),
    )


def _check(arguments: Shell) -> None:
    if "\0" in arguments.command:
        raise ToolError("A command cannot contain a NUL character. Nothing was run.", data=_INVALID)
    if not arguments.command.strip():
        raise ToolError("The command is empty. Nothing was run.", data=_INVALID)
    if len(arguments.command) > LARGEST:
        raise ToolError(
            f"The command has {len(arguments.command)} characters, at most {LARGEST} can be run. Nothing was run. "
            "Write it to a file and run the file.",
            data=_INVALID,
        )


def _line_feeds(command: str) -> str:
    """Remove the carriage returns of a command that was written with CR LF throughout."""
    if command.count("\r\n") != command.count("\n"):
        return command
    return command.replace("\r\n", "\n").removesuffix("\r")


def _remarks(end: Exit, state: ShellState, before: str, learned: Learned) -> list[str]:
    remarks: list[str] = []
    if end.reason == "timeout":
        remarks.append(f"timed out after {end.seconds:.0f} s; everything it started was killed")
    elif end.reason == "memory":
        remarks.append("killed: it used more memory than the sandbox allows")
    elif end.reason == "killed":
        remarks.append("killed")
    elif end.code:
        remarks.append(f"exit code {end.code}")
    if learned.left:
        count = "1 background process was" if learned.left == 1 else f"{learned.left} background processes were"
        remarks.append(f"{count} killed with the command; use background=true to keep one")
    if end.reason == "exit" and not learned.heard:
        remarks.append(
            "the shell did not get to its end (exec, kill, exit with a trap of its own), or is no bash: "
            "folder and exported variables are as before this command"
        )
    if state.cwd != before:
        remarks.append(f"the next command begins in {one_line(state.cwd)}")
    return [*remarks, *learned.remarks, *end.notes]


def _facts(end: Exit, collector: Collector) -> dict[str, object]:
    return {
        "exit_code": end.code,
        "reason": end.reason,
        "seconds": round(end.seconds, 3),
        "bytes": collector.total,
    }
