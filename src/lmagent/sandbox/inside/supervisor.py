"""The program inside a container.

  hold SECONDS    the container's first process
  serve           one for each lmagent process, over `docker exec -i`: a `docker exec` for each command takes too long

`serve` speaks frames on its standard input and output (`HEADER`, then the body), and gives every command a keeper.

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
    control,
    exit_status,
    install_filter,
    keep,
    kill,
    kill_below,
    processes,
)

HEADER = struct.Struct(">BII")
"""Kind, number of the command, length of the body."""

HELLO, START, SEND, KILL = range(1, 5)
OUT, ERR, CHANNEL, ACCEPTED, DONE = range(11, 16)
"""To the supervisor: `HELLO` and `START` (JSON) … From it: output; the number of channel bytes taken, empty if the
channel is closed; and `DONE`, the answer to `HELLO` or the end of a command (JSON, with `error` if it failed)."""

PIECE = 65536
HIGH = 4 * PIECE
"""Bytes waiting for the host, above which no output is read: commands then wait, and memory stays bounded."""

TICK = 0.05
PATIENCE = 0.5
"""Seconds after which a keeper that was stopped by its own command is killed too."""

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


class SupervisedJob:
    """A command, as the supervisor sees it; `status` is that of its keeper, once that has ended."""

    def __init__(self, number: int, keeper: int, streams: dict[int, int], channel: socket.socket) -> None:
        self.number = number
        self.keeper = keeper
        self.streams = streams
        self.channel: socket.socket | None = channel
        self.waiting = bytearray()
        self.ooms = out_of_memory()
        self.status: int | None = None
        self.killed = 0.0


class Supervisor:
    """Starts commands, passes their output on, and kills everything when its input ends."""

    def __init__(self) -> None:
        self.jobs: dict[int, SupervisedJob] = {}
        self.inbox = bytearray()
        self.outbox = bytearray()
        self.over = False

    def serve(self) -> None:
        control(SUBREAPER, 1)
        control(DUMPABLE, 0)  # commands have the same user: this keeps them from our descriptors and memory
        wake, woken = os.pipe()
        for end in (0, 1, wake, woken):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(woken)
        for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, _note)  # ignored here, but unlike with SIG_IGN not in the commands
        while not self.over:
            self._turn(wake)
        kill_below(os.getpid())

    def _turn(self, wake: int) -> None:
        full = len(self.outbox) > HIGH
        jobs = self.jobs.values()
        streams = {} if full else {end: job for job in jobs for end in job.streams}
        channels = {job.channel.fileno(): job for job in jobs if job.channel and job.waiting}
        pending = any(job.killed or job.status is not None for job in jobs)
        to_write = [*([1] if self.outbox else []), *channels]
        ready, free, _ = select.select([0, wake, *streams], to_write, [], TICK if pending else None)
        if wake in ready:
            os.read(wake, 4096)
        ended = reap()
        for job in jobs:
            job.status = ended.get(job.keeper, job.status)
        for end, job in streams.items():
            if end in ready and end in job.streams:
                self._pass_on(job, end)
        for end, job in channels.items():
            if end in free:
                self._deliver(job)
        if 0 in ready:
            self._receive()
        for job in [job for job in jobs if job.killed or job.status is not None]:
            self._finish(job, full)
        with contextlib.suppress(BlockingIOError):
            while self.outbox:
                del self.outbox[: os.write(1, self.outbox[:PIECE])]

    def _put(self, kind: int, number: int, body: bytes = b"") -> None:
        self.outbox += HEADER.pack(kind, number, len(body)) + body

    def _done(self, number: int, **result: object) -> None:
        self._put(DONE, number, json.dumps(result).encode())

    def _receive(self) -> None:
        piece = os.read(0, PIECE)
        self.over = not piece
        self.inbox += piece
        while len(self.inbox) >= HEADER.size:
            kind, number, length = HEADER.unpack_from(self.inbox)
            if len(self.inbox) < HEADER.size + length:
                return
            body = bytes(self.inbox[HEADER.size : HEADER.size + length])
            del self.inbox[: HEADER.size + length]
            job = self.jobs.get(number)
            if kind == HELLO:
                self._hello(json.loads(body))
            elif kind == START:
                self._start(number, json.loads(body))
            elif kind == SEND and job:
                job.waiting += body
            elif kind == KILL and job:
                job.killed = job.killed or time.monotonic()

    def _hello(self, setup: dict[str, Any]) -> None:
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
        self._done(0, filtered=bool(program), kernel=platform.release(), mounts=mounts, points=points)

    def _start(self, number: int, request: dict[str, Any]) -> None:
        """Fork the keeper of a command: `argv`, `cwd`, `env`, `merge`, and `channel` (a variable's name, or empty)."""
        ends: list[int] = []
        try:
            ends += [*os.pipe(), *os.pipe()]
            near, far = socket.socketpair()
            ends.append(far.detach())
            keeper = os.fork()
        except OSError as error:
            for end in ends:
                os.close(end)
            return self._done(number, error=f"the command cannot be started: {error}")
        out, to_out, err, to_err, channel = ends
        if keeper == 0:
            _become_keeper(request, to_out, to_out if request["merge"] else to_err, channel)
        for end in (to_out, to_err, channel):
            os.close(end)
        for end in (out, err, near.fileno()):
            os.set_blocking(end, False)
        self.jobs[number] = SupervisedJob(number, keeper, {out: OUT, err: ERR, near.fileno(): CHANNEL}, near)
        return None

    def _pass_on(self, job: SupervisedJob, end: int) -> bool:
        """Return whether data came."""
        kind = job.streams[end]
        try:
            piece = os.read(end, PIECE)
        except BlockingIOError:
            return False
        except OSError:
            piece = b""
        if piece:
            self._put(kind, job.number, piece)
        elif kind == CHANNEL:
            self._shut(job)
        else:
            del job.streams[end]
            os.close(end)
        return bool(piece)

    def _deliver(self, job: SupervisedJob) -> None:
        try:
            count = job.channel.send(job.waiting) if job.channel else 0
        except BlockingIOError:
            return
        except OSError:
            self._shut(job)
            return
        del job.waiting[:count]
        self._put(ACCEPTED, job.number, str(count).encode())

    def _shut(self, job: SupervisedJob) -> None:
        if job.channel:
            del job.streams[job.channel.fileno()]
            job.channel.close()
            job.channel = None
            job.waiting.clear()
            self._put(ACCEPTED, job.number)

    def _finish(self, job: SupervisedJob, full: bool) -> None:
        """Kill a command that must end, or take the last output and report the end."""
        if job.status is None:
            kill_below(job.keeper)
            if time.monotonic() - job.killed > PATIENCE:
                kill(job.keeper, signal.SIGKILL)
            return
        others = {other.keeper for other in self.jobs.values() if other.status is None}
        if os.WIFSIGNALED(job.status) and kill_below(os.getpid(), others):  # orphans of a keeper that was killed
            return
        if full or sum(self._pass_on(job, end) for end in list(job.streams)):
            return
        self._shut(job)
        for end in job.streams:
            os.close(end)
        del self.jobs[job.number]
        code = exit_status(job.status)
        self._done(job.number, code=code, memory=code != 0 and out_of_memory() > job.ooms)


def _become_keeper(request: dict[str, Any], out: int, err: int, channel: int) -> None:
    """In the fork: take over the ends of the pipes, close all other descriptors, keep the command. Never returns."""
    code, env = 126, request["env"]
    try:
        signal.set_wakeup_fd(-1)
        control(SUBREAPER, 1)
        null = os.open(os.devnull, os.O_RDWR)
        kept = os.dup(channel)  # above the standard three
        for end, number in ((null, 0), (out, 1), (err, 2)):
            os.dup2(end, number)
        os.closerange(3, kept)
        os.closerange(kept + 1, 4096)
        if request["channel"]:
            os.set_inheritable(kept, True)
            env[request["channel"]] = str(kept)
        path = env.get("PATH", "").split(":")
        env["PATH"] = ":".join([*path, *(e for e in os.environ.get("PATH", "").split(":") if e not in path)])
        code = keep(request["argv"], request["cwd"], env, _prefer_to_be_killed)
    finally:
        os._exit(code)


def _prefer_to_be_killed() -> None:
    """Let the kernel choose the command rather than the supervisor when memory runs out."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")
