"""The program inside a container. It is sent there as text, so it has only the standard library (3.8).

  hold SECONDS    the container's first process
  serve           one for each lmagent process, over `docker exec -i`

`serve` speaks frames on its standard input and output (`HEADER`, then the body), and gives every command a keeper.

The commands of one container are not protected from each other, nor is their supervisor from them: they have one user.
`hold` notices a killed supervisor and kills its orphans; no `kill -9 -1` reaches `hold` itself.
"""

from __future__ import annotations

import contextlib
import fcntl
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

from lmagent.sandbox.keeper import (
    DUMPABLE,
    PIECE,
    SUBREAPER,
    Request,
    below,
    control,
    install_filter,
    keep,
    kill,
    kill_below,
    processes,
    warm_up,
)

HEADER = struct.Struct(">BII")
"""Kind, number of the command, length of the body."""

HELLO, START, SEND, KILL, BYE = range(1, 6)
READY, OUT, ERR, CHANNEL, ACCEPTED, SHUT, EXIT, FAILED = range(11, 19)
"""To the supervisor: `HELLO` (JSON) … From it: `READY` (JSON), output, number of channel bytes taken, a closed channel,
`EXIT` (JSON), and the reason why a command could not start (text)."""

HIGH = 4 * PIECE
"""Bytes waiting for the host, above which no output is read: commands then wait, and memory stays bounded."""

F_SETPIPE_SZ = 1031
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
    hurry = [0.0]

    def hurried_up(*_: object) -> None:
        hurry[0] = time.monotonic() + 2

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # "I am leaving": look more closely for a moment, and if it was the last, end now.
    signal.signal(signal.SIGUSR1, hurried_up)
    seen = time.monotonic()
    while True:
        hurried = time.monotonic() < hurry[0]
        time.sleep(TICK if hurried else 0.5)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        present = False
        for pid, (parent, state) in processes().items():
            if parent == 1 or (parent == 0 and pid != 1 and state in "Tt"):
                kill(pid, signal.SIGKILL)  # a supervisor that a command stopped would never see the end of its host
            present = present or (parent == 0 and pid != 1)
        if present:
            seen = time.monotonic()
        elif hurried or time.monotonic() - seen > idle:
            return


def _await_first() -> None:
    """Wait until the container's first process is no longer dumpable: no command may run before."""
    with contextlib.suppress(OSError), open("/proc/1/cmdline", "rb") as file:
        if b"lmagent.sandbox.supervisor" not in file.read():
            return
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
    """A command, as the supervisor sees it; at first a keeper that waits for a command."""

    def __init__(self, keeper: int, ends: dict[str, int]) -> None:
        self.number = 0
        self.keeper = keeper
        self.report = ends["report"]
        self.orders = ends["orders"]
        self.channel: socket.socket | None = socket.socket(fileno=ends["channel"])
        self.streams = {ends["stdout"]: OUT, ends["stderr"]: ERR, ends["channel"]: CHANNEL}
        self.waiting = bytearray()
        self.said = b""
        self.ooms = 0
        self.gone = False
        self.killed = 0.0

    def close(self) -> None:
        for end, kind in self.streams.items():
            if kind != CHANNEL:
                os.close(end)
        if self.channel:
            self.channel.close()
        os.close(self.report)


