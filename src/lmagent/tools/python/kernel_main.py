"""The kernel inside the sandbox: runs cells and keeps their variables. Its text is sent to a bare `python3`, 3.8 or
newer.

Lines of JSON arrive on the private channel:

  {"id": 1, "code": "…", "mark": "…"}     run a cell
  {"id": 1, "interrupt": true}            raise KeyboardInterrupt in it

Cells print to the process's own output, as do their children and C code. When a cell is over, the mark, its result, the
mark again and a line such as {"status": "ok", "threads": 0} follow there. Other processes may print into a long result,
but not into the marks and the line.

The main thread runs the cells, a second one reads the channel: that is how an interrupt gets in.
"""

from __future__ import annotations

import _thread
import ast
import contextlib
import faulthandler
import fcntl
import io
import json
import linecache
import os
import queue
import signal
import sys
import threading
import traceback
import types
import warnings
from collections.abc import Callable
from typing import Any

OWN = "<lmagent>"
"""File name that the host compiles this text under; frames of it are never shown."""

LONGEST = 100_000
"""Characters of a result."""

AT_ONCE = 4096
"""Bytes of a write that no other process can print into: PIPE_BUF of Linux."""

OUT_OF_THE_WAY = 900
"""Lowest number of our own descriptors: code that closes or reuses small numbers does not hit them."""

CUT_OFF = 70
"""Exit status after the channel is lost; the host reads it."""

_LIBRARY = os.path.dirname(os.__file__)


def write_all(descriptor: int, data: bytes) -> None:
    os.set_blocking(descriptor, True)  # a child may have made it non-blocking
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


class CellRunner:
    """Runs cells in the namespace of a module `__main__`, so that their classes and functions can be pickled."""

    def __init__(self, channel: int) -> None:
        self._channel = _away(channel)
        self._stdout, self._stderr, self._null = _away(1, True), _away(2, True), os.open(os.devnull, os.O_RDONLY)
        self._null = _away(self._null)
        self._own = sys.modules["__main__"]  # kept: a module that is freed clears its names
        self._module = types.ModuleType("__main__")
        self._pid = os.getpid()
        self._main = threading.get_ident()
        self._cells: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._current = self._wanted = 0
        self._running = False
        self._interrupted = False
        self._streams: list[io.TextIOWrapper] = []

    def serve(self) -> None:
        signal.signal(signal.SIGINT, self._on_interrupt)
        sys.modules["__main__"] = self._module
        sys.argv[:] = [""]
        sys.path.insert(0, "")  # after our own imports: files of the workspace must not shadow these modules
        # Python 3.12 warns at every fork of a process with a second thread. Ours is no danger: it holds no lock.
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        _thread.start_new_thread(self._listen, ())
        while True:
            request = self._cells.get()
            result, reply = self._cell(request)
            mark = request["mark"].encode()
            pieces = [mark, result.encode(), mark + json.dumps(reply).encode() + b"\n"]
            short = sum(map(len, pieces)) <= AT_ONCE
            try:
                for data in [b"".join(pieces)] if short else pieces:
                    write_all(self._stdout, data)
            except OSError:  # the cell has closed our output: no answer could arrive
                os._exit(CUT_OFF)

    def _listen(self) -> None:
        try:
            lines = open(self._channel, "rb")  # noqa: SIM115  until the end of the process
            for line in lines:
                request = json.loads(line)
                if not request.get("interrupt"):
                    self._cells.put(request)
                    continue
                # before the check of the running cell: a cell that is about to begin looks at it
                self._wanted = request["id"]
                if self._wanted == self._current:
                    signal.pthread_kill(self._main, signal.SIGINT)
        finally:  # the host is gone, or the cell has closed the channel
            os._exit(CUT_OFF)

    def _on_interrupt(self, *_: object) -> None:
        if self._running:  # once a cell, and never in our own code
            self._running = False
            self._interrupted = True
            raise KeyboardInterrupt

    def _cell(self, request: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Run a cell; return its result, and the status with the number of its threads that still run."""
        self._prepare()
        threads, children = set(threading.enumerate()), _descendants()
        self._interrupted = False
        self._current = request["id"]
        value, error = self._attempt(self._execute, request["code"], f"<cell {request['id']}>")
        self._leave_if_forked(error)
        status = "error" if error is not None else "ok"
        if isinstance(error, SystemExit):
            status, (value, _) = "exit", self._attempt(str, error.code)
        elif error is not None:
            text, _ = self._attempt(explain, error)
            value = text or f"{type(error).__name__} (its text cannot be made)"
        self._current = 0
        if self._interrupted:  # no process or thread of the cell may continue, least of all in the workspace
            for pid in _descendants() - children:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        started = [one for one in threading.enumerate() if one not in threads and not one.daemon]
        self._flush()
        return _bounded(value or "", LONGEST), {"status": status, "threads": len(started)}

    def _attempt(self, function: Callable[..., Any], *arguments: Any) -> tuple[Any, BaseException | None]:
        """Call a function that may run the user's code; return its result and its exception. Interrupts reach it."""
        try:
            try:
                self._running = True
                return function(*arguments), None
            finally:
                self._running = False
        except BaseException as error:  # noqa: BLE001  whatever a cell raises ends the cell and nothing else
            return None, error

    def _execute(self, code: str, name: str) -> str | None:
        """Run a cell; return the `repr` of its last expression, if it has one."""
        if self._wanted == self._current:
            self._interrupted = True
            raise KeyboardInterrupt
        # Half a character cannot be compiled; written as an escape it means the same in a string.
        code = code.encode("utf-8", "backslashreplace").decode()
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)
        tree: Any = compile(code, name, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)
        exec(compile(tree, name, "exec", dont_inherit=True), self._module.__dict__)
        if last is None:
            return None
        value = eval(compile(last, name, "eval", dont_inherit=True), self._module.__dict__)
        if value is None or code.rstrip().endswith(";"):
            return None
        return _bounded(repr(value), LONGEST)

    def _prepare(self) -> None:
        """Restore the state that earlier cells may have changed: descriptors, streams, the signal's handler."""
        with contextlib.suppress(OSError):
            os.dup2(self._null, 0)
            os.dup2(self._stdout, 1)
            os.dup2(self._stderr, 2)
            os.set_blocking(1, True)
            os.set_blocking(2, True)
        signal.signal(signal.SIGINT, self._on_interrupt)
        if not self._streams or any(stream.closed for stream in self._streams):
            # Unbuffered, so that the order with output of children and C code is kept.
            files = [io.FileIO(at, "r" if at == 0 else "w", closefd=False) for at in (0, 1, 2)]
            self._streams = [
                io.TextIOWrapper(file, "utf-8", "backslashreplace", "\n", write_through=True)  # type: ignore
                for file in files
            ]
        sys.stdin, sys.stdout, sys.stderr = self._streams

    def _flush(self) -> None:
        with contextlib.suppress(BaseException):
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            if "ctypes" in sys.modules:  # C code that printed through the C library's own buffer
                sys.modules["ctypes"].CDLL(None).fflush(None)

    def _leave_if_forked(self, error: BaseException | None) -> None:
        """Exit in a child that the cell forked: it must not answer for the kernel."""
        if os.getpid() == self._pid:
            return
        code: Any = error.code if isinstance(error, SystemExit) else int(error is not None)
        with contextlib.suppress(BaseException):
            if error is not None and not isinstance(error, SystemExit):
                sys.stderr.write(explain(error))
        self._flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


