"""Watch: runs a program, sees each address that it or a process below it names, and lets none beyond this machine be
reached.

The kernel asks about each such call (seccomp's user notification): `connect`, and `sendto`, `sendmsg` and `sendmmsg`
with an address. The filters and namespaces of a sandbox inside change nothing about that. Two things on this machine
are not reached either, since others would then be asked in the program's place: a resolver, and the services whose
sockets are below /run (systemd, D-Bus, docker). To the program the latter do not exist. The proxy of a sandbox does: it
belongs to a watched lmagent.

Sources: seccomp_unotify(2) and `include/uapi/linux/seccomp.h`; `struct sockaddr` after ip(7), ipv6(7), unix(7).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import select
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from msgspec import Struct

from lmagent.core.errors import SandboxError
from lmagent.sandbox import proxy, seccomp
from lmagent.sandbox.hosts import Target
from lmagent.tools.sanitize import one_line

_RECEIVE, _ANSWER = 0xC0502100, 0xC0182101  # SECCOMP_IOCTL_NOTIF_RECV, _SEND
_CONTINUE = 1  # SECCOMP_USER_NOTIF_FLAG_CONTINUE
_QUESTION = struct.Struct("QIIiIQ6Q")  # id, thread, flags, call, architecture, instruction, arguments
_REPLY = struct.Struct("QqiI")  # id, value, error, flags
_PIDFD_OPEN, _PIDFD_GETFD = 434, 438

_MESSAGE, _MESSAGES = 64, 1024  # bytes of a `struct mmsghdr`, and how many the kernel takes in one call
_LARGEST = 128  # bytes of a `struct sockaddr_storage`
_SERVICES = ("/run/", "/var/run/")
_PROBE = "udp [2001:4860:4860::8888]:443"
_LOOKUP = 53  # the port of a resolver
_START = 30.0  # seconds for the start of the launcher
_FIX = "lmagent prove-offline needs Linux 5.9 or newer on x86_64 or aarch64, and may not run in another sandbox"


class Attempt(Struct, frozen=True):
    """An address beyond this machine that was tried, after `tcp` or `udp`, and the program that tried it."""

    address: str
    program: str


class ConnectionWatch:
    """Watches programs, one after the other or side by side; `attempts` counts what they tried.

    `probed` is whether Chromium has looked for IPv6, which is no attempt.

    Args:
        allowed: addresses that are reached all the same.
    """

    def __init__(self, allowed: Sequence[Target] = ()) -> None:
        self.attempts: dict[Attempt, int] = {}
        self.probed = False
        self._allowed = {str(target) for target in allowed}
        self._threads: list[threading.Thread] = []

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """Start a program; `options` are those of Popen. Raise SandboxError if this machine cannot watch it."""
        if not sys.platform.startswith("linux") or not seccomp.supported():
            raise SandboxError("connections cannot be watched on this system", fix=_FIX)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            launcher = [sys.executable, "-P", "-m", "lmagent.offline.launch", str(theirs.fileno())]
            process = subprocess.Popen[bytes]([*launcher, *command], pass_fds=[theirs.fileno()], **options)
            theirs.close()
            ours.settimeout(_START)
            try:
                listener = _taken(process.pid, struct.unpack("i", ours.recv(4))[0])
            except (OSError, struct.error) as error:
                process.kill()
                process.wait()
                raise SandboxError("the kernel does not let connections be watched here", fix=_FIX) from error
            thread = threading.Thread(target=self._serve, args=(listener, process.pid), daemon=True)
            thread.start()
            self._threads.append(thread)
            ours.send(b"\n")
        return process

    def join(self, seconds: float) -> None:
        """Wait until no process of the programs is left."""
        for thread in self._threads:
            thread.join(seconds)

    def _serve(self, listener: int, root: int) -> None:
        waiting = select.poll()
        waiting.register(listener, select.POLLIN)
        while waiting.poll()[0][1] == select.POLLIN:  # else the last process is gone
            question = bytearray(_QUESTION.size)
            with suppress(OSError):  # the process that asked may be gone
                fcntl.ioctl(listener, _RECEIVE, question)
                asked, thread, _, call, _, _, *arguments = _QUESTION.unpack(question)
                error = self._judge(thread, call, arguments, root)
                fcntl.ioctl(listener, _ANSWER, _REPLY.pack(asked, 0, -error, 0 if error else _CONTINUE))
        os.close(listener)

    def _judge(self, thread: int, call: int, arguments: list[int], root: int) -> int:
        """Return the error number with which a call fails; 0 lets it through."""
        try:
            addresses = [*_addresses(thread, call, arguments)]
        except (OSError, OverflowError, struct.error):  # a process that may not be read, or a pointer to nowhere
            addresses = [b""]
        for raw in addresses:
            if _is_service(thread, raw):
                return errno.ENOENT
            if (address := _beyond(raw)) and address not in self._allowed:
                attempt = Attempt(f"{_protocol(thread, arguments[0])} {address}", _program(thread, root))
                if attempt.address == _PROBE and call in seccomp.CONNECT:
                    self.probed = True
                    return errno.ENETUNREACH
                self.attempts[attempt] = self.attempts.get(attempt, 0) + 1
                return errno.ENETUNREACH
        return 0


def _taken(pid: int, number: int) -> int:
    """Return a descriptor of another process as one of ours. Raise OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    process = library.syscall(_PIDFD_OPEN, pid, 0)
    if process < 0:
        raise OSError(ctypes.get_errno(), "pidfd_open")
    try:
        found = library.syscall(_PIDFD_GETFD, process, number, 0)
        if found < 0:
            raise OSError(ctypes.get_errno(), "pidfd_getfd")
        return int(found)
    finally:
        os.close(process)


