"""A Python process in the sandbox that keeps its variables from call to call; one a session.

It talks to `kernel_main` in lines of JSON on the private channel, so that no output of a cell can be taken for an
answer. The lines from inside are not trusted: an invalid line ends the kernel.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import anyio
from msgspec import Struct
from msgspec.structs import replace

from lmagent.core.decoding import convert
from lmagent.core.errors import SandboxError, ToolError
from lmagent.core.sandbox import Exec, Exit, Running, Sandbox, Stream
from lmagent.tools.shell.collect import Collector

GRACE = 1.0
"""Seconds from the interrupt of a cell to the end of its kernel."""

_UP_WITHIN = 60.0  # seconds; it takes 50 ms, but not on a machine that swaps
_LONGEST_LINE = 4 << 20
_MARK_WITHIN = 2.0  # seconds; the marker is written before the answer, but arrives by another way
_BOOT = "import sys; exec(compile(sys.argv.pop(), '<lmagent>', 'exec'))"
_BROKEN = "it wrote something else to its channel"


class KernelReply(Struct, frozen=True):
    """The end of a cell: the `repr` of its last expression, its traceback, or the argument of its call of `exit`.

    `threads` of it still run, and Python would wait for them; `marked` is whether the end of its output is marked.
    """

    id: int
    value: str | None = None
    error: str | None = None
    exit: str | None = None
    threads: int = 0
    marked: bool = True


class Outcome(Struct, frozen=True):
    """The result of a cell.

    Attributes:
        reply: its end, None if the kernel ended first.
        late: it exceeded its time and was interrupted.
        fresh: the kernel is a new one, and the variables of an earlier one are gone.
        end: the end of the kernel, if it ended.
        broken: why the kernel had to be ended, if it broke the protocol.
    """

    output: Collector
    reply: KernelReply | None = None
    late: bool = False
    fresh: bool = False
    end: Exit | None = None
    broken: str = ""
    notes: tuple[str, ...] = ()


class _Call:
    def __init__(self, id: int) -> None:
        self.id = id
        # Unknown to a cell, so no output of a cell can be taken for its end.
        self.marker = f"\0lmagent {os.urandom(16).hex()}\n".encode()
        self.output: Collector | None = None
        self.reply: KernelReply | None = None
        self.replied = anyio.Event()
        self.seen = anyio.Event()


class Kernel:
    """One process, made by `start`; `fresh` until the model knows that it replaces an earlier one."""

    def __init__(self, sandbox: Sandbox, spill: Path, grace: float) -> None:
        self.sandbox = sandbox
        self._spill = spill
        self.ready = anyio.Event()
        self.fresh = False
        self.ended = anyio.Event()
        self._grace = grace
        self._up = False
        self._end: Exit | None = None
        self._failure: SandboxError | None = None
        self._broken = ""
        self._emit = _nowhere
        self._output = self._collector()
        self._held = b""  # output that may be the beginning of the marker
        self._call: _Call | None = None
        self._calls = 0
        self._line = bytearray()
        self._running: Running
        self._task: asyncio.Task[None]

    @classmethod
    async def start(cls, sandbox: Sandbox, spill: Path, grace: float, session: str) -> Kernel:
        """Start a kernel, and wait until it is up or has ended; it shares /tmp and home of the session.

        Raises SandboxError or, without Python, ToolError.
        """
        kernel = cls(sandbox, spill, grace)
        source = Path(__file__).with_name("kernel_main.py").read_text(encoding="utf-8")
        argv = ("python3", "-I", "-c", _BOOT, source)
        command = Exec(argv, timeout=None, channel=True, merge=True, session=session)
        kernel._running = await sandbox.start(command, kernel._take)
        # A plain task: a kernel outlives the call that starts it, so no task group of the call can hold it, and the
        # tool has none of its own. `Kernels` ends it; if that fails, the end of the loop cancels it, which kills.
        kernel._task = asyncio.get_running_loop().create_task(kernel._live())
        try:
            with anyio.move_on_after(_UP_WITHIN):
                await kernel.ready.wait()
        finally:
            if not kernel._up:
                await kernel.kill()
        if not kernel._up:
            raise kernel._failure or _no_python(kernel._end, kernel._output)
        return kernel

    async def run(self, code: str, timeout: float, emit: Callable[[str], None]) -> Outcome:
        """Run a cell until `timeout` seconds have passed, when it is interrupted. Cancelled, it leaves none of its
        processes. Raises SandboxError.
        """
        self._calls += 1
        self._running.mark()
        call = self._call = _Call(self._calls)
        self._emit = emit
        try:
            with anyio.move_on_after(timeout):
                await self._send({"id": call.id, "code": code, "marker": call.marker.decode()})
                await call.replied.wait()
            late = not call.replied.is_set()
            if late:
                await self._stop(call)
            with anyio.move_on_after(_MARK_WITHIN):
                await call.seen.wait()
        except BaseException:
            await self._stop(call)
            self._taken(call).discard()
            raise
        finally:
            output = self._taken(call)
            self._call, self._emit = None, _nowhere
        if self._failure is not None:
            output.discard()
            raise self._failure
        notes = self._end.notes if self._end is not None else self._running.inspect()
        return Outcome(output, call.reply, late, end=self._end, broken=self._broken, notes=notes)

    async def kill(self) -> None:
        with anyio.CancelScope(shield=True):
            self._running.kill()
            await self.ended.wait()

    async def close(self) -> None:
        await self.kill()
        self._output.discard()

    async def _live(self) -> None:
        try:
            self._end = await self._running.wait()
        except SandboxError as failure:
            self._failure = failure
        except Exception as bug:  # noqa: BLE001  the end of the task: the cell's caller must see the error
            self._failure = SandboxError(f"Python was lost: {type(bug).__name__}: {bug}")
        finally:
            self.ended.set()
            self.ready.set()
            if self._call is not None:
                self._call.replied.set()
                self._call.seen.set()

    async def _stop(self, call: _Call) -> None:
        """Interrupt the cell; end the kernel if that does not help, or if a thread or process of the cell continues."""
        if call.replied.is_set():
            return
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(self._grace):
                await self._send({"id": call.id, "interrupt": True})
                await call.replied.wait()
            if call.reply is None or call.reply.threads:
                await self.kill()

    async def _send(self, message: Mapping[str, object]) -> None:
        import json  # msgspec refuses half a character; this writes it as ASCII

        try:
            await self._running.send(json.dumps(message).encode() + b"\n")
        except SandboxError:  # it is ending, or has closed its channel
            self._running.kill()

    def _take(self, stream: Stream, piece: bytes) -> None:
        if stream == "channel":
            self._take_lines(piece)
            return
        call, piece = self._call, self._held + piece
        if call is None or call.seen.is_set():  # a thread or a process that an earlier cell left
            self._output.feed(piece)
            return
        before, marker, after = piece.partition(call.marker)
        if marker:
            self._output.feed(before)
            self._held = b""
            self._taken(call)
            self._output.feed(after)
            call.seen.set()
            return
        at = before.find(b"\0", max(0, len(before) - len(call.marker)))
        at = len(before) if at < 0 else at
        self._held = before[at:]
        self._output.feed(before[:at])

    def _taken(self, call: _Call) -> Collector:
        """Return the output of a call, which ends here if it has not ended."""
        if call.output is None:
            self._output.feed(self._held)
            self._output.close()
            self._held = b""
            call.output, self._output = self._output, self._collector()
        return call.output

    def _collector(self) -> Collector:
        return Collector(self._spill, lambda text: self._emit(text))

    def _take_lines(self, piece: bytes) -> None:
        import json  # see _send

        if self._broken:
            return
        *lines, rest = (self._line + piece).split(b"\n")
        self._line = rest
        try:
            for line in lines:
                self._answer(json.loads(line))
        except (ValueError, RecursionError):  # a ValidationError is a ValueError
            self._broken = _BROKEN
        if self._broken or len(rest) > _LONGEST_LINE or (rest and not rest.startswith(b"{")):
            self._broken = _BROKEN
            self._running.kill()

    def _answer(self, message: object) -> None:
        if message == {"ready": True}:
            self._up = True
            self.ready.set()
            return
        reply, call = convert(message, KernelReply), self._call
        if call is None or reply.id != call.id or call.reply is not None:
            return
        call.reply = reply
        if not reply.marked:
            call.seen.set()
        call.replied.set()


class Kernels:
    """The kernels of all sessions, which end with their session; `spill` is the folder for long outputs."""

    def __init__(self, spill: Path, *, grace: float = GRACE) -> None:
        self._spill = spill
        self._grace = grace
        self._kernels: dict[str, Kernel] = {}
        self._locks: dict[str, anyio.Lock] = {}

    async def run(
        self, session: str, sandbox: Sandbox, code: str, *, reset: bool, timeout: float, emit: Callable[[str], None]
    ) -> Outcome:
        """Run a cell in the session's kernel, which is started if necessary.

        A kernel that runs in another sandbox is ended. After `timeout` seconds the cell is interrupted.
        Raises SandboxError or ToolError.
        """
        async with self._locks.setdefault(session, anyio.Lock()):
            kernel = self._kernels.get(session)
            if kernel is None or reset or kernel.ended.is_set() or kernel.sandbox is not sandbox:
                if old := kernel:
                    await old.close()
                kernel = self._kernels[session] = await Kernel.start(sandbox, self._spill, self._grace, session)
                kernel.fresh = old is not None and not reset
            outcome = await kernel.run(code, timeout, emit)
            fresh, kernel.fresh = kernel.fresh, False
            return replace(outcome, fresh=fresh)

    async def close(self, session: str) -> None:
        self._locks.pop(session, None)
        kernel = self._kernels.pop(session, None)
        if kernel is not None:
            await kernel.close()

    async def aclose(self) -> None:
        for session in list(self._kernels):
            await self.close(session)


def _nowhere(_: str) -> None:
    """Show nothing: no call is running."""


def _no_python(end: Exit | None, output: Collector) -> ToolError:
    code = end.code if end else 0
    if code == 127:
        return ToolError("There is no python3 where commands run, so nothing was run. Use shell.")
    printed = output.text().strip()[-500:]
    return ToolError(f"Python did not start (exit code {code}), so nothing was run: {printed}")
