"""A Python process in the sandbox that keeps its variables from call to call; one a session.

It talks to `kernel_main` in frames on the private channel, so that no output of a cell can be taken for an answer. The
frames from inside are not trusted: an invalid frame ends the kernel.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import msgspec
from msgspec import Struct

from lmagent.core.decoding import convert
from lmagent.core.errors import SandboxError, ToolError
from lmagent.core.sandbox import Exec, Exit, Running, Sandbox, Stream
from lmagent.tools.kernel_output import Output
from lmagent.tools.sanitize import printable

GRACE = 1.0
"""Seconds from the interrupt of a cell to the end of its kernel."""

SHOWN = 256 * 1024
"""Bytes of a cell's output that are shown live."""

_UP_WITHIN = 60.0  # seconds; it takes 50 ms, but not on a machine that swaps
_LARGEST_FRAME = 4 << 20
_MARK_WITHIN = 2.0  # seconds; the marker is written before the answer, but arrives by another way
_BOOT = "import sys; exec(compile(sys.argv.pop(), '<lmagent>', 'exec'))"


class KernelReply(Struct, frozen=True):
    """The end of a cell.

    Attributes:
        value: `repr` of its last expression.
        error: the traceback.
        exit: the argument of its call of `exit`.
        threads: number of its threads that still run and that Python would wait for.
        marked: whether the end of its output is marked.
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
        output: all output since the cell before.
        reply: its end, None if the kernel ended first.
        late: it exceeded its time and was interrupted.
        fresh: the kernel is a new one, and the variables of an earlier one are gone.
        end: the end of the kernel, if it ended.
        broken: why the kernel had to be ended, if it broke the protocol.
        notes: the sandbox's notes about the cell.
    """

    output: Output
    reply: KernelReply | None = None
    late: bool = False
    fresh: bool = False
    end: Exit | None = None
    broken: str = ""
    notes: tuple[str, ...] = ()


class _Call:
    def __init__(self, id: int, emit: Callable[[str], None], output: Output) -> None:
        self.id = id
        self.output = output
        # Unknown to a cell, so no output of a cell can be taken for its end.
        self.marker = f"\0lmagent {os.urandom(16).hex()}\n".encode()
        self.reply: KernelReply | None = None
        self.replied = anyio.Event()
        self.seen = anyio.Event()
        self._emit = emit
        self._room = SHOWN
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def take(self, piece: bytes) -> None:
        self.output.add(piece)
        if self._room <= 0 or not piece:
            return
        text = self._decoder.decode(piece[: self._room])
        self._room -= len(piece)
        self._emit(printable(text) + ("\n[… more is not shown live …]\n" if self._room <= 0 else ""))

    def end(self) -> None:
        self.replied.set()
        self.seen.set()


