"""The program inside a container.

  hold SECONDS    the container's first process
  serve           at the other end of a connection (`docker exec -i`); runs one command after the other

A `docker exec` for each command takes too long, so a connection is used again. `serve` gives each command a keeper, and
speaks frames on its standard input and output (`HEADER`, then the body). The end of its input ends the command.

The commands of one container are not protected from each other, nor is their supervisor from them: they have one user.
`hold` notices a killed supervisor and kills its orphans; no `kill -9 -1` reaches `hold` itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import select
import signal
import socket
import struct
import sys
import time
from typing import Any

from lmagent.sandbox.inside.keeper import (
    DUMPABLE,
    SUBREAPER,
    bury,
    control,
    exit_status,
    install_filter,
    keep,
    kill,
    processes,
)

HEADER = struct.Struct(">BI")
"""Kind and length of the body."""

START, SEND = range(1, 3)
OUT, ERR, CHANNEL, DONE = range(11, 15)
"""To the supervisor: `START` (JSON), first with our requirements and then with one command after the other; `SEND`,
bytes for the channel. From it: output; bytes of the channel, empty once that is closed; and `DONE`, the answer to a
`START` (JSON, with `error` if it failed)."""

PIECE = 65536
TICK = 0.05
OOM = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")


def main() -> None:
    hold(float(sys.argv[2])) if sys.argv[1] == "hold" else Supervisor().serve()


def hold(idle: float) -> None:
    """Stay for `idle` seconds after the last supervisor has gone, and kill its leftover processes.

    A supervisor comes from outside, so its parent has no number here (0). Orphans of a supervisor are our children.
    """
    control(DUMPABLE, 0)  # otherwise any command could write its memory, and no other process watches this one
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    seen = time.monotonic()
    while time.monotonic() - seen < idle:
        time.sleep(0.5)
        reap()
        for pid, (parent, state) in processes().items():
            if parent == 1 or (parent == 0 and pid != 1 and state in "Tt"):
                kill(pid, signal.SIGKILL)  # a supervisor that a command stopped would never see the end of its host
            if parent == 0 and pid != 1:
                seen = time.monotonic()


def reap() -> dict[int, int]:
    """Return the children that have ended, with their status."""
    ended: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = found[1]
    return ended


def _await_first() -> None:
    """Wait until the container's first process is no longer dumpable: no command may run before."""
    with contextlib.suppress(OSError):
        for _ in range(200):
            os.readlink("/proc/1/fd/0")
            time.sleep(TICK)


def _note(*_: object) -> None:
    """Ignore a signal: the wakeup descriptor reports it."""


def out_of_memory() -> int:
    """Return how often the kernel killed a process here for lack of memory."""
    for path in OOM:
        with contextlib.suppress(OSError, ValueError), open(path) as file:
            return sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
    return 0


