"""The system call filter of every backend, assembled by hand as classic BPF.

The denied calls let a process look into others, load code into the kernel, change mounts or namespaces, or reach kernel
surface that no build or test needs. Making a file set-user-id is denied too: it would also be set-user-id outside, for
the user. Denied calls fail with EPERM; `clone3`, `openat2` and the x32 calls fail with ENOSYS, so that C libraries fall
back to calls that can be checked (those two pass their flags by pointer, which no filter can read).

Numbers: the kernel's `arch/x86/entry/syscalls/syscall_64.tbl` and `include/uapi/asm-generic/unistd.h`. The filter for
x86_64 is tested; the one for aarch64 has never run.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Sequence

_LOAD, _JUMP_EQ, _JUMP_GE, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _NOTIFY = 0x7FFF0000, 0x00050000, 0x7FC00000
_NR, _ARCH, _ARG0, _ARG1, _ARG2, _ARG3, _ARG4 = 0, 4, 16, 24, 32, 40, 48
"""Offsets in `struct seccomp_data`; of an argument, the low 32 bits on a little-endian machine."""

_ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000

_DENIED = """
    ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, kcmp 312 272, pidfd_getfd 438 438,
    add_key 248 217, request_key 249 218, keyctl 250 219, bpf 321 280, perf_event_open 298 241,
    userfaultfd 323 282, io_uring_setup 425 425, io_uring_enter 426 426, io_uring_register 427 427,
    mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, unshare 272 97, setns 308 268,
    open_tree 428 428, move_mount 429 429, fsopen 430 430, fsconfig 431 431, fsmount 432 432, fspick 433 433,
    mount_setattr 442 442, kexec_load 246 104, kexec_file_load 320 294, init_module 175 105,
    finit_module 313 273, delete_module 176 106, reboot 169 142, swapon 167 224, swapoff 168 225,
    quotactl 179 60, quotactl_fd 443 443, acct 163 89, name_to_handle_at 303 264, open_by_handle_at 304 265,
    ioperm 173 -, iopl 172 -, modify_ldt 154 -, uselib 134 -, lookup_dcookie 212 18, nfsservctl 180 42,
    settimeofday 164 170, clock_settime 227 112, clock_adjtime 305 266, syslog 103 116, sethostname 170 161,
    setdomainname 171 162, vhangup 153 58
