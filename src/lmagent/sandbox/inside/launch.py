"""Starts a command under Landlock, and keeps it.

  python3 -I -S -c <this file> CONFIG

It forks. The child confines itself and becomes the command; the parent stays outside as its keeper, kills the command's
leftover processes, and all of them when lmagent ends. It runs with an environment of its own, since the command's
variables (LD_PRELOAD) must not take effect outside.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import struct
import sys
from typing import Any

from lmagent.sandbox.inside.keeper import (
    DUMPABLE,
    FAILED,
    NO_NEW_PRIVS,
    SUBREAPER,
    bury,
    control,
    install_filter,
    keep,
)

Config = dict[str, Any]
"""`argv`, `cwd`, `env`, `parent` (its pid), `filter` (hex), `read`, `write` and `devices` (paths), `limits` (by
resource), `channel` (name of the variable that is taken over from our own environment)."""

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
PDEATHSIG, CAPBSET_DROP, CAPABILITIES_3 = 1, 24, 0x20080522
SIGN = "lmagent cannot confine the command"
"""The beginning of the only line, if the command was not run."""

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE, IOCTL_DEV = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""Rights that a rule for a single file may name."""

NET = 0b11
"""Bind and connect, TCP."""

SCOPES = 0b11
"""Abstract unix sockets and signals."""

_ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> None:
    """Run the command of the first argument."""
    config: Config = json.loads(sys.argv[1])
    control(SUBREAPER, 1)
    control(DUMPABLE, 0)
    for number in _ENDS:
        signal.signal(number, _die)
    control(PDEATHSIG, signal.SIGTERM)
    if os.getppid() != config["parent"]:  # it ended before the request for its death signal
        os._exit(FAILED)
    env: dict[str, str] = config["env"]
    if config["channel"] in os.environ:
        env[config["channel"]] = os.environ[config["channel"]]
    os._exit(keep(config["argv"], config["cwd"], env, lambda: _confine(config), SIGN))


def _die(*_: object) -> None:
    for number in _ENDS:
        signal.signal(number, signal.SIG_IGN)
    bury()
    os._exit(137)


def _confine(config: Config) -> None:
    for number in _ENDS:
        signal.signal(number, signal.SIG_DFL)
    for name, value in config["limits"].items():
        resource.setrlimit(getattr(resource, name), (value, value))
    control(NO_NEW_PRIVS, 1)
    drop_capabilities()
    restrict(config["read"], config["write"], config["devices"])
    install_filter(bytes.fromhex(config["filter"]))


def drop_capabilities() -> None:
    """Drop root's capabilities, which give access to the kernel's memory in spite of Landlock. exec adds none."""
    for number in range(64):
        with contextlib.suppress(OSError):
            control(CAPBSET_DROP, number)
    library = ctypes.CDLL(None, use_errno=True)
    if library.capset(struct.pack("Ii", CAPABILITIES_3, 0), bytes(24)):
        raise OSError(ctypes.get_errno(), "capset")


def abi() -> int:
    """Return the version of the kernel's Landlock, 0 without Landlock."""
    return max(0, _call(CREATE_RULESET, None, 0, 1, check=False))


def restrict(read: list[str], write: list[str], devices: list[str]) -> None:
    """Confine this process, and all processes that it starts, to these paths, without TCP.

    Paths in `read` are executable too; in `write`, everything is allowed but making devices. Raises OSError.
    """
    version = abi()
    rights = (1 << (15 if version == 4 else 16)) - 1  # over files, as many as this version can withhold
    attributes = struct.pack("QQQ", rights, NET, SCOPES)[: 24 if version >= 6 else 16]
    ruleset = _call(CREATE_RULESET, attributes, len(attributes), 0)
    reading = EXECUTE | READ_FILE | READ_DIR
    special = (1 << 6) | (1 << 11)  # character and block devices
    for paths, allowed in ((read, reading), (write, rights & ~special), (devices, READ_FILE | WRITE_FILE | IOCTL_DEV)):
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                _allow(ruleset, path, allowed & rights)
    _call(RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _allow(ruleset: int, path: str, allowed: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not os.path.isdir(path):
            allowed &= OF_FILES
        _call(ADD_RULE, ruleset, 1, struct.pack("=Qi", allowed, descriptor), 0)
    finally:
        os.close(descriptor)


def _call(number: int, *arguments: Any, check: bool = True) -> int:
    library = ctypes.CDLL(None, use_errno=True)
    given = [ctypes.c_long(part) if isinstance(part, int) else part for part in arguments]
    result = library.syscall(ctypes.c_long(number), *given)
    if result < 0 and check:
        raise OSError(ctypes.get_errno(), f"Landlock: {os.strerror(ctypes.get_errno())}")
    return int(result)