class Supervisor:
    """Runs commands, passes their output on, and kills everything when its input ends."""

    def __init__(self) -> None:
        self.inbox = bytearray()
        self.streams: dict[int, int] = {}  # the command's open ends, with the kind of frame for what they bring
        self.waiting = bytearray()  # bytes that the channel has not taken yet; meanwhile no input is read

    def serve(self) -> None:
        control(SUBREAPER, 1)
        control(DUMPABLE, 0)  # commands have the same user: this keeps them from our descriptors and memory
        wake, woken = os.pipe()
        for end in (wake, woken):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(woken)
        for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, _note)  # ignored here, but unlike with SIG_IGN not in the commands
        with contextlib.suppress(EOFError, BrokenPipeError):
            _answer(**_inspect(self._started()))
            while True:
                _answer(**self._run(self._started(), wake))
        bury()

    def _started(self) -> dict[str, Any]:
        """Wait for a `START`, and return its body; bytes that came too late for a channel are dropped."""
        while (frame := self._frame()) is None or frame[0] != START:
            if frame is None:
                self._receive()
        return json.loads(frame[1])

    def _receive(self) -> None:
        piece = os.read(0, PIECE)
        if not piece:
            raise EOFError
        self.inbox += piece

    def _frame(self) -> tuple[int, bytes] | None:
        """Take the next frame out of the received bytes; None if none is complete."""
        if len(self.inbox) < HEADER.size:
            return None
        kind, length = HEADER.unpack_from(self.inbox)
        body = bytes(self.inbox[HEADER.size : HEADER.size + length])
        if len(body) < length:
            return None
        del self.inbox[: HEADER.size + length]
        return kind, body

    def _run(self, request: dict[str, Any], wake: int) -> dict[str, Any]:
        """Run a command (`argv`, `cwd`, `env`, `merge`, and `channel`, a variable's name or empty) to its end."""
        ends: list[int] = []
        try:
            ends += [*os.pipe(), *os.pipe()]
            ends += [end.detach() for end in socket.socketpair()]
            keeper = os.fork()
        except OSError as error:
            for end in ends:
                os.close(end)
            return {"error": f"the command cannot be started: {error}"}
        out, to_out, err, to_err, channel, theirs = ends
        if keeper == 0:
            _become_keeper(request, to_out, to_out if request["merge"] else to_err, theirs)
        for end in (to_out, to_err, theirs):
            os.close(end)
        ooms, status = out_of_memory(), None
        self.streams = {out: OUT, err: ERR, channel: CHANNEL}
        for end in self.streams:
            os.set_blocking(end, False)
        while status is None:
            self._turn(wake)
            status = reap().get(keeper)
        bury()
        for end in list(self.streams):
            while self._pass_on(end):
                pass
            if end in self.streams:
                self._close(end)
        self.waiting.clear()
        code = exit_status(status)
        return {"code": code, "memory": code != 0 and out_of_memory() > ooms}

    def _turn(self, wake: int) -> None:
        """Wait until there is something to carry, and carry it."""
        poll = select.poll()
        poll.register(wake, select.POLLIN)
        poll.register(0, 0 if self.waiting else select.POLLIN)  # its end is reported in any case
        for end, kind in self.streams.items():
            poll.register(end, select.POLLIN | (select.POLLOUT if kind == CHANNEL and self.waiting else 0))
        for end, events in poll.poll():
            if end == wake:
                os.read(wake, 4096)
            elif end == 0 and events & select.POLLHUP:
                raise EOFError
            elif end == 0:
                self._receive()
            elif events & ~select.POLLOUT:
                self._pass_on(end)
        self._deliver()

    def _deliver(self) -> None:
        """Hand the received bytes to the channel, as many as it takes; once it is closed, drop them."""
        while True:
            if not self.waiting:
                if (frame := self._frame()) is None:
                    return
                self.waiting += frame[1]
            channel = next((end for end, kind in self.streams.items() if kind == CHANNEL), None)
            if channel is None:
                self.waiting.clear()
                continue
            try:
                del self.waiting[: os.write(channel, self.waiting)]
            except BlockingIOError:
                return
            except OSError:
                self._close(channel)

    def _pass_on(self, end: int) -> bool:
        """Pass on what an end of the command brings; return whether more may come at once."""
        try:
            piece = os.read(end, PIECE)
        except BlockingIOError:
            return False
        except OSError:
            piece = b""
        if piece:
            _put(self.streams[end], piece)
        else:
            self._close(end)
        return bool(piece)

    def _close(self, end: int) -> None:
        os.close(end)
        if self.streams.pop(end) == CHANNEL:
            _put(CHANNEL, b"")


def _put(kind: int, body: bytes) -> None:
    """Send a frame. While the host takes nothing, the command waits too."""
    frame = HEADER.pack(kind, len(body)) + body
    while frame:
        frame = frame[os.write(1, frame) :]


def _answer(**result: object) -> None:
    _put(DONE, json.dumps(result).encode())


def _inspect(setup: dict[str, Any]) -> dict[str, object]:
    """Install the system call filter, and return the facts about the container."""
    program = bytes.fromhex(setup["filters"].get(platform.machine(), ""))
    if program:
        _await_first()
        install_filter(program)
    mounts: dict[str, list[int]] = {}
    for path in setup["mounts"]:
        with contextlib.suppress(OSError):
            mounts[path] = [(status := os.lstat(path)).st_dev, status.st_ino]
    with open("/proc/self/mountinfo", errors="surrogateescape") as file:
        points = [line.split()[4] for line in file]
    return {"filtered": bool(program), "kernel": platform.release(), "mounts": mounts, "points": points}


def _become_keeper(request: dict[str, Any], out: int, err: int, channel: int) -> None:
    """In the fork: take over the ends of the pipes, and keep the command, which may stop its parent. Never returns."""
    code, env = 126, request["env"]
    try:
        signal.set_wakeup_fd(-1)
        control(SUBREAPER, 1)
        for end, number in ((os.open(os.devnull, os.O_RDWR), 0), (out, 1), (err, 2)):
            os.dup2(end, number)
        if request["channel"]:
            os.set_inheritable(channel, True)
            env[request["channel"]] = str(channel)
        path = env.get("PATH", "").split(":")
        env["PATH"] = ":".join([*path, *(e for e in os.environ.get("PATH", "").split(":") if e not in path)])
        code = keep(request["argv"], request["cwd"], env, _prefer_to_be_killed)
    finally:
        os._exit(code)


def _prefer_to_be_killed() -> None:
    """Let the kernel choose the command rather than the supervisor when memory runs out."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")