class Kernel:
    """One process. Made by `start`.

    Attributes:
        ready: set when the kernel is up, or has ended before.
        up: whether it has come up.
        fresh: it replaces an earlier kernel, and the model does not know yet that the variables are gone.
        ended: set when it has ended, with all processes that it started.
        end: its exit.
        failure: why there is no exit.
        broken: why it had to be ended, if it broke the protocol.
    """

    def __init__(self, sandbox: Sandbox, grace: float) -> None:
        self.sandbox = sandbox
        self._grace = grace
        self.ready = anyio.Event()
        self.up = False
        self.fresh = False
        self.ended = anyio.Event()
        self.end: Exit | None = None
        self.failure: SandboxError | None = None
        self.broken = ""
        self._output = Output()
        self._call: _Call | None = None
        self._calls = 0
        self._frames = bytearray()
        self._held = b""
        self._running: Running
        self._task: asyncio.Task[None]

    @classmethod
    async def start(cls, sandbox: Sandbox, grace: float = GRACE, session: str = "") -> Kernel:
        """Start a kernel, and wait until it is up or has ended.

        Args:
            grace: seconds from the interrupt of a cell to the end of the kernel.
            session: the session whose /tmp and home it shares.

        Raises:
            SandboxError: the process was not started.
            ToolError: there is no Python.
        """
        kernel = cls(sandbox, grace)
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
            if not kernel.up:
                await kernel.kill()
        except BaseException:
            await kernel.kill()
            raise
        if not kernel.up:
            raise kernel.failure or _no_python(kernel.end, kernel._output)
        return kernel

    async def run(self, code: str, timeout: float, emit: Callable[[str], None]) -> Outcome:
        """Run a cell until `timeout` seconds have passed, when it is interrupted. Cancelled, it leaves none of its
        processes.

        Raises:
            SandboxError: the sandbox failed.
        """
        self._calls += 1
        self._running.mark()
        call = self._call = _Call(self._calls, emit, self._output)
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
            raise
        finally:
            call.take(self._held)
            self._held, self._call = b"", None
            if self._output is call.output:
                self._output = Output()
        if self.failure is not None:
            raise self.failure
        notes = self.end.notes if self.end is not None else self._running.inspect()
        return Outcome(call.output, call.reply, late, end=self.end, broken=self.broken, notes=notes)

    async def kill(self) -> None:
        with anyio.CancelScope(shield=True):
            self._running.kill()
            await self.ended.wait()

    async def _live(self) -> None:
        try:
            self.end = await self._running.wait()
        except SandboxError as failure:
            self.failure = failure
        except Exception as bug:  # noqa: BLE001  the end of the task: the cell's caller must see the error
            self.failure = SandboxError(f"Python was lost: {type(bug).__name__}: {bug}")
        finally:
            self.ended.set()
            self.ready.set()
            if self._call is not None:
                self._call.end()

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

    async def _send(self, frame: Mapping[str, object]) -> None:
        import json  # msgspec refuses half a character

        data = json.dumps(frame).encode()  # ASCII: half a character, which is no UTF-8, gets through
        try:
            await self._running.send(struct.pack(">I", len(data)) + data)
        except SandboxError:  # it is ending, or has closed its channel
            self._running.kill()

    def _take(self, stream: Stream, piece: bytes) -> None:
        if stream == "channel":
            self._take_frames(piece)
        elif self._call is None or self._call.seen.is_set():
            self._output.add(piece)  # a thread or a process that an earlier cell left
        else:
            self._take_output(self._call, self._held + piece)

    def _take_output(self, call: _Call, data: bytes) -> None:
        """Take output up to the marker, which may arrive in two pieces."""
        at = data.find(call.marker)
        if at >= 0:
            call.take(data[:at])
            self._held = b""
            self._output = Output()
            self._output.add(data[at + len(call.marker) :])
            call.seen.set()
            return
        begins = data.rfind(call.marker[:1], max(0, len(data) - len(call.marker) + 1))
        cut = begins if begins >= 0 and call.marker.startswith(data[begins:]) else len(data)
        self._held = data[cut:]
        call.take(data[:cut])

    def _take_frames(self, piece: bytes) -> None:
        import json  # see _send

        if self.broken:
            return None
        self._frames += piece
        while len(self._frames) >= 4:
            (size,) = struct.unpack_from(">I", self._frames)
            if size > _LARGEST_FRAME:
                return self._break("it wrote something else to its channel")
            if len(self._frames) < 4 + size:
                return None
            data = bytes(self._frames[4 : 4 + size])
            del self._frames[: 4 + size]
            try:
                self._answer(json.loads(data))
            except (ValueError, RecursionError):  # a ValidationError is a ValueError
                return self._break("it wrote something else to its channel")
        return None

    def _answer(self, frame: Any) -> None:
        if frame == {"ready": True}:
            self.up = True
            self.ready.set()
            return
        reply, call = convert(frame, KernelReply), self._call
        if call is None or reply.id != call.id or call.reply is not None:
            return
        call.reply = reply
        if not reply.marked:
            call.seen.set()
        call.replied.set()

    def _break(self, why: str) -> None:
        self.broken = why
        self._frames.clear()
        self._running.kill()


class Kernels:
    """The kernels of all sessions, which end with their session; for `grace` see `Kernel.start`."""

    def __init__(self, *, grace: float = GRACE) -> None:
        self._grace = grace
        self._kernels: dict[str, Kernel] = {}
        self._locks: dict[str, anyio.Lock] = {}

    async def run(
        self, session: str, sandbox: Sandbox, code: str, *, reset: bool, timeout: float, emit: Callable[[str], None]
    ) -> Outcome:
        """Run a cell in the session's kernel, which is started if necessary.

        A kernel that runs in another sandbox is ended. After `timeout` seconds the cell is interrupted.

        Raises:
            SandboxError: the cell was not run.
            ToolError: there is no Python.
        """
        async with self._locks.setdefault(session, anyio.Lock()):
            old = self._kernels.get(session)
            if old is None or reset or old.ended.is_set() or old.sandbox is not sandbox:
                if old is not None:
                    await old.kill()
                kernel = await Kernel.start(sandbox, self._grace, session)
                self._kernels[session] = kernel
                kernel.fresh = old is not None and not reset
            else:
                kernel = old
            outcome = await kernel.run(code, timeout, emit)
            fresh, kernel.fresh = kernel.fresh, False
            return msgspec.structs.replace(outcome, fresh=fresh)

    async def close(self, session: str) -> None:
        self._locks.pop(session, None)
        kernel = self._kernels.pop(session, None)
        if kernel is not None:
            await kernel.kill()

    async def aclose(self) -> None:
        for session in list(self._kernels):
            await self.close(session)


def _no_python(end: Exit | None, output: Output) -> ToolError:
    code = end.code if end else 0
    said = output.text().strip()[-500:]
    if code == 127:
        return ToolError("There is no python3 where commands run, so nothing was run. Use shell.")
    return ToolError(f"Python did not start (exit code {code}), so nothing was run: {said}")
