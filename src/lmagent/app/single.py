"""One tool or command without a session, called by the user.

A tool has the same resolution, decoding, path safety and permission rules as in a session.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal

from msgspec import Struct
from msgspec.structs import replace

from lmagent.app.confined import Confined, request
from lmagent.app.options import HostOptions, load_settings
from lmagent.app.registry import Registry
from lmagent.app.wiring import open_registry, permission_rules
from lmagent.config.loader import Loaded
from lmagent.config.workspace import open_workspace
from lmagent.core.errors import ToolError
from lmagent.core.messages import ToolCall
from lmagent.core.sandbox import Exec, Exit, Running, SandboxReport, Stream
from lmagent.core.tool import FileMark, ToolContext, refuse_host
from lmagent.engine.toolbox import Invocation, Toolbox
from lmagent.policy.gate import Request, is_barred, judge, sight
from lmagent.policy.paths import located, through_links
from lmagent.sandbox.choose import reports
from lmagent.sandbox.hosts import Target
from lmagent.tools.shell.installs import install_variables, venv_variables

Ask = Callable[[str], bool]  # asks the user whether a call may run; receives the call and the reason for the question


class CallResult(Struct, frozen=True):
    """How a call ended. A command that exits with another code than 0 counts as failed."""

    status: Literal["done", "failed", "refused"]
    text: str


class AllSeen(dict[str, FileMark]):
    """Counts each existing file as read just now: the user who calls the tool has looked at it."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace

    def get(self, path: str, default: Any = None) -> Any:
        target = self._workspace / path
        return FileMark(hashlib.sha256(target.read_bytes()).hexdigest(), False) if target.is_file() else default


def open_toolbox(workspace: Path | None) -> Toolbox:
    return Toolbox(open_registry(load_settings(HostOptions(workspace))).offered())


async def call_tool(workspace: Path | None, name: str, arguments: str, ask: Ask) -> CallResult:
    """Run one tool, if the rules and the mode allow it, or the user does; `arguments` are JSON text."""
    loaded = load_settings(HostOptions(workspace))
    registry = open_registry(loaded)
    try:
        invocation = Toolbox(registry.offered(), registry.outside).resolve(ToolCall("call", name, arguments))
        context = _permitted(invocation, loaded, registry, ask)
        output = await invocation.tool.run(invocation.arguments, context)
    except ToolError as refusal:
        return CallResult("refused", refusal.message)
    finally:
        await registry.aclose()
    if output.file is not None:
        output.file.unlink()
    return CallResult("done" if output.data.get("exit_code", 0) == 0 else "failed", output.content)


def _permitted(invocation: Invocation, loaded: Loaded, registry: Registry, ask: Ask) -> ToolContext:
    """Return the context of the call. Raise ToolError if a rule forbids the call, or the user does not allow it."""
    path, rules = registry.workspace, permission_rules(loaded, registry)
    tool = invocation.tool
    targets = located(str(path), invocation.targets)
    asked = Request(tool.name, tool.effect, targets, invocation.command, invocation.outside, invocation.hosts)
    verdict = judge(asked, loaded.settings.permission_mode, rules)
    if verdict.decision == "deny":
        raise ToolError(f"Denied: {verdict.reason}. It was not run.")
    if verdict.decision == "ask" and not ask(f"{invocation.summary} — {verdict.reason}"):
        raise ToolError(f"Not run: {verdict.reason}, and it was not allowed. To run it without a question: --yes")

    async def ask_host(host: str, port: int) -> bool:
        """Judge the redirect of a tool that connects like the call; commands reach only the listed hosts."""
        if tool.effect != "net":
            return False
        there = judge(replace(asked, hosts=(str(Target(host, port)),)), loaded.settings.permission_mode, rules)
        return there.decision == "allow" or (there.decision == "ask" and ask(f"{tool.name} — {there.reason}"))

    def barred(host: str, port: int) -> bool:
        return is_barred(asked, str(Target(host, port)), rules)

    context = ToolContext("", "call", path, AllSeen(path), lambda _: None, ask_host=ask_host, barred=barred)
    hides = sight(asked, rules)
    return replace(context, hidden=through_links(str(path), hides)) if hides else context


async def probe_all(options: HostOptions) -> list[SandboxReport]:
    """Return the probe's report of each sandbox that the settings allow."""
    loaded = load_settings(options)
    workspace = open_workspace(loaded.workspace).path
    return await reports(workspace, request(loaded.settings, workspace))


async def run_command(
    options: HostOptions, argv: tuple[str, ...], timeout: float | None, stdout: BinaryIO, stderr: BinaryIO
) -> Exit:
    """Run a command in the sandbox, and pass its output through. SandboxError means that it did not run."""
    loaded = load_settings(options)
    confined = Confined(open_workspace(loaded.workspace).path, loaded.settings)
    started: list[Running] = []

    def show(stream: Stream, piece: bytes) -> None:
        try:
            target = stdout if stream == "stdout" else stderr
            target.write(piece)
            target.flush()
        except OSError:  # the reader of the output has gone, so the command need not continue
            for running in started:
                running.kill()

    try:
        sandbox = await confined.get()
        command = Exec(argv, timeout=timeout, hosts=confined.hosts)
        if confined.packages.allows(""):
            variables = {**venv_variables(sandbox), **install_variables(sandbox, confined.packages.env)}
            command = replace(command, env=variables, opens=confined.packages.opener("", refuse_host))
        started.append(await sandbox.start(command, show))
        return await started[0].wait()
    finally:
        with suppress(OSError):
            stdout.flush()
        await confined.aclose()
