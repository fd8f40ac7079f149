"""Docker: commands in a container that belongs to one workspace, over a connection to a supervisor inside.

It uses the `docker` program, never a library: `run` if no container fits, `exec` once, and then a frame a command;
commands that run beside each other have a connection each. The workspace is at /workspace; its `.lmagent` is covered,
and the files that git runs are read-only. Unlike in bubblewrap, /tmp and the home folder live as long as the container,
and its commands share the limits.

A container's name is a hash of its whole setup: the workspace, the user, the image, the limits, and the mounts. Mounts
are fixed when a container starts, and git's protected paths are not (a `git init`, or a `git config` of the user, which
replaces the file by a new one). So the name covers the inode of each protected path: a changed set means a new
container for the next command, and the old container ends when its own commands have. A container ends a few seconds
after the last lmagent has disconnected or was killed.

A command that may reach hosts has a proxy out here, whose socket is in a folder that is mounted in the container. Other
commands that run in it at that time could use it too.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import platform
import stat
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
from msgspec import Struct

from lmagent.core.errors import SandboxError
from lmagent.core.sandbox import CHANNEL, Exec, Limits, OnOutput, SandboxReport
from lmagent.sandbox import seccomp
from lmagent.sandbox.attack import attack
from lmagent.sandbox.environment import HOME, SandboxRequest, accounts, base_environment, find_program, inside
from lmagent.sandbox.git.guard import GitGuard, Protected
from lmagent.sandbox.inside import program
from lmagent.sandbox.limits import MEGABYTE
from lmagent.sandbox.link import Link, Remote
from lmagent.sandbox.mountcheck import as_listed
from lmagent.sandbox.proxy import AllowListProxy, allowing, short_temp

LIMITS = Limits(memory_mb=512, pids=128, cpus=0.9)

INSTALL = "install docker: https://docs.docker.com/engine/install (or apt install docker.io)"

LOCAL = "lmagent-sandbox"
"""Name of the image that is built here, from scratch."""

SHARED = "lmagent.usr"
"""Label of an image that has the host's /usr mounted."""

ROOT = "/workspace"
SOCKETS = "/run/lmagent"
"""Where the sockets of proxies are inside."""

IDLE = 5
"""Seconds that a container stays after the last lmagent has disconnected."""

ETC = ("ld.so.cache", "alternatives", "ssl/certs", "ssl/openssl.cnf", "ca-certificates", "pki/tls/certs", "localtime")
"""The visible part of the host's /etc if its /usr is mounted: not `ssl/private`, which root could read."""

_ANSWER = 20.0
_TRIES = 3


class Mount(Struct, frozen=True):
    """A folder or file that is mounted inside; `identity` (device and inode) is compared inside."""

    source: str
    target: str
    writable: bool
    identity: tuple[int, int]


class _Engine(Struct, frozen=True):
    """The engine and the image, as docker reports them."""

    version: str
    rootless: bool
    image_id: str
    shared: bool


class _Setup(Struct, frozen=True):
    """The setup of a container: its mounts, outermost first, and the options that confine it."""

    name: str
    options: tuple[str, ...]
    mounts: tuple[Mount, ...]


