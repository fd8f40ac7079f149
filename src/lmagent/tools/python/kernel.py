"""A Python process in the sandbox that keeps its variables from call to call; one a session.

It gets its cells as lines of JSON on the private channel. Its answers are part of its output, between marks that a cell
does not know: the cell's output, the mark, the result, the mark again, and a `KernelReply` on one line.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import anyio
from msgspec import Struct
from msgspec.structs import replace

from lmagent.core.decoding import decode_json
from lmagent.core.errors import SandboxError, ToolError
from lmagent.core.sandbox import Exec, Exit, Running, Sandbox, Stream
from lmagent.tools.shell.collect import Collector

GRACE = 1.0
"""Seconds from the interrupt of a cell to the end of its kernel."""

_LONGEST_ANSWER = 1 << 20  # bytes from the first mark on; the kernel cuts a result far below that
_BOOT = "import sys; exec(compile(sys.argv.pop(), '<lmagent>', 'exec'))"


class KernelReply(Struct, frozen=True):
    """The end of a cell; `threads` of it still run, and Python would wait for them.

    `result` is the `repr` of its last expression, its traceback, or the argument of its call of `exit`.
    """

    status: Literal["ok", "error", "exit"]
    threads: int = 0
    result: str = ""


class Outcome(Struct, frozen=True):
    """The result of a cell.

    Attributes:
        reply: its end, None if the kernel ended first.
        late: it exceeded its time and was interrupted.
        fresh: the kernel is a new one, and the variables of an earlier one are gone.
        end: the end of the kernel, if it ended.
    """

    output: Collector
    reply: KernelReply | None = None
    late: bool = False
    fresh: bool = False
    end: Exit | None = None
    notes: tuple[str, ...] = ()


class _Call:
    def __init__(self, output: Collector) -> None:
        self.mark = f"\0lmagent {os.urandom(16).hex()}\0".encode()
        self.output = output
        self.held = b""  # the beginning of a mark, perhaps, or of the answer
        self.answers = False  # after the first mark
        self.reply: KernelReply | None = None
        self.over = anyio.Event()


class Kernel:
    """One process, made by `start`; `fresh` until the model knows that it replaces an earlier one."""

    def __init__(self, sandbox: Sandbox, spill: Path, grace: float) -> None:
        self.sandbox = sandbox
        self._spill = spill
        self.fresh = False
        self.ended = anyio.Event()
        self._grace = grace
        self._end: Exit | None = None
        self._failure: SandboxError | None = None
        self._emit = _nowhere
        self._output = self._collector()
        self._call: _Call | None = None
        self._calls = 0
        self._running: Running
        self._task: asyncio.Task[None]

    @classmethod
    async def start(cls, sandbox: Sandbox, spill: Path, grace: float, session: str) -> Kernel:
        """Start a kernel that shares /tmp and home of the session. Raises SandboxError."""
        from lmagent.tools.shell.installs import in_venv  # not before a cell runs

        kernel = cls(sandbox, spill, grace)
        source = Path(__file__).with_name("kernel_main.py").read_text(encoding="utf-8")
        argv = in_venv(sandbox, ("python3", "-I", "-c", _BOOT, source))
        command = Exec(argv, timeout=None, channel=True, merge=True, session=session)
        kernel._running = await sandbox.start(command, kernel._take)
        # A plain task: a kernel outlives the call that starts it, so no task group of the call can hold it, and the
        # tool has none of its own. `Kernels` ends it; if that fails, the end of the loop cancels it, which kills.
        kernel._task = asyncio.get_running_loop().create_task(kernel._live())
        return kernel

    async def run(self, code: str, timeout: float, emit: Callable[[str], None]) -> Outcome:
        """Run a cell until `timeout` seconds have passed, when it is interrupted. Cancelled, it leaves none of its
        processes. Raises SandboxError, or ToolError where there is no Python.
        """
        self._calls += 1
        self._running.mark()
        call = self._call = _Call(self._output)
        self._emit = emit
        try:
            with anyio.move_on_after(timeout):
                await self._send({"id": self._calls, "code": code, "mark": call.mark.decode()})
                await call.over.wait()
            late = not call.over.is_set()
            if late:
                await self._stop(call)
        except BaseException:
            await self._stop(call)
            self._end_output(call)
            call.output.discard()
            raise
        finally:
            self._call, self._emit = None, _nowhere
            self._end_output(call)
        if self._failure is not None or (self._end is not None and self._end.code == 127):
            call.output.discard()
            raise self._failure or ToolError("There is no python3 where commands run, so nothing was run. Use shell.")
        notes = self._end.notes if self._end is not None else self._running.inspect()
        return Outcome(call.output, call.reply, late, end=self._end, notes=notes)

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
            if self._call is not None:
                self._call.over.set()

    async def _stop(self, call: _Call) -> None:
        """Interrupt the cell; end the kernel if that does not help, or if a thread or process of the cell continues."""
        if call.over.is_set():
            return
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(self._grace):
                await self._send({"id": self._calls, "interrupt": True})
                await call.over.wait()
            if call.reply is None or call.reply.threads:
                await self.kill()

    async def _send(self, message: Mapping[str, object]) -> None:
        import json  # msgspec refuses half a character; this writes it as ASCII

        try:
            await self._running.send(json.dumps(message).encode() + b"\n")
        except SandboxError:  # it is ending, or has closed its channel
            self._running.kill()

    def _take(self, stream: Stream, piece: bytes) -> None:
        call = self._call
        if stream == "channel":
            return
        if call is None or call.reply is not None:  # a thread or a process that an earlier cell left
            self._output.feed(piece)
            return
        piece, call.held = call.held + piece, b""
        if not call.answers:
            before, mark, after = piece.partition(call.mark)
            if not mark:
                at = before.find(b"\0", max(0, len(before) - len(call.mark)))
                at = len(before) if at < 0 else at
                call.output.feed(before[:at])
                call.held = before[at:]
                return
            call.output.feed(before)
            self._end_output(call)
            call.answers, piece = True, after
        result, mark, rest = piece.partition(call.mark)
        line, end, after = rest.partition(b"\n")
        if end:
            self._answer(call, result, line)
            self._output.feed(after)
        elif len(piece) > _LONGEST_ANSWER:
            self._running.kill()
        else:
            call.held = piece

    def _answer(self, call: _Call, result: bytes, line: bytes) -> None:
        try:
            reply = decode_json(line, KernelReply)
        except ValueError:  # the cell has found the mark, and answers itself
            self._running.kill()
            return
        call.reply = replace(reply, result=result.decode("utf-8", "replace"))
        call.over.set()

    def _end_output(self, call: _Call) -> None:
        """End the output of a call, unless it has ended."""
        if call.output is self._output:
            call.output.feed(call.held)
            call.output.close()
            call.held, self._output = b"", self._collector()

    def _collector(self) -> Collector:
        return Collector(self._spill, lambda text: self._emit(text))


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