class Supervisor:
    """Starts commands, passes their output on, and kills everything when its input ends."""

    def __init__(self) -> None:
        self.jobs: dict[int, SupervisedJob] = {}
        self.inbox = bytearray()
        self.outbox = bytearray()
        self.spare: SupervisedJob | None = None
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
        reports = {job.report: job for job in jobs if not job.gone}
        channels = {job.channel.fileno(): job for job in jobs if job.channel and job.waiting}
        pending = any(job.gone or job.killed for job in jobs)
        to_write = [*([1] if self.outbox else []), *channels]
        ready, free, _ = select.select([0, wake, *streams, *reports], to_write, [], TICK if pending else None)
        if wake in ready:
            os.read(wake, 4096)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
        for end, job in reports.items():
            if end in ready:  # all processes of the command are gone; empty if the keeper was killed
                job.said = os.read(end, PIECE)
                job.gone = True
        for end, job in streams.items():
            if end in ready and end in job.streams:
                self._pass_on(job, end)
        for end, job in channels.items():
            if end in free:
                self._deliver(job)
        if 0 in ready:
            self._receive()
        for job in [job for job in jobs if job.killed or job.gone]:
            self._finish(job, full)
        self._flush()
        if self.spare is None and not self.over and not self.outbox:
            with contextlib.suppress(OSError):
                self.spare = self._keeper()

    def _put(self, kind: int, number: int, body: bytes = b"") -> None:
        self.outbox += HEADER.pack(kind, number, len(body)) + body

    def _flush(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self.outbox:
                del self.outbox[: os.write(1, self.outbox[:PIECE])]

    def _receive(self) -> None:
        piece = os.read(0, PIECE)
        self.over = self.over or not piece
        self.inbox += piece
        while len(self.inbox) >= HEADER.size:
            kind, number, length = HEADER.unpack_from(self.inbox)
            if len(self.inbox) < HEADER.size + length:
                return
            body = bytes(self.inbox[HEADER.size : HEADER.size + length])
            del self.inbox[: HEADER.size + length]
            self._obey(kind, number, body)

    def _obey(self, kind: int, number: int, body: bytes) -> None:
        job = self.jobs.get(number)
        if kind == HELLO:
            self._hello(json.loads(body))
        elif kind == START:
            self._start(number, json.loads(body))
        elif kind == SEND and job:
            job.waiting += body
        elif kind == KILL and job:
            job.killed = job.killed or time.monotonic()
            kill_below(job.keeper)
        elif kind == BYE:
            self.over = True
            kill(1, signal.SIGUSR1)

    def _hello(self, setup: dict[str, Any]) -> None:
        _await_first()
        program = bytes.fromhex(setup["filters"].get(platform.machine(), ""))
        if program:
            install_filter(program)
        said: dict[str, Any] = {"filtered": bool(program), "kernel": platform.release(), "mounts": {}}
        for path in setup["mounts"]:
            with contextlib.suppress(OSError):
                said["mounts"][path] = [(status := os.lstat(path)).st_dev, status.st_ino]
        with open("/proc/self/mountinfo", errors="surrogateescape") as file:
            said["points"] = [line.split()[4] for line in file]
        self._put(READY, 0, json.dumps(said).encode())

    def _start(self, number: int, request: Request) -> None:
        try:
            job = self.spare or self._keeper()
        except OSError as error:
            self._put(FAILED, number, str(error).encode())
            return
        self.spare = None
        orders = json.dumps(request).encode()
        job.number = number
        job.ooms = out_of_memory()
        self.jobs[number] = job
        try:
            # Into an empty pipe, so that it does not block; a stopped keeper must not stop us.
            fcntl.fcntl(job.orders, F_SETPIPE_SZ, max(PIECE, len(orders)))
            os.set_blocking(job.orders, False)
            done = os.write(job.orders, orders) == len(orders)
        except OSError:
            done = False
        os.close(job.orders)
        if not done:
            job.killed = time.monotonic()
            kill(job.keeper, signal.SIGKILL)

    def _keeper(self) -> SupervisedJob:
        """Fork a keeper that waits for its orders: the fork is done before a command needs it.

        Raises:
            OSError: there are too many processes.
        """
        own: dict[str, int] = {}
        theirs: dict[str, int] = {}
        try:
            for name in ("stdout", "stderr", "report"):
                own[name], theirs[name] = os.pipe()
            theirs["orders"], own["orders"] = os.pipe()
            near, far = socket.socketpair()
            own["channel"], theirs["channel"] = near.detach(), far.detach()
            keeper = os.fork()
        except OSError:
            for end in (*own.values(), *theirs.values()):
                os.close(end)
            raise
        if keeper == 0:
            _become_keeper(theirs)
        for end in theirs.values():
            os.close(end)
        for end in own.values():
            os.set_blocking(end, False)
        return SupervisedJob(keeper, own)

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
            job.streams.pop(job.channel.fileno(), None)
            job.channel.close()
            job.channel = None
            job.waiting.clear()
            self._put(SHUT, job.number)

    def _finish(self, job: SupervisedJob, full: bool) -> None:
        """Kill a command that must end, or take the last output and report the end."""
        if not job.gone:
            kill_below(job.keeper)
            if time.monotonic() - job.killed > PATIENCE:
                kill(job.keeper, signal.SIGKILL)
            return
        if full or sum(self._pass_on(job, end) for end in list(job.streams)):
            return
        if not job.said and self._kill_strays(job.keeper):
            return
        job.close()
        del self.jobs[job.number]
        result: dict[str, Any] = json.loads(job.said or b'{"code": 137}')
        if "error" in result:
            self._put(FAILED, job.number, result["error"].encode("utf-8", "replace"))
        else:
            result["memory"] = result["code"] != 0 and out_of_memory() > job.ooms
            self._put(EXIT, job.number, json.dumps(result).encode())

    def _kill_strays(self, keeper: int) -> bool:
        """Kill the orphans of a killed keeper; return whether there were any."""
        if keeper in below(os.getpid()):  # a dying process closes its files before it hands on its children
            kill(keeper, signal.SIGKILL)
            return True
        keepers = {job.keeper for job in (*self.jobs.values(), *([self.spare] if self.spare else []))} - {keeper}
        return kill_below(os.getpid(), keepers)


def _become_keeper(ends: dict[str, int]) -> None:
    """In the fork: close all foreign descriptors, wait for orders, keep the command. Never returns."""
    report, orders = ends.pop("report"), ends.pop("orders")
    try:
        signal.set_wakeup_fd(-1)
        control(SUBREAPER, 1)
        low = 0
        for end in [*sorted([report, orders, *ends.values()]), 4096]:  # above all, the supervisor's input and output
            os.closerange(low, end)
            low = end + 1
        while os.open(os.devnull, os.O_RDWR) < 2:
            pass
        warm_up()
        text = b"".join(iter(lambda: os.read(orders, PIECE), b""))
        if not text:
            os._exit(0)
        os.close(orders)
        request: Request = json.loads(text)
        for name, wanted in (("stderr", not request["merge"]), ("channel", request["channel"])):
            if not wanted:
                os.close(ends.pop(name))
        path = request["env"].get("PATH", "").split(":")
        path += [entry for entry in os.environ.get("PATH", "").split(":") if entry not in path]
        request["env"]["PATH"] = ":".join(path)
        keep(request, ends, report)
    except BaseException as error:  # noqa: BLE001 - a fork must never return
        os.write(report, json.dumps({"error": repr(error)}).encode())
    finally:
        os._exit(0)
