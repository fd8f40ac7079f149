"""Starts a program whose connections are watched: `python -m lmagent.offline.launch SOCKET PROGRAM ARGUMENTS`.

It installs the filter, writes the number of its listener into the socket, waits until the watcher has taken it, and
becomes the program. The listener cannot be sent: that would be a call which waits for the listener.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

from lmagent.sandbox.inside.keeper import NO_NEW_PRIVS, control
from lmagent.sandbox.seccomp import watching

_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_FILTER, _NEW_LISTENER = 1, 8


def main() -> None:
    """Become the program of the arguments."""
    ours, command = int(sys.argv[1]), sys.argv[2:]
    control(NO_NEW_PRIVS, 1)
    listener = _install(watching())
    os.write(ours, struct.pack("i", listener))
    os.read(ours, 1)
    os.close(ours)
    os.close(listener)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        sys.exit(127)


def _install(program: bytes) -> int:
    library = ctypes.CDLL(None, use_errno=True)
    code = ctypes.create_string_buffer(program)
    filter_of = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(code))
    listener = library.syscall(_SECCOMP[platform.machine()], _SET_FILTER, _NEW_LISTENER, filter_of)
    if listener < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return int(listener)


if __name__ == "__main__":
    main()
