"""Resource limits of a command, enforced by the means of this machine.

The ladder: cgroup v1 or v2 if we may write them (root), else rlimits inside and a watch from outside. rlimits count one
process (memory) or one user namespace (processes); the watch sums up the whole tree every 100 ms.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from lmagent.core.sandbox import EndReason, Limits
from lmagent.sandbox.environment import HOME

MEGABYTE = 1024 * 1024
CGROUP = Path("/sys/fs/cgroup")
NAMES = 100_000
"""Files that a command may have in memory, as in `docker`."""

IN_MEMORY = ("/tmp", "/dev/shm", HOME)
"""Folders inside whose files are in memory, for a command that shares none of them."""

_PRLIMIT = "/usr/bin/prlimit"
_numbers = itertools.count()
_PAGE = os.sysconf("SC_PAGE_SIZE")


def limited(argv: Sequence[str], limits: Limits, *, count_processes: bool) -> list[str]:
    """Return a command line under the limits of a process; without `prlimit`, the command itself."""
    if not os.path.exists(_PRLIMIT):
        return list(argv)
    options = [f"--data={limits.memory_mb * MEGABYTE}", f"--fsize={limits.file_mb * MEGABYTE}", "--nofile=4096:4096"]
    options += [f"--nproc={limits.pids}"] if count_processes else []  # of the user, in this namespace
    return [_PRLIMIT, *options, "--core=0", "--", *argv]


class Group:
    """A control group of one command: one folder a controller (v1), or a single folder (v2)."""

    def __init__(self, folders: tuple[Path, ...], events: Path) -> None:
        self.folders = folders
        self._events = events

    @property
    def procs(self) -> tuple[str, ...]:
        """The files that a process writes 0 into to join."""
        return tuple(f"{folder}/cgroup.procs" for folder in self.folders)

    def out_of_memory(self) -> bool:
        """Return whether the kernel killed a process in it for lack of memory."""
        with contextlib.suppress(OSError, ValueError):
            for line in self._events.read_text().splitlines():
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    return int(count) > 0
        return False

    def remove(self) -> None:
        """Remove it; its processes are dead, and the kernel may need a moment to notice."""
        for folder in self.folders:
            for _ in range(100):
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.005)
                else:
                    break


def make_group(limits: Limits) -> Group | None:
    """Return a group with the limits, or None if we may not make one."""
    _sweep()
    name = f"lmagent-{os.getpid()}-{next(_numbers)}"
    made: list[Path] = []
    try:
        return _v1(name, limits, made) if (CGROUP / "memory").is_dir() else _v2(name, limits, made)
    except OSError:
        for folder in made:
            with contextlib.suppress(OSError):
                folder.rmdir()
        return None


@functools.cache
def _sweep() -> None:
    """Remove, once, the empty groups of processes that were killed before they could."""
    for folder in (*CGROUP.glob("lmagent-*"), *CGROUP.glob("*/lmagent-*")):
        owner = folder.name.split("-")[1]
        if owner.isdigit() and not os.path.exists(f"/proc/{owner}"):
            with contextlib.suppress(OSError):  # not empty: its processes are still dying
                folder.rmdir()


def _v1(name: str, limits: Limits, made: list[Path]) -> Group:
    memory, pids, cpu = (CGROUP / controller / name for controller in ("memory", "pids", "cpu"))
    size = str(limits.memory_mb * MEGABYTE)
    for folder in (memory, pids, *((cpu,) if limits.cpus else ())):
        folder.mkdir()
        made.append(folder)
    (memory / "memory.limit_in_bytes").write_text(size)
    with contextlib.suppress(OSError):  # without swap accounting there is no such file
        (memory / "memory.memsw.limit_in_bytes").write_text(size)
    (pids / "pids.max").write_text(str(limits.pids))
    if limits.cpus:
        (cpu / "cpu.cfs_quota_us").write_text(str(int(limits.cpus * 100_000)))
    return Group(tuple(made), memory / "memory.oom_control")


def _v2(name: str, limits: Limits, made: list[Path]) -> Group:
    folder = CGROUP / name
    folder.mkdir()
    made.append(folder)
    (folder / "memory.max").write_text(str(limits.memory_mb * MEGABYTE))
    with contextlib.suppress(OSError):
        (folder / "memory.swap.max").write_text("0")
    (folder / "pids.max").write_text(str(limits.pids))
    if limits.cpus:
        (folder / "cpu.max").write_text(f"{int(limits.cpus * 100_000)} 100000")
    return Group((folder,), folder / "memory.events")


def over_limit(root: int, limits: Limits, in_memory: Sequence[str] = IN_MEMORY) -> EndReason | None:
    """Return the limit, if any, that the tree below a process exceeds; `in_memory` lists folders of in-memory files."""
    own = shared = count = 0
    most, sharing = limits.memory_mb * MEGABYTE, list[int]()
    for pid in tree(root):
        count += 1
        with contextlib.suppress(OSError, ValueError, IndexError):
            resident, others = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
            own += (int(resident) - int(others)) * _PAGE
            shared += int(others) * _PAGE
            sharing.append(pid)
    # Most shared memory is programs and libraries; and the share of each process in the rest is expensive to query.
    if own + shared > most and own + _sum(sharing, "status", "RssShmem:") > most:
        own += _sum(sharing, "smaps_rollup", "Pss_Shmem:")
    if own > most or _names(root, in_memory) > NAMES:
        return "memory"
    # The limit of processes is enforced inside; this check is for root, which is exempt from that limit.
    return "killed" if count > 2 * limits.pids else None


def _sum(pids: list[int], file: str, field: str) -> int:
    """Return the sum of a field of a file of /proc, in bytes, over all these processes."""
    found = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
            found += next((int(line.split()[1]) for line in lines if line.startswith(field)), 0) * 1024
    return found


def _names(pid: int, folders: Sequence[str]) -> int:
    """Return the number of names in the in-memory file systems of a process tree: each costs the kernel 1 KiB."""
    found = 0
    for folder in folders:
        with contextlib.suppress(OSError):
            inside = f"/proc/{pid}/root{folder}"
            if not os.path.exists(folder) or os.stat(inside).st_dev != os.stat(folder).st_dev:  # not the host's own
                system = os.statvfs(inside)
                found += system.f_files - system.f_ffree
    return found


def tree(root: int) -> Iterator[int]:
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        yield pid
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError, ValueError):
                    waiting += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
