"""Run: one hook, with its input on standard input, like a command of the agent: in the sandbox, with a limit."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import anyio
from msgspec import Struct

from lmagent.core.errors import SandboxError, ungrouped
from lmagent.core.sandbox import Exec, Exit, GetSandbox, Running, Sandbox, Stream
from lmagent.hooks.answers import HookRun
from lmagent.hooks.config import Hook

MOST = 64_000
"""Bytes of output that are kept, of each stream: the beginning."""

# The private channel brings the input; a program expects a pipe that ends. Hooks of Claude Code write to ~/.claude.
PIPED = (
    '[ "$LMAGENT_SANDBOX" = off ] || mkdir -p ~/.claude; '
    'head -c "$2" <&"$LMAGENT_CHANNEL" | '
    '{ fd=$LMAGENT_CHANNEL; unset LMAGENT_CHANNEL; eval "exec $fd<&-"; exec bash -c "$1"; }'
)

Payload = Callable[[str], bytes]
"""Returns the input for a hook that finds the workspace at a path."""


class HookPlace(Struct, frozen=True):
    """Where hooks run; `hosts` are those that commands of the agent may reach."""

    workspace: Path
    sandbox: GetSandbox
    hosts: tuple[str, ...] = ()


async def run_hook(hook: Hook, place: HookPlace, payload: Payload, longest: float) -> HookRun:
    """Run a hook for `longest` seconds at most. Every failure is a result."""
    kept: dict[Stream, bytearray] = {"stdout": bytearray(), "stderr": bytearray(), "channel": bytearray()}

    def take(stream: Stream, piece: bytes) -> None:
        if stream != "channel":
            kept[stream] += piece[: max(0, MOST - len(kept[stream]))]

    limit = min(hook.timeout, longest)
    try:
        sandbox = await (place.sandbox() if hook.sandbox else _outside(place.workspace))
        data = payload(sandbox.root)
        variables = {"CLAUDE_PROJECT_DIR": sandbox.root, "LMAGENT_PROJECT_DIR": sandbox.root}
        command = Exec(
            ("bash", "-c", PIPED, "hook", hook.command, str(len(data))),
            env=variables if hook.sandbox else {**os.environ, **variables},
            timeout=limit,
            hosts=place.hosts if hook.sandbox else (),
            channel=True,
        )
        ended = await _feed(await sandbox.start(command, take), data)
    except SandboxError as failure:
        return HookRun(hook, failure=f"{failure.message}{f' ({failure.fix})' if failure.fix else ''}")
    out, err = (kept[stream].decode("utf-8", "replace") for stream in ("stdout", "stderr"))
    failure = {
        "exit": "",
        "timeout": f"it did not end within {limit:g} seconds",
        "memory": "it used more memory than the sandbox allows",
        "killed": "it was killed",
    }[ended.reason]
    return HookRun(hook, ended.code, out, err, ended.seconds, failure)


async def _outside(workspace: Path) -> Sandbox:
    """Return the place of a hook that the user's own configuration takes out of the sandbox."""
    from lmagent.sandbox.unconfined import Unconfined

    return Unconfined(workspace, os.environ)


async def _feed(running: Running, data: bytes) -> Exit:
    async def send() -> None:
        with suppress(SandboxError):  # a hook need not read its input
            await running.send(data)

    ended: list[Exit] = []
    with ungrouped():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            ended.append(await running.wait())
            tasks.cancel_scope.cancel()
    return ended[0]