"""
"""Denied calls with their numbers on x86_64 and aarch64."""

_CLONE, _CLONE3, _OPENAT2, _IOCTL, _SOCKET = (56, 220), (435, 435), (437, 437), (16, 29), (41, 198)
_SOCKETPAIR, _UNIX = (53, 199), 1

_MODES: tuple[tuple[tuple[int | None, int | None], int, int], ...] = (
    *(((90, None), _ARG1, 0o4000), ((91, 52), _ARG1, 0o4000)),
    *(((268, 53), _ARG2, 0o4000), ((452, 452), _ARG2, 0o4000)),
    *(((85, None), _ARG1, 0o6000), ((133, None), _ARG1, 0o6000), ((259, 33), _ARG2, 0o6000)),
)
"""Numbers, the argument that is a mode, the bits that it may not have: of chmod, fchmod, fchmodat, fchmodat2 (folders
that a group shares need set-group-id, and no filter can recognise a folder), creat, mknod and mknodat."""

_OPEN: tuple[tuple[tuple[int | None, int | None], int, int], ...] = (
    ((2, None), _ARG1, _ARG2),
    ((257, 56), _ARG2, _ARG3),
)
_CREATES = 0x400040
"""open and openat: the arguments that are flags and mode; the flags with which there is a mode (O_CREAT, O_TMPFILE)."""

NAMESPACES = 0x7E020080
"""Flags of `clone` that make namespaces: NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET."""

CONNECT, SENDTO, SENDMSG, SENDMMSG = (42, 203), (44, 206), (46, 211), (307, 269)
"""The calls that name an address to send to."""

_IO_URING = (425, 425)

TERMINAL_INPUT = (0x5412, 0x541C)
"""TIOCSTI types into the terminal, TIOCLINUX pastes into a console. Compared in the low 32 bits, as the kernel does."""

FAMILIES = (1, 2, 10, 16)
"""Socket families that are allowed: unix, IPv4, IPv6, netlink. Not vsock, packet, alg and the rest."""


def supported(machine: str = "") -> bool:
    return (machine or platform.machine()) in _ARCHES


def program(machine: str = "", *, families: Sequence[int] = FAMILIES) -> bytes:
    """Return the filter, as `prctl(PR_SET_SECCOMP)` and `bwrap --seccomp` take it; raises KeyError."""
    machine = machine or platform.machine()
    column = list(_ARCHES).index(machine)
    code = [_op(_LOAD, _ARCH), *_unless_equal(_ARCHES[machine], errno.EPERM), _op(_LOAD, _NR)]
    if machine == "x86_64":
        code += [_op(_JUMP_GE, _X32, 0, 1), _fail(errno.ENOSYS)]
    code += [*_if_equal(_CLONE3[column], _fail(errno.ENOSYS)), *_if_equal(_OPENAT2[column], _fail(errno.ENOSYS))]
    for call in _DENIED.split(","):
        number = call.split()[1 + column]
        if number != "-":
            code += _if_equal(int(number), _fail(errno.EPERM))
    code += _checked(_CLONE[column], _ARG0, [_op(_JUMP_SET, NAMESPACES, 0, 1), _fail(errno.EPERM)])
    inputs = [step for request in TERMINAL_INPUT for step in _if_equal(request, _fail(errno.EPERM))]
    code += _checked(_IOCTL[column], _ARG1, inputs)
    allowed = [step for family in families for step in _if_equal(family, _op(_RETURN, _ALLOW))]
    code += _checked(_SOCKET[column], _ARG0, [*allowed, _fail(errno.EAFNOSUPPORT)])
    pair = _if_equal(_UNIX, _op(_RETURN, _ALLOW))  # both ends of the pair belong to the command
    code += _checked(_SOCKETPAIR[column], _ARG0, [*pair, _fail(errno.EAFNOSUPPORT)])
    return b"".join([*code, *_modes(column), _op(_RETURN, _ALLOW)])


def watching() -> bytes:
    """Return a filter that hands each call which may name an address to a listener, and denies nothing else.

    io_uring fails with ENOSYS: what it sends, no filter sees. So do the calls of other architectures.
    """
    machine = platform.machine()
    column = list(_ARCHES).index(machine)
    listen = _op(_RETURN, _NOTIFY)
    code = [_op(_LOAD, _ARCH), *_unless_equal(_ARCHES[machine], errno.ENOSYS), _op(_LOAD, _NR)]
    if machine == "x86_64":
        code += [_op(_JUMP_GE, _X32, 0, 1), _fail(errno.ENOSYS)]
    code += _if_equal(_IO_URING[column], _fail(errno.ENOSYS))
    for call in (CONNECT, SENDMSG, SENDMMSG):
        code += _if_equal(call[column], listen)
    # The address is a pointer: either half of it may be zero.
    named = [step for half in (_ARG4, _ARG4 + 4) for step in (_op(_LOAD, half), _op(_JUMP_EQ, 0, 1, 0), listen)]
    code += [_op(_JUMP_EQ, SENDTO[column], 0, len(named) + 1), *named, _op(_RETURN, _ALLOW)]
    return b"".join([*code, _op(_RETURN, _ALLOW)])


def _modes(column: int) -> list[bytes]:
    code: list[bytes] = []
    for numbers, mode, bits in _MODES:
        if (number := numbers[column]) is not None:
            code += _checked(number, mode, [_op(_JUMP_SET, bits, 0, 1), _fail(errno.EPERM)])
    for numbers, flags, mode in _OPEN:
        if (number := numbers[column]) is not None:
            checks = [_op(_LOAD, mode), _op(_JUMP_SET, 0o6000, 0, 1), _fail(errno.EPERM)]
            code += _checked(number, flags, [_op(_JUMP_SET, _CREATES, 0, len(checks)), *checks])
    return code


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _fail(number: int) -> bytes:
    return _op(_RETURN, _ERRNO | number)


def _if_equal(value: int, then: bytes) -> list[bytes]:
    return [_op(_JUMP_EQ, value, 0, 1), then]


def _unless_equal(value: int, number: int) -> list[bytes]:
    return [_op(_JUMP_EQ, value, 1, 0), _fail(number)]


def _checked(number: int, argument: int, checks: list[bytes]) -> list[bytes]:
    """Return the checks of one call's argument; a call that passes them is allowed."""
    body = [_op(_LOAD, argument), *checks, _op(_RETURN, _ALLOW)]
    return [_op(_JUMP_EQ, number, 0, len(body)), *body]
