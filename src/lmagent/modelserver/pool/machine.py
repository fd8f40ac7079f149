"""Machine: the memory of this machine, the processors that may compute, and the usage of processes.

Linux: `MemAvailable` of /proc/meminfo, fields of /proc/PID (proc(5)), and the limits of the control groups, v2 and v1
(the kernel's admin-guide/cgroup-v2 and cgroup-v1/memory); macOS: sysctl, vm_stat and ps; Windows: GlobalMemoryStatusEx.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

UNLIMITED = 1 << 60  # A control group of version 1 without a limit says a number near 2**63


class Memory(Struct, frozen=True):
    total: int  # what there is, or what this process may have of it
    free: int  # what can be taken without anything being swapped out
    limit: str = "machine"  # what sets the bound: "machine", or "container" for a control group's limit


def machine_memory(root: Path = Path("/"), platform: str = sys.platform) -> Memory:
    """Return the memory of this machine; (0, 0) if it is unknown."""
    if platform == "darwin":
        return _mac()
    if platform == "win32":
        return _windows()
    return _linux(root)


def _linux(root: Path) -> Memory:
    fields = {
        name: int(value) * 1024
        for name, value in re.findall(r"^(\w+):\s+(\d+) kB", _read(root / "proc/meminfo"), re.MULTILINE)
    }
    total = fields.get("MemTotal", 0)
    machine = Memory(total, min(fields.get("MemAvailable", 0), total))
    for limit, used in _limits(root):
        if limit < machine.total or limit - used < machine.free:
            machine = Memory(min(limit, machine.total), min(max(limit - used, 0), machine.free), "container")
    return machine


def _limits(root: Path) -> list[tuple[int, int]]:
    """Return (limit, used) of every control group that this process is in, in bytes."""
    found: list[tuple[int, int]] = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if number == "0" and not controllers:
            base, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        # Inside a container the path may be the host's and not be there; its own group is then the root of the mount.
        parts = [part for part in group.split("/") if part and part != ".."]
        folders = [base.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]
        found += [limit for folder in folders if (limit := _limit(folder, *names)) is not None]
    return found


def _limit(folder: Path, most: str, now: str, cached: str) -> tuple[int, int] | None:
    limit, used = _read(folder / most).strip(), _read(folder / now).strip()
    if not limit.isdigit() or not used.isdigit() or int(limit) >= UNLIMITED:
        return None
    pages = re.search(rf"^{cached} (\d+)", _read(folder / "memory.stat"), re.MULTILINE)
    return int(limit), max(int(used) - (int(pages[1]) if pages else 0), 0)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _mac() -> Memory:
    total = re.search(r"\d+", _output("sysctl", "-n", "hw.memsize"))
    said = _output("vm_stat")
    page = re.search(r"page size of (\d+) bytes", said)
    counts = dict(re.findall(r"^Pages ([\w ]+):\s+(\d+)", said, re.MULTILINE))
    size = int(page[1]) if page else 4096
    free = sum(int(counts.get(name, 0)) for name in ("free", "inactive", "speculative", "purgeable")) * size
    whole = int(total[0]) if total else 0
    return Memory(whole, min(free, whole))


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _windows() -> Memory:
    if sys.platform != "win32":
        return Memory(0, 0)
    import ctypes

    class Status(ctypes.Structure):  # MEMORYSTATUSEX
        _fields_ = (
            ("length", ctypes.c_ulong),
            ("load", ctypes.c_ulong),
            ("total", ctypes.c_ulonglong),
            ("free", ctypes.c_ulonglong),
            ("rest", ctypes.c_ulonglong * 5),
        )

    status = Status(length=ctypes.sizeof(Status))
    ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
    return Memory(status.total, status.free)


_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_PROC = Path("/proc")
_CGROUP = Path("/sys/fs/cgroup")
_CPUS = Path("/sys/devices/system/cpu")


def memory_of(pid: int) -> int:
    """Return the resident bytes of a process and the private bytes of its children; 0 if it is gone."""
    if not _PROC.joinpath("self/statm").exists():
        return _ps_memory(pid)
    return _resident(pid) + sum(_private(child) for child in children(pid))


def children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in _PROC.joinpath(str(pid), "task").iterdir():
            found += [int(child) for child in task.joinpath("children").read_text().split()]
    except OSError:  # gone, or a kernel without that file
        return found
    return found


def effort_of(pid: int) -> Sequence[str]:
    """Return figures that change while a process works: processor time, memory, pages read from disk."""
    try:
        fields = _PROC.joinpath(str(pid), "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return _output("ps", "-o", "rss=,time=", "-p", str(pid)).split()
    return fields[11], fields[12], fields[21], fields[9]


def physical_cores() -> int:
    """Return the cores that this process may use, without counting hyper-threads twice; at least 1."""
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
    """Return the threads to compute with: one core is left free, since threads that wait for each other spin."""
    return max(1, physical_cores() - 1)


def _resident(pid: int) -> int:
    try:
        return int(_PROC.joinpath(str(pid), "statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _private(pid: int) -> int:
    """Return the pages of a forked process that are not its parent's."""
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


def _ps_memory(pid: int) -> int:
    told = _output("ps", "-o", "rss=", "-p", str(pid)).strip()
    return int(told) * 1024 if told.isdigit() else 0