def explain(error: BaseException) -> str:
    """Return the traceback: frames of cells and of the workspace's files, and the innermost one wherever it is."""
    whole = traceback.TracebackException(type(error), error, error.__traceback__)
    waiting: list[Any] = [whole]
    while waiting:
        one = waiting.pop()
        frames = [frame for frame in one.stack if frame.filename != OWN]
        cells = [at for at, frame in enumerate(frames) if frame.filename.startswith("<cell ")]
        frames = frames[cells[0] :] if cells else frames
        one.stack[:] = [frame for frame in frames[:-1] if not _of_a_library(frame.filename)] + frames[-1:]
        waiting += filter(None, (one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or ())))
    has_frames = whole.stack or whole.__cause__ or whole.__context__
    return _bounded("".join(whole.format() if has_frames else whole.format_exception_only()), LONGEST)


def _of_a_library(name: str) -> bool:
    return name.startswith(("<frozen", _LIBRARY)) or "site-packages" in name or "dist-packages" in name


def _bounded(text: str, most: int) -> str:
    if len(text) > most:
        text = f"{text[: most // 2]}\n[… {len(text) - most} characters left out …]\n{text[-most // 2 :]}"
    return text.encode("utf-8", "backslashreplace").decode()


def _descendants() -> set[int]:
    children: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    found: set[int] = set()
    waiting = [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.update(below)
        waiting += below
    return found


def _away(descriptor: int, keep: bool = False) -> int:
    """Return the same file under a high number, which children do not inherit."""
    try:
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY)
    except (OSError, ValueError):  # a lower limit on descriptors
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    if not keep:
        os.close(descriptor)
    return moved


if __name__ == "__main__":
    faulthandler.enable(2, all_threads=False)
    CellRunner(int(os.environ.pop("LMAGENT_CHANNEL"))).serve()