class Docker:
    """See `lmagent.core.sandbox.Sandbox`."""

    def __init__(self, workspace: Path, options: SandboxRequest) -> None:
        self.workspace = workspace
        self.root = ROOT
        self.environment: Mapping[str, str] = base_environment(options.env, options.read)
        self._options = options
        self._limits = options.limited(LIMITS)
        self._real = os.path.realpath(workspace)
        self._lock = anyio.Lock()
        self._engine: _Engine | None = None
        self._links: dict[Link, _Setup] = {}
        self._idle: Link | None = None
        self._is_over = False
        key = hashlib.sha256(self._real.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        self._sockets = f"{short_temp()}/lmagent-{os.getuid()}-{key}"

    async def probe(self) -> SandboxReport:
        try:
            engine = await anyio.to_thread.run_sync(self._look)
        except SandboxError as failure:
            return SandboxReport("docker", works=False, reason=failure.message, fix=failure.fix)
        return await attack(self, SandboxReport("docker", engine.version), self._limits, "the container's group")

    async def start(self, command: Exec, output: OnOutput) -> Remote:
        folder = os.path.relpath(inside(self.workspace, command), self.workspace)
        link = await self._ready()
        proxy, argv = None, command.argv
        try:
            has_way_out = command.hosts or (command.opens is not None and sys.platform == "linux")
            if has_way_out and self._options.network == "none":
                proxy, argv = await self._way_out(command)
        except BaseException:
            await self._release(link)
            raise
        request = {
            "argv": argv,
            "cwd": os.path.normpath(f"{ROOT}/{folder}"),
            "env": {**self.environment, **command.env},
            "merge": command.merge,
            "channel": CHANNEL if command.channel else "",
        }
        remote = Remote(link, command, output, self._release, proxy)
        await remote.begin(request)
        return remote

    async def _way_out(self, command: Exec) -> tuple[AllowListProxy, Sequence[str]]:
        """Return the proxy of a command that may reach hosts, and the command with the forwarder in front."""
        if sys.platform != "linux":
            raise SandboxError(
                "docker's virtual machine does not pass sockets on, so hosts cannot be allowed; nothing was run",
                fix="run it without --allow-host",
            )
        proxy = allowing(command)
        await proxy.start(self._sockets)
        return proxy, proxy.wrap(command.argv, "python3", f"{SOCKETS}/{proxy.path.parent.name}/{proxy.path.name}", 0)

    async def aclose(self) -> None:
        """End all its commands; the container ends unless another lmagent uses it."""
        self._is_over = True
        for link in [*self._links]:
            await link.close(remove=False)

    async def _release(self, link: Link) -> None:
        """Keep a connection whose command has ended for the next command, or close it."""
        if self._idle is None and link.alive and not self._is_over:
            self._idle = link
            return
        setup = self._links.pop(link)
        await link.close(remove=False)
        if not self._links and not self._is_over:  # without a connection the container would end, with its /tmp
            with contextlib.suppress(SandboxError):
                await self._release(await self._connect(setup))

    async def _ready(self) -> Link:
        """Return an idle connection to the container that matches the present workspace."""
        async with self._lock:
            setup = await anyio.to_thread.run_sync(self._wanted)
            link, self._idle = self._idle, None
            if link is not None and link.alive and self._links[link] == setup:
                return link
            if link is not None:
                self._links.pop(link)
                await link.close(remove=False)
            return await self._connect(setup)

    async def _connect(self, setup: _Setup) -> Link:
        """Reuse or make a container, and start a supervisor in it."""
        failure = SandboxError("the container could not be reached; nothing was run", fix="docker ps -a shows it")
        for _ in range(_TRIES):
            await anyio.to_thread.run_sync(self._ensure, setup)

            async def remove(name: str = setup.name) -> None:
                await anyio.to_thread.run_sync(self._call, "rm", "--force", name)

            argv = [self._program(), "exec", "--interactive", "--workdir", "/", setup.name, "python3"]
            link = Link([*argv, *program("supervisor", "serve")], self._options.env, remove)
            try:
                requirements = {"filters": _filters(), "mounts": [mount.target for mount in setup.mounts]}
                wrong = _wrong(await link.greet(requirements, _ANSWER), setup)
                if not wrong:
                    self._links[link] = setup
                    return link
                failure = SandboxError(wrong, fix="the docker engine has to be one of this machine")
            except SandboxError as error:  # it may just have been ending
                failure = trouble(error.message, self._options.image)
            except BaseException:
                await link.close(remove=True)
                raise
            await link.close(remove=True)
            setup = await anyio.to_thread.run_sync(self._wanted)
        raise failure

    def _wanted(self) -> _Setup:
        options = self._options
        engine = self._engine or self._look()
        try:
            protected = (options.protected or GitGuard(self.workspace).protected)()
            mounts = _mounts(self._real, protected, options.read, shared=engine.shared)
            if options.network == "none" and sys.platform == "linux":
                mounts = (*mounts, Mount(self._sockets, SOCKETS, False, _private(self._sockets)))
        except OSError as error:
            raise SandboxError(f"the workspace cannot be opened: {error}; nothing was run") from error
        limits, memory = self._limits, f"{self._limits.memory_mb}m"
        tmp = f"rw,nosuid,nodev,exec,size={limits.tmp_mb}m,nr_inodes=100000"
        # Without root, the engine's own user is 0 inside, and any other user has no rights over the workspace.
        user = "0:0" if engine.rootless else f"{os.getuid()}:{os.getgid()}"
        own = Path(self._real, ".lmagent")
        covers = ["--tmpfs", f"{ROOT}/.lmagent:ro,size=4k,mode=0555"] if own.is_dir() and not own.is_symlink() else []
        confined = (
            *("--label", f"lmagent.workspace={self._real}"),
            *("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
            *("--pids-limit", str(limits.pids), "--memory", memory, "--memory-swap", memory),
            *("--cpus", str(limits.cpus or 0.9), "--network", options.network, "--user", user, "--ipc", "private"),
            *("--log-driver", "none", "--no-healthcheck", "--hostname", "sandbox", "--shm-size", "64m"),
            *("--ulimit", "core=0", "--ulimit", f"fsize={limits.file_mb * MEGABYTE}", "--ulimit", "nofile=4096:4096"),
            *("--tmpfs", f"/tmp:{tmp},mode=1777", "--tmpfs", f"{HOME}:{tmp},mode=0777"),
            *(part for mount in mounts for part in ("--mount", _mount(mount))),
            *(*covers, "--workdir", ROOT, "--entrypoint", "python3", engine.image_id),
        )
        text = "\0".join((*confined, repr(mounts))).encode("utf-8", "surrogateescape")
        return _Setup(f"lmagent-{hashlib.sha256(text).hexdigest()[:24]}", confined, mounts)

    def _look(self) -> _Engine:
        info = self._must("info", "--format", "{{json .SecurityOptions}} {{.ServerVersion}}")
        security, _, version = info.rpartition(" ")
        if not version:  # `docker info` succeeds without an engine, in some versions
            raise trouble("Cannot connect to the Docker daemon", self._options.image)
        image = self._must("image", "inspect", "--format", "{{.Id}} {{json .Config.Labels}}", self._options.image)
        identity, _, labels = image.partition(" ")
        shared = SHARED in (json.loads(labels) or {})
        if shared and sys.platform != "linux":
            raise SandboxError("the local image uses the /usr of a Linux host; nothing was run", fix=_OTHER)
        self._engine = _Engine(version, "name=rootless" in security, identity, shared)
        return self._engine

    def _ensure(self, setup: _Setup) -> None:
        """Make sure that the container runs."""
        run = ("run", "--detach", "--rm", "--pull", "never", "--name", setup.name, *setup.options)
        for _ in range(40):
            found = self._call("container", "inspect", "--format", "{{.State.Status}}", setup.name)
            if found.stdout.strip() == "running":
                return
            if found.stdout.strip() in ("created", "removing"):  # by another process, at this moment
                time.sleep(0.1)
                continue
            if found.returncode == 0:
                self._call("rm", "--force", setup.name)
            made = self._call(*run, *program("supervisor", "hold", str(IDLE)))
            if made.returncode == 0:
                return
            if "is already in use" not in made.stderr:
                self._call("rm", "--force", setup.name)  # a container that could not be started is left as "created"
                raise trouble(made.stderr, self._options.image)
        raise SandboxError(f"the container {setup.name} neither starts nor ends", fix=f"docker rm -f {setup.name}")

    def _program(self) -> str:
        found = find_program("docker", self._options.env, self.workspace)
        if found is None:
            raise SandboxError("docker is not installed; nothing was run", fix=INSTALL)
        return found

    def _call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [self._program(), *arguments]
        try:
            return subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                env=dict(self._options.env),
                timeout=60,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return subprocess.CompletedProcess(argv, 1, "", f"docker {arguments[0]} did not come to its end: {error}")

    def _must(self, *arguments: str) -> str:
        done = self._call(*arguments)
        if done.returncode:
            raise trouble(done.stderr, self._options.image)
        return done.stdout.strip()


_OTHER = "docker pull python:3.12-slim, DOCKER_IMAGE=python:3.12-slim"


def _filters() -> dict[str, str]:
    """Return filters for all supported processors: a container may run on another one than this process reports."""
    return {machine: seccomp.program(machine).hex() for machine in ("x86_64", "aarch64")}


def _wrong(found: Mapping[str, Any], setup: _Setup) -> str:
    """Return how the container differs from its setup.

    Docker follows links when it mounts: a command that still runs could have replaced a protected path by a link after
    our look. So the paths inside must have the identity that we saw.
    """
    if not found["filtered"]:
        return "there is no system call filter for the container's processor; nothing was run"
    if sys.platform != "linux" or found["kernel"] != platform.release():
        return ""  # with a virtual machine in between, no inode is the same inside

    def differs(mount: Mount) -> bool:
        # A link that existed only during docker's mount could have led a mount of the workspace elsewhere.
        elsewhere = mount.target.startswith(f"{ROOT}/") and as_listed(mount.target) not in found["points"]
        return elsewhere or tuple(found["mounts"].get(mount.target, ())) != mount.identity

    different = [mount.source for mount in setup.mounts if differs(mount)]
    if different:
        return f"docker mounted other files than the workspace has: {', '.join(different)}; nothing was run"
    return ""


def _mount(mount: Mount) -> str:
    """Return the value of `--mount`, a line of CSV. Unlike `-v`, it makes no missing folder."""
    parts = ["type=bind", f"source={mount.source}", f"target={mount.target}"]
    parts += [] if mount.writable else ["readonly"]
    return ",".join('"' + part.replace('"', '""') + '"' for part in parts)


def _mounts(workspace: str, protected: Iterable[Protected], read: Sequence[Path], *, shared: bool) -> tuple[Mount, ...]:
    """Return all mounts; `shared` also those of the host's /usr. Raises OSError."""
    system = ["/usr", *(f"/etc/{name}" for name in ETC)] if shared else []
    found = [Mount(workspace, ROOT, True, _identity(os.stat(workspace)))]
    found += [Mount(at, at, False, _identity(os.stat(at))) for at in (*system, *map(str, read)) if os.path.exists(at)]
    for item in protected:
        try:
            status = os.lstat(item.path)
        except OSError:
            continue  # it vanished at this moment
        if not stat.S_ISLNK(status.st_mode):
            target = f"{ROOT}/{item.path.relative_to(workspace).as_posix()}"
            found.append(Mount(str(item.path), target, item.writable, _identity(status)))
    return tuple(found)


def _private(folder: str) -> tuple[int, int]:
    """Make a folder for this user alone, and return its identity. Raises OSError if another one is in its place."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(errno.EPERM, "it is not a private folder of yours", folder)
    return _identity(status)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


_DOWN = (
    "Cannot connect to the Docker daemon",
    "Is the docker daemon running",
    "if the daemon is running",
    "during connect",
)
_GROUP = "sudo usermod -aG docker $USER, then log in again (whoever is in that group is as good as root)"
_START = "start it: sudo systemctl start docker (or open Docker Desktop)"


def trouble(said: str, image: str) -> SandboxError:
    """Turn docker's standard error into an error with a fix."""
    text = " ".join(said.split())
    if text.startswith("template:"):  # `docker info` of some versions, without an engine
        text = _DOWN[0]
    short = text.split(" See 'docker")[0].split(" Run 'docker")[0][-400:] or "it said nothing"
    pull = f"docker pull {image}" if image.split(":")[0] != LOCAL else "lmagent sandbox image"
    if "permission denied while trying" in text:
        message, fix = "docker does not let this user in", _GROUP
    elif any(sign in text for sign in _DOWN):
        message, fix = "the docker engine does not run", _START
    elif "No such image" in text or "Unable to find image" in text:
        message, fix = f"there is no docker image {image!r}", pull
    elif "python3" in text and "executable file not found" in text:
        message, fix = f"there is no python3 in the docker image {image!r}", f"choose one that has it: {_OTHER}"
    else:
        message, fix = "docker failed", "docker info shows more"
    return SandboxError(f"{message}; nothing was run ({short})", fix=fix)


FOLDERS = ("usr", "etc", "etc/ssl", "proc", "sys", "dev", "tmp", "run", "workspace", "home", "var", "root")
"""Without the home folder: its mode in the image would override that of the tmpfs, and no user could write there."""

LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


def build_local_image(name: str = LOCAL, env: Mapping[str, str] | None = None) -> str:
    """Build an image of nothing but names, without any registry, and return its id.

    It has empty folders, the host's links of old (`bin` → `usr/bin`), and two lists of accounts; programs come from the
    host's own /usr, which is mounted into the container. So it needs a Linux host with a merged /usr. With `env` None,
    the docker client has this process's environment.

    Raises:
        SandboxError: this host cannot share its /usr, or docker failed.
    """
    env = os.environ if env is None else env
    content = archive()
    docker = find_program("docker", env, Path(os.devnull))
    if docker is None:
        raise SandboxError("docker is not installed", fix=INSTALL)
    argv = [docker, "import", "--change", f"LABEL {SHARED}=host", "--change", "WORKDIR /workspace", "-", name]
    done = subprocess.run(argv, input=content, capture_output=True, env=dict(env), check=False)
    if done.returncode:
        raise trouble(done.stderr.decode("utf-8", "replace"), name)
    return done.stdout.decode().strip()


def archive(root: Path = Path("/")) -> bytes:
    """Return the image's files, as a tar, with the links of `root`; raises SandboxError."""
    if sys.platform != "linux" or not (root / "bin").is_symlink() or not (root / "usr/bin/python3").exists():
        raise SandboxError("the local image needs a Linux host with a merged /usr and /usr/bin/python3", fix=_OTHER)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for folder in FOLDERS:
            _add(tar, folder, tarfile.DIRTYPE, mode=0o1777 if folder == "tmp" else 0o755)
        for link in LINKS:
            if (root / link).is_symlink():
                _add(tar, link, tarfile.SYMTYPE, target=os.readlink(root / link))
        for file, text in accounts().items():
            _add(tar, file, tarfile.REGTYPE, text=text)
    return content.getvalue()


def _add(tar: tarfile.TarFile, name: str, kind: bytes, *, mode: int = 0o644, target: str = "", text: str = "") -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.linkname, entry.size = kind, mode, target, len(text)
    tar.addfile(entry, io.BytesIO(text.encode()))
