"""Machine: the memory of this machine, the processors that may compute, and the usage of processes.

Linux: `MemAvailable` of /proc/meminfo, fields of /proc/PID (proc(5)), and the limits of the control groups, v2 and v1
(the kernel's admin-guide/cgroup-v2 and cgroup-v1/memory). On other systems half of the memory counts as free, and the
usage of a process is unknown.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from msgspec import Struct

_PAGE = os.sysconf("SC_PAGE_SIZE")
UNLIMITED = 1 << 60  # A control group of version 1 without a limit says a number near 2**63


class Memory(Struct, frozen=True):
    total: int  # what there is, or what this process may have of it
    free: int  # what can be taken without anything being swapped out
    limit: str = "machine"  # what sets the bound: "machine", or "container" for a control group's limit


def machine_memory(root: Path = Path("/")) -> Memory:
    """Return the memory of this machine."""
    if not (root / "proc/meminfo").exists():
        total = os.sysconf("SC_PHYS_PAGES") * _PAGE
        return Memory(total, total // 2)
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


_PROC = Path("/proc")
_CGROUP = Path("/sys/fs/cgroup")
_CPUS = Path("/sys/devices/system/cpu")


def memory_of(pid: int) -> int:
    """Return the resident bytes of a process and its children; 0 if it is gone."""
    return _resident(pid) + sum(map(memory_of, children(pid)))


def children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in _PROC.joinpath(str(pid), "task").iterdir():
            found += [int(child) for child in task.joinpath("children").read_text().split()]
    except OSError:  # gone, or a kernel without that file
        return found
    return found


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


def _container_cores() -> int:
    try:
        quota, period = _CGROUP.joinpath("cpu.max").read_text().split()
        return sys.maxsize if quota == "max" else max(1, int(quota) // int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return sys.maxsize
