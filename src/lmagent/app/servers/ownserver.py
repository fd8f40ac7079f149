"""Own server: a model server of this program, which ends with it. Run as `python -m lmagent.app.servers.ownserver`.

It reads the key from its standard input, prints its address or the reason why it does not listen, and serves on a free
port of loopback, for clients with the key, until its standard input ends. Its log and its workers' logs are deleted at
the end.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Self

import anyio
import anyio.to_thread
from anyio.abc import Process

from lmagent.app.clock import SystemClock
from lmagent.core.errors import LmagentError

START = 30.0  # seconds for the child's start; models are loaded later
STOP = 15.0  # seconds for its end


class OwnServer:
    """The parent's end; `url` ends in `/v1`, and is empty before it is entered."""

    def __init__(self, models: Path) -> None:
        self.url = ""
        self.key = secrets.token_urlsafe(32)
        self._models = models
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        """The child's process id; 0 if it does not run."""
        return self._process.pid if self._process is not None and self._process.returncode is None else 0

    async def ended(self) -> None:
        """Wait until its process is gone, for whatever reason."""
        if self._process is not None:
            await self._process.wait()

    async def start(self) -> None:
        """Start it. Raise LmagentError if it does not come up."""
        # A session of its own: Ctrl+C in the terminal is for the parent, which decides when the models go. -P: the
        # current folder may be a stranger's project, from which nothing may be imported.
        command = [sys.executable, "-P", "-m", "lmagent.app.servers.ownserver", str(self._models)]
        self._process = process = await anyio.open_process(command, stderr=subprocess.DEVNULL, start_new_session=True)
        assert process.stdin is not None
        assert process.stdout is not None
        line = b""
        with anyio.move_on_after(START), suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            await process.stdin.send(f"{self.key}\n".encode())
            while not line.endswith(b"\n"):
                line += await process.stdout.receive()
        said = line.decode(errors="replace").strip() or "it said nothing"
        if not said.startswith("http://"):
            await self.aclose()
            raise LmagentError(f"the built-in model server did not start: {said}", terminal="lmagent server start")
        self.url = f"{said}/v1"

    async def aclose(self) -> None:
        """End it, and with it each model that it runs."""
        process, self._process = self._process, None
        if process is None:
            return
        with anyio.CancelScope(shield=True):
            if process.stdin is not None:
                await process.stdin.aclose()
            with anyio.move_on_after(STOP) as waited:
                await process.wait()
            if waited.cancelled_caught:
                process.kill()
                await process.wait()
            await process.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def _serve(models: Path, key: str, folder: Path) -> None:
    from lmagent.modelserver.http.listening import Signals, listen
    from lmagent.modelserver.http.serving import RouterServer, ServerSettings, serve
    from lmagent.modelserver.opening import open_server

    signals = Signals()  # after a signal, too, the worker's files are removed
    listener = listen("127.0.0.1", 0)
    settings = ServerSettings(folder, port=0, key=key, models_dir=models)
    async with open_server(settings, SystemClock()) as router, anyio.create_task_group() as group:

        async def end_with_parent(server: RouterServer) -> None:
            await anyio.to_thread.run_sync(_wait_for_end, abandon_on_cancel=True)
            server.should_exit = True

        def started(server: RouterServer) -> None:
            signals.end(server)
            group.start_soon(end_with_parent, server)
            _say(f"http://127.0.0.1:{listener.getsockname()[1]}")

        await serve(router, listener, started=started)
        group.cancel_scope.cancel()


def _wait_for_end() -> None:
    while os.read(0, 4096):
        pass


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    try:
        key = sys.stdin.buffer.readline().decode().strip()
        with tempfile.TemporaryDirectory(prefix="lmagent-server-") as folder:
            anyio.run(_serve, Path(sys.argv[1]), key, Path(folder))
    except (LmagentError, OSError) as error:
        _say(" ".join(str(error).split()))
        sys.exit(1)
    os._exit(0)  # a thread may still wait for the end of standard input


if __name__ == "__main__":
    main()
