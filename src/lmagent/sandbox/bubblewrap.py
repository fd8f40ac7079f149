"""Bubblewrap: new namespaces for every command. The default on Linux.

Inside there are /usr and the user's toolchains, read-only; the workspace, at its own path; a home and a /tmp that the
session's commands share; no network, no other process, no capability, and our system call filter. When the command
ends, its process namespace ends, and with it all processes that the command started.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import stat
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import anyio
from msgspec import Struct

from lmagent.core.errors import SandboxError
from lmagent.core.sandbox import EndReason, Exec, Limits, OnOutput, SandboxReport
from lmagent.sandbox import seccomp
from lmagent.sandbox.attack import attack
from lmagent.sandbox.environment import HOME, SandboxRequest, accounts, base_environment, find_program, inside
from lmagent.sandbox.git.guard import GitGuard, Protected
from lmagent.sandbox.limits import IN_MEMORY, MEGABYTE, Group, limited, make_group, over_limit
from lmagent.sandbox.mountcheck import FAILED, MOVED, checked
from lmagent.sandbox.process import GONE, Process
from lmagent.sandbox.proxy import SOCKET, AllowListProxy, allowing, find_python
from lmagent.sandbox.scratch import Scratch, covered

ETC = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime"),
    *("ssl/certs", "ssl/openssl.cnf", "ca-certificates", "pki/tls/certs", "pki/ca-trust/extracted"),
)
"""The visible part of /etc: programs need it to find libraries, certificates and the time zone. No private keys."""

OUTSIDE = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
"""The environment of bubblewrap itself, outside."""

OWNERS = (
    *("keys", "kpagecount", "kpageflags", "kpagecgroup", "slabinfo", "vmallocinfo", "timer_list", "pagetypeinfo"),
)
"""Files of /proc with facts about the whole kernel, which root can read as their owner even without any capability."""

_TOP = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_JOIN = 'n=$1; shift; while [ "$n" -gt 0 ]; do echo 0 >"$1" || exit 125; shift; n=$((n - 1)); done; exec "$@"'

_BEFORE = ("LD_", "GLIBC_", "GCONV_", "LOCPATH", "BASH_FUNC_")
"""Prefixes of variables through which an earlier command could inject code into the programs that confine this one."""

_USERNS = (
    "let bubblewrap make user namespaces: on Ubuntu, sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 "
    "(or an AppArmor profile for bwrap); elsewhere, sudo sysctl -w kernel.unprivileged_userns_clone=1. "
    "Or use docker: SANDBOX=docker"
)
_FORBIDDEN = ("namespace", "uid map", "RTM_NEWADDR", "not permitted", "Permission denied", "No space left")
"""Messages of bubblewrap where the system does not let it make namespaces."""

INSTALL = "install it: sudo apt install bubblewrap (or dnf, pacman, zypper). Or use docker: SANDBOX=docker"


class Bubblewrap:
    """See `lmagent.core.sandbox.Sandbox`."""

    def __init__(self, workspace: Path, options: SandboxRequest) -> None:
        self.workspace = workspace
        self.root = str(workspace)
        self._options = options
        self._limits = options.limited(Limits())
        self._scratch = Scratch(options.scratch) if options.scratch is not None else None
        self.environment: Mapping[str, str] = base_environment(
            options.env, (*options.read, workspace), home=_home(workspace)
        )

    async def probe(self) -> SandboxReport:
        binary = find_program("bwrap", self._options.env, self.workspace)
        if binary is None:
            return SandboxReport("bubblewrap", works=False, reason="bubblewrap (bwrap) is not installed", fix=INSTALL)
        if not seccomp.supported():
            return SandboxReport("bubblewrap", works=False, reason="there is no system call filter for this processor")
        version = (await anyio.run_process([binary, "--version"], check=False)).stdout.decode().split()
        group = make_group(self._limits) if self._options.group else None
        if group:
            group.remove()
        how = "control group" if group else "limits of the process and a watch over the tree"
        return await attack(self, SandboxReport("bubblewrap", version[-1] if version else ""), self._limits, how)

    async def start(self, command: Exec, output: OnOutput) -> Process:
        binary = find_program("bwrap", self._options.env, self.workspace)
        if binary is None:
            raise SandboxError("bubblewrap (bwrap) is not installed; nothing was run", fix=INSTALL)
        folder, limits, scratch = inside(self.workspace, command), self._limits, self._scratch
        kept = scratch.folders(command.session) if scratch is not None and command.session else None
        own: list[int] = []  # descriptors that only the command needs
        held = ExitStack()  # released when the command has ended
        try:
            status, status_end = os.pipe()
            own.append(status_end)
            held.callback(os.close, status)
            proxy, argv = await _network(command, self._options.read, held)
            protected = (self._options.protected or GitGuard(self.workspace).protected)()
            mounts = [*_system(), *_files(own), *self._folders(kept), *self._covers(protected)]
            mounts += ["--bind", str(proxy.path), SOCKET] if proxy else []
            group = make_group(limits) if self._options.group else None
            if group is not None:
                held.callback(group.remove)
            env = {**self.environment, **command.env}
            if late := [f"{name}={value}" for name, value in env.items() if name.startswith(_BEFORE)]:
                argv = ["/usr/bin/env", *late, *argv]
            early = [(name, value) for name, value in env.items() if not name.startswith(_BEFORE)]
            options = [
                *("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
                *("--seccomp", str(_readable(own, seccomp.program())), "--json-status-fd", str(status_end)),
                *("--hostname", "sandbox", *mounts, "--remount-ro", "/", "--chdir", str(folder)),
                *(part for variable in early for part in ("--setenv", *variable)),
            ]
            check = checked(self.workspace, [item.path for item in protected])
            line = [binary, "--args", str(_arguments(own, options)), "--", *check]
            line += limited(argv, limits, count_processes=True)
            parts = _Parts(status, held, group, proxy, ("/dev/shm",) if kept else IN_MEMORY)
            return _Bubblewrapped(_joined(group, line), command, output, own, parts, limits)
        except BaseException:
            held.close()
            raise
        finally:
            for descriptor in own:
                os.close(descriptor)

    async def aclose(self) -> None:
        """Do nothing: no resources are held between commands."""

    def _folders(self, kept: tuple[Path, Path] | None) -> list[str]:
        limits, home = self._limits, _home(self.workspace)
        size = str(limits.tmp_mb * MEGABYTE)
        tmp = ["--size", size, "--perms", "1777", "--tmpfs", "/tmp"]
        shm = ["--size", str(64 * MEGABYTE), "--perms", "1777", "--tmpfs", "/dev/shm"]
        own = ["--size", size, "--perms", "0755", "--tmpfs", home] if home == HOME else []
        if kept is not None:
            over = [Path(self.root), *self._options.read, *self._options.write]
            tmp = ["--bind", str(kept[0]), "/tmp", *covered(kept[0], Path("/tmp"), over)]
            own = ["--bind", str(kept[1]), home, *covered(kept[1], Path(home), over)] if home == HOME else []
        read = [part for path in self._options.read for part in ("--ro-bind", str(path), str(path))]
        read += [part for path in self._options.write for part in ("--bind", str(path), str(path))]
        workspace = ["--bind", self.root, self.root]
        alias = ["--symlink", self.root, "/workspace"] if not self.root.startswith("/workspace") else []
        return [*tmp, *shm, *own, *read, *workspace, *alias]

    def _covers(self, protected: Sequence[Protected]) -> list[str]:
        """Hide the agent's own folder; make git's a mount point (no rename), with the files that git runs read-only."""
        parts: list[str] = []
        own = self.workspace / ".lmagent"
        with contextlib.suppress(OSError):
            if stat.S_ISDIR(os.lstat(own).st_mode):
                parts += ["--perms", "0500", "--tmpfs", str(own)]
        parts += _covers_of_own(self.workspace, self._options.own)
        for item in protected:
            parts += ["--bind" if item.writable else "--ro-bind", str(item.path), str(item.path)]
        return parts


def _covers_of_own(workspace: Path, places: Sequence[Path]) -> list[str]:
    """Hide our own files in the workspace, and keep the folders above them from being renamed.

    Missing paths are made: otherwise a command could make them, for us to read.
    """
    parts: list[str] = []
    for place in places:
        path = workspace / place
        for above in reversed(place.parents[:-1]):
            (workspace / above).mkdir(exist_ok=True)
            if (workspace / above).is_symlink():
                raise SandboxError(
                    f"the workspace holds lmagent's own files behind a link ({above}), which cannot be covered",
                    fix="work in another folder: lmagent --workspace DIR",
                )
            parts += ["--bind", str(workspace / above), str(workspace / above)]
        if path.is_file():
            parts += ["--ro-bind", os.devnull, str(path)]
            continue
        path.mkdir(mode=0o700, exist_ok=True)
        parts += ["--perms", "0500", "--tmpfs", str(path)]
    return parts


class _Parts(Struct):
    """The resources of a command. `in_memory` are the folders inside whose files are in memory."""

    status: int  # the descriptor on which bubblewrap reports
    held: ExitStack
    group: Group | None
    proxy: AllowListProxy | None
    in_memory: Sequence[str]


class _Bubblewrapped(Process):
    """A command in a bubblewrap of its own; `own` are descriptors for bubblewrap."""

    def __init__(
        self,
        argv: Sequence[str],
        command: Exec,
        output: OnOutput,
        own: Sequence[int],
        parts: _Parts,
        limits: Limits,
    ) -> None:
        # The agent chooses variables, so they are set inside: LD_PRELOAD must not reach bubblewrap itself.
        super().__init__(argv, command, output, env=OUTSIDE, cwd="/", pass_fds=own, limits=limits)
        self._parts = parts
        self._reported = ""
        os.set_blocking(parts.status, False)

    def _report(self) -> str:
        """Return bubblewrap's status: the pid of the namespace's first process, and the end of the command."""
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self._parts.status, 4096):
                self._reported += piece.decode()
        return self._reported

    @property
    def _first(self) -> int:
        """The pid of the first process, 0 if it is not known yet."""
        found = re.search(r'"child-pid": *(\d+)', self._report())
        return int(found[1]) if found else 0

    def kill_all(self) -> None:
        """Kill bubblewrap: the first process in its namespace dies with it, and all others with that process."""
        self._popen.kill()

    def wait_until_gone(self) -> None:
        """Wait until the whole namespace is dead: its first process is reaped after all others."""
        if first := self._first:
            wait_or_kill(first)

    def over_limit(self) -> EndReason | None:
        first = 0 if self._parts.group else self._first
        return over_limit(first, self._limits, self._parts.in_memory) if first and self._limits else None

    def out_of_memory(self) -> bool:
        return self._parts.group is not None and self._parts.group.out_of_memory()

    def failure(self, code: int, first_output: bytes) -> SandboxError | None:
        if code == FAILED and first_output.startswith(MOVED.encode()):
            return SandboxError(f"{MOVED.removeprefix('lmagent: ')}; nothing was run", fix="try again")
        if "exit-code" in self._report() or code >= 128:
            return None
        said = first_output.decode("utf-8", "replace").strip() or f"it ended with {code}"
        fix = _USERNS if any(sign in said for sign in _FORBIDDEN) else "lmagent sandbox probe shows more"
        return SandboxError(f"bubblewrap could not be set up, nothing was run: {said}", fix=fix)

    def release(self) -> None:
        self._parts.held.close()

    async def serve(self) -> None:
        if self._parts.proxy is not None:
            await self._parts.proxy.serve()


def wait_or_kill(first: int) -> None:
    """Wait until a namespace's first process is gone.

    It should die with bubblewrap (PR_SET_PDEATHSIG); on a loaded machine it did not always, so it is killed.
    """
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(first)
        try:
            if not select.select([descriptor], [], [], GONE)[0]:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                select.select([descriptor], [], [], GONE)
        finally:
            os.close(descriptor)


def _home(workspace: Path) -> str:
    return "/tmp" if Path(HOME).is_relative_to(workspace) else HOME


def _system() -> list[str]:
    """Return the mounts of /usr and its old names, the visible part of /etc, /proc and /dev."""
    parts = ["--ro-bind", "/usr", "/usr"]
    for name in _TOP:
        path = f"/{name}"
        with contextlib.suppress(OSError):
            if stat.S_ISLNK(os.lstat(path).st_mode):
                parts += ["--symlink", os.readlink(path), path]
            else:
                parts += ["--ro-bind", path, path]
    for name in ETC:
        if os.path.exists(f"/etc/{name}"):
            parts += ["--ro-bind", f"/etc/{name}", f"/etc/{name}"]
    hidden: list[str] = []
    for path in (f"/proc/{name}" for name in OWNERS):
        if os.path.exists(path):
            hidden += ["--ro-bind", "/dev/null", path]  # a device that is mounted like this cannot be opened
    # Read-only, because root outside owns /proc/sys inside, even without any capability (measured).
    return [*parts, "--proc", "/proc", *hidden, "--remount-ro", "/proc", "--dev", "/dev"]


def _files(own: list[int]) -> list[str]:
    """Return the options for small files that exist only inside."""
    files = {**accounts(), "etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n"}
    return [
        part
        for path, text in files.items()
        for part in ("--ro-bind-data", str(_readable(own, text.encode())), f"/{path}")
    ]


def _readable(own: list[int], content: bytes) -> int:
    """Return a descriptor of a pipe with the content, which must fit into it."""
    read, write = os.pipe()
    own.append(read)
    os.write(write, content)
    os.close(write)
    return read


def _arguments(own: list[int], options: Sequence[str]) -> int:
    """Return a descriptor with bubblewrap's options: too long for a pipe, and private in a list of processes."""
    descriptor = os.memfd_create("bubblewrap")
    own.append(descriptor)
    with os.fdopen(descriptor, "wb", closefd=False) as file:
        file.write(b"\0".join(map(os.fsencode, options)) + b"\0")
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _joined(group: Group | None, line: list[str]) -> list[str]:
    """Return the command line that joins the control group first."""
    if group is None:
        return line
    return ["/bin/sh", "-c", _JOIN, "sh", str(len(group.procs)), *group.procs, *line]


async def _network(
    command: Exec, visible: Sequence[Path], held: ExitStack
) -> tuple[AllowListProxy | None, Sequence[str]]:
    """Return the proxy of a command that may reach hosts, and the command with the forwarder in front."""
    if not command.hosts and command.opens is None:
        return None, command.argv
    try:
        python = find_python(visible)
    except SandboxError:
        if command.hosts:
            raise
        return None, command.argv
    proxy = allowing(command)
    held.callback(proxy.close)
    await proxy.start()
    return proxy, proxy.wrap(command.argv, python)