def _addresses(thread: int, call: int, arguments: list[int]) -> Iterator[bytes]:
    """Yield the addresses of a call, each a `struct sockaddr`. Raise OSError if its memory cannot be read."""
    column = ("x86_64", "aarch64").index(platform.machine())
    with open(f"/proc/{thread}/mem", "rb", buffering=0) as memory:

        def read(place: int, size: int) -> bytes:
            return os.pread(memory.fileno(), size, place)

        if call == seccomp.CONNECT[column]:
            raw = read(arguments[1], min(arguments[2], _LARGEST))
            if _family(raw) != socket.AF_UNSPEC:  # else a connection is taken back
                yield raw
        elif call == seccomp.SENDTO[column]:
            yield read(arguments[4], min(arguments[5], _LARGEST))
        else:
            count = 1 if call == seccomp.SENDMSG[column] else min(arguments[2], _MESSAGES)
            for number in range(count):
                name, size = struct.unpack("QI", read(arguments[1] + number * _MESSAGE, 12))
                if name:
                    yield read(name, min(size, _LARGEST))


def _family(raw: bytes) -> int:
    return struct.unpack("H", raw[:2])[0] if len(raw) >= 2 else -1


def _is_service(thread: int, raw: bytes) -> bool:
    """Return whether the address is the file of a service's socket, by whatever path the program names it."""
    path = os.fsdecode(raw[2:].partition(b"\0")[0])
    if _family(raw) != socket.AF_UNIX or not path:
        return False
    with suppress(OSError):
        path = os.path.realpath(os.path.join(os.readlink(f"/proc/{thread}/cwd"), path))
    return path.startswith(_SERVICES) and path != proxy.SOCKET


def _beyond(raw: bytes) -> str:
    """Return the address in words if it is beyond this machine, or a look-up; else an empty text."""
    family = _family(raw)
    if family == socket.AF_UNSPEC and len(raw) >= 8:  # sending, the kernel takes it for IPv4
        family = socket.AF_INET
    if family in (socket.AF_UNIX, socket.AF_NETLINK, socket.AF_UNSPEC):
        return ""
    if family not in (socket.AF_INET, socket.AF_INET6) or len(raw) < (8 if family == socket.AF_INET else 24):
        return f"an address of the family {family}" if family >= 0 else "an address that cannot be read"
    address = ip_address(raw[4:8] if family == socket.AF_INET else raw[8:24])
    address = getattr(address, "ipv4_mapped", None) or address
    target = Target(str(address), struct.unpack(">H", raw[2:4])[0])
    is_here = address.is_loopback or address.is_unspecified  # the kernel takes 0.0.0.0 for loopback
    if target.port == _LOOKUP:
        return f"{target} (the look-up of a name)"
    return "" if is_here else str(target)


def _protocol(thread: int, number: int) -> str:
    """Return the protocol of a thread's socket. `connect` on a socket of UDP sends nothing yet."""
    try:
        with socket.socket(fileno=_taken(_status(thread, "Tgid"), number)) as found:
            return {socket.SOCK_STREAM: "tcp", socket.SOCK_DGRAM: "udp"}.get(found.type, "raw")
    except OSError:
        return "ip"


def _program(thread: int, root: int) -> str:
    """Return the command line of a thread's process, and of the processes above it up to the one that was started."""
    names: list[str] = []
    pid = _status(thread, "Tgid")
    while pid > 1 and len(names) < 4:
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            names.append(one_line(" ".join(word.decode("utf-8", "replace") for word in words).strip(), 100))
        if pid == root:
            break
        pid = _status(pid, "PPid")
    return ", started by ".join(dict.fromkeys(filter(None, names))) or "a process that has ended"


def _status(pid: int, field: str) -> int:
    with suppress(OSError, ValueError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith(f"{field}:")))
    return 0
