"""Sandboxed: the sandbox of a workspace without a session: its promises, and a command of the user or of a script."""

from __future__ import annotations

import contextlib
from typing import BinaryIO

from lmagent.app.confined import Confined, request
from lmagent.app.wiring import HostOptions, load_settings
from lmagent.config.workspace import open_workspace
from lmagent.core.sandbox import Exec, Exit, Running, SandboxReport, Stream
from lmagent.sandbox.choose import reports


async def probe_all(options: HostOptions) -> list[SandboxReport]:
    """Return the probe's report of each sandbox that the settings allow."""
    loaded = load_settings(options)
    workspace = open_workspace(loaded.workspace).path
    return await reports(workspace, request(loaded.settings, workspace))


async def run_command(
    options: HostOptions, argv: tuple[str, ...], timeout: float | None, stdout: BinaryIO, stderr: BinaryIO
) -> Exit:
    """Run a command, and pass its output through. SandboxError means that the command did not run."""
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
        started.append(await sandbox.start(Exec(argv, timeout=timeout, hosts=confined.hosts), show))
        return await started[0].wait()
    finally:
        with contextlib.suppress(OSError):
            stdout.flush()
        await confined.aclose()
