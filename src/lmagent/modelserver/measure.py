"""Measure: what processes use, and how many threads may compute. Linux tells by /proc, other systems by `ps`.

Fields of /proc are those of proc(5), `cpu.max` is of the kernel's cgroup-v2.rst.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from msgspec import Struct

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_PROC = Path("/proc")
_CGROUP = Path("/sys/fs/cgroup")
_CPUS = Path("/sys/devices/system/cpu")


class Effort(Struct, frozen=True):
    """What a process has done so far; one that is at work has another one a moment later.

    Attributes:
        cpu: clock ticks of the processor that it used.
        memory: bytes that it has in memory.
        faults: pages that it had to read from disk.
    """

    cpu: int = 0
    memory: int = 0
    faults: int = 0


def memory_of(pid: int) -> int:
    """Bytes of memory of a process (resident set) and of its children (what they do not share); 0 if it is gone."""
    if not _PROC.joinpath("self/statm").exists():
        return _ps_memory(pid)
    return _resident(pid) + sum(_private(child) for child in children(pid))


def children(pid: int) -> list[int]:
    """The processes that the process started and that are still there, by their ids (Linux)."""
    found: list[int] = []
    try:
        for task in _PROC.joinpath(str(pid), "task").iterdir():
            found += [int(child) for child in task.joinpath("children").read_text().split()]
    except OSError:  # gone, or a kernel without that file
        return found
    return found


def effort_of(pid: int) -> Effort:
    """What the process has done so far; all zero if it is gone or the system does not tell."""
    try:
        fields = _PROC.joinpath(str(pid), "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return _ps_effort(pid)
    return Effort(int(fields[11]) + int(fields[12]), int(fields[21]) * _PAGE, int(fields[9]))


def physical_cores() -> int:
    """Cores that this process may use, hyper-threads not counted twice; at least 1."""
    allowed: set[int] = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if not allowed:
        return max(1, os.cpu_count() or 1)
    cores: set[str] = set()
    for cpu in allowed:
        try:
            cores.add((_CPUS / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text().strip())
        except OSError:
            cores.add(str(cpu))
    return max(1, min(len(cores), _container_cores()))


def compute_threads() -> int:
    """Threads that compute: one core is left to everything else, since threads that wait for each other spin."""
    return max(1, physical_cores() - 1)


def _resident(pid: int) -> int:
    try:
        return int(_PROC.joinpath(str(pid), "statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _private(pid: int) -> int:
    """Of a forked process most pages are its parent's."""
    try:
        lines = _PROC.joinpath(str(pid), "smaps_rollup").read_text().splitlines()
    except OSError:
        return _resident(pid)
    own = sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))
    return own + sum(_private(child) for child in children(pid))


def _container_cores() -> int:
    try:
        quota, period = _CGROUP.joinpath("cpu.max").read_text().split()
        return sys.maxsize if quota == "max" else max(1, int(quota) // int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return sys.maxsize


def _ps(pid: int, fields: str) -> list[str]:
    try:
        done = subprocess.run(["ps", "-o", fields, "-p", str(pid)], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.split()


def _ps_memory(pid: int) -> int:
    told = _ps(pid, "rss=")
    return int(told[0]) * 1024 if told and told[0].isdigit() else 0


def _ps_effort(pid: int) -> Effort:
    """`ps` writes processor time as [[dd-]hh:]mm:ss.cc; only that it changes matters."""
    told = _ps(pid, "rss=,time=")
    if len(told) < 2:
        return Effort()
    return Effort(int("".join(filter(str.isdigit, told[1])) or 0), int(told[0]) * 1024)
