"""Docker: commands in a container that belongs to one workspace, over one connection to a supervisor inside.

It uses the `docker` program, never a library: `run` if no container fits, `exec` once, and then a frame a command. The
workspace is at /workspace; its `.lmagent` is covered, and the files that git runs are read-only. Unlike in bubblewrap,
/tmp and the home folder live as long as the container, and its commands share the limits.

The container ends when the last lmagent disconnects, or a minute after an lmagent was killed.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
from msgspec import Struct, field

from lmagent.core.errors import SandboxError
from lmagent.core.sandbox import CHANNEL, Exec, Limits, OnOutput, SandboxReport
from lmagent.sandbox import seccomp
from lmagent.sandbox.attack import attack
from lmagent.sandbox.container import (
    LOCAL,
    ROOT,
    SHARED,
    Mount,
    Spec,
    is_folder,
    labels_match,
    mounts,
    run,
    serve,
    trouble,
)
from lmagent.sandbox.environment import base_environment
from lmagent.sandbox.git.guard import GitGuard, Protected
from lmagent.sandbox.link import Link, connect
from lmagent.sandbox.mountcheck import as_listed
from lmagent.sandbox.place import find_program, inside
from lmagent.sandbox.remote import Remote

LIMITS = Limits(memory_mb=512, pids=128, cpus=0.9)
INSTALL = "install docker: https://docs.docker.com/engine/install (or apt install docker.io)"
_ANSWER = 20.0
_TRIES = 3


class DockerOptions(Struct, frozen=True):
    """The setup of a docker sandbox.

    Attributes:
        env: environment of this process, with docker's own settings; little of it is passed on.
        image: it must have a python3.
        limits: of all commands of the container together.
        network: on any docker network but `none`, all of its hosts can be reached.
        read: folders outside the workspace that are readable inside, at their own paths.
        protected: git's paths that commands must not change, from the guard's latest look; None looks again.
    """

    env: Mapping[str, str] = field(default_factory=dict[str, str])
    image: str = LOCAL
    limits: Limits = LIMITS
    network: str = "none"
    read: tuple[Path, ...] = ()
    protected: Callable[[], Sequence[Protected]] | None = None


class _Engine(Struct, frozen=True):
    """The engine and the image, as docker reports them."""

    version: str
    rootless: bool
    image_id: str
    shared: bool


class Docker:
    """See `lmagent.core.sandbox.Sandbox`."""

    def __init__(self, workspace: Path, options: DockerOptions) -> None:
        self.workspace = workspace
        self.root = ROOT
        self.environment: Mapping[str, str] = base_environment(options.env, options.read)
        self._options = options
        self._real = os.path.realpath(workspace)
        self._lock = anyio.Lock()
        self._engine: _Engine | None = None
        self._link: Link | None = None
        self._spec: Spec | None = None
        self._retired: list[Link] = []

    async def probe(self) -> SandboxReport:
        try:
            engine = await anyio.to_thread.run_sync(self._look)
        except SandboxError as failure:
            return SandboxReport("docker", works=False, reason=failure.message, fix=failure.fix)
        return await attack(
            self, SandboxReport("docker", engine.version), self._options.limits, "the container's group"
        )

    async def start(self, command: Exec, output: OnOutput) -> Remote:
        if any("\0" in text for text in (*command.argv, *command.env, *command.env.values())) or not command.argv:
            raise SandboxError("the command has a NUL in it, or is empty; nothing was run")
        folder = os.path.relpath(inside(self.workspace, command.cwd), self.workspace)
        request = {
            "argv": command.argv,
            "cwd": os.path.normpath(f"{ROOT}/{folder}"),
            "env": {**self.environment, **command.env},
            "merge": command.merge,
            "channel": CHANNEL if command.channel else "",
        }
        link = await self._ready()
        return Remote(link, link.begin(request, output), command)

    async def aclose(self) -> None:
        """End all its commands; the container ends unless another lmagent uses it."""
        links, self._link, self._retired = [*self._retired, *([self._link] if self._link else [])], None, []
        for link in links:
            await link.leave()

    async def _ready(self) -> Link:
        """Return the connection to the container that matches the present workspace."""
        async with self._lock:
            for link in [link for link in self._retired if not link.busy]:
                self._retired.remove(link)
                await link.leave()
            spec = await anyio.to_thread.run_sync(self._wanted)
            if self._link is not None and (not self._link.alive or spec != self._spec):
                self._retired.append(self._link)
                self._link = None
            if self._link is None:
                self._link, self._spec = await self._connect(spec)
            return self._link

    async def _connect(self, spec: Spec) -> tuple[Link, Spec]:
        """Reuse or make a container, and start a supervisor in it."""
        failure = SandboxError("the container could not be reached; nothing was run", fix="docker ps -a shows it")
        for _ in range(_TRIES):
            docker = await anyio.to_thread.run_sync(self._ensure, spec)

            async def bury(name: str = spec.name) -> bool:
                return (await anyio.to_thread.run_sync(self._call, "rm", "--force", name)).returncode == 0

            link = connect([docker, *serve(spec.name)], self._options.env, bury)
            setup = {"filters": _filters(), "mounts": [mount.target for mount in spec.mounts]}
            try:
                found = await link.greet(setup, _ANSWER)
                wrong = _wrong(found, spec)
            except SandboxError as error:  # it may just have been ending
                failure = trouble(error.message, self._options.image)
                await link.bury()
                continue
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await link.bury()
                raise
            if not wrong:
                if _here(found):
                    link.first = await anyio.to_thread.run_sync(self._first, spec.name)
                return link, spec
            failure = SandboxError(wrong, fix="the docker engine has to be one of this machine")
            await link.bury()
            spec = await anyio.to_thread.run_sync(self._wanted)
        raise failure

    def _wanted(self) -> Spec:
        if self._real == os.sep:
            raise SandboxError("the workspace is the whole file system; nothing was run", fix="choose a folder in it")
        options = self._options
        engine = self._engine or self._look()
        try:
            protected = (options.protected or GitGuard(Path(self._real)).protected)()
        except OSError as error:
            raise SandboxError(f"the workspace cannot be opened: {error}; nothing was run") from error
        return Spec(
            workspace=self._real,
            image=options.image,
            image_id=engine.image_id,
            # Without root, the engine's own user is 0 inside, and any other user has no rights over the workspace.
            user="0:0" if engine.rootless else f"{os.getuid()}:{os.getgid()}",
            limits=options.limits,
            network=options.network,
            mounts=mounts(self._real, protected, options.read, shared=engine.shared),
            hidden=is_folder(f"{self._real}/.lmagent"),
        )

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

    def _ensure(self, spec: Spec) -> str:
        """Make sure that the container runs; return the path of the docker program."""
        form = "{{.State.Status}} {{.Image}} {{json .Config.Labels}}"
        for _ in range(40):
            found = self._call("container", "inspect", "--format", form, spec.name)
            if found.returncode == 0:
                status, _, rest = found.stdout.strip().partition(" ")
                if status == "running" and labels_match(rest, spec):
                    break
                if status in ("created", "removing"):  # by another process, at this moment
                    time.sleep(0.1)
                    continue
                self._call("rm", "--force", spec.name)
            made = self._call(*run(spec))
            if made.returncode == 0:
                break
            if "is already in use" not in made.stderr:
                self._call("rm", "--force", spec.name)  # a container that could not be started is left as "created"
                raise trouble(made.stderr, self._options.image)
        else:
            raise SandboxError(f"the container {spec.name} neither starts nor ends", fix=f"docker rm -f {spec.name}")
        return self._program()

    def _first(self, name: str) -> int:
        """Return a descriptor of the container's first process, to kill it without docker; or -1."""
        said = self._call("container", "inspect", "--format", "{{.State.Pid}}", name).stdout.strip()
        if not said.isdigit():
            return -1
        descriptor = -1
        try:
            descriptor = os.pidfd_open(int(said))
            if b"lmagent.sandbox.supervisor" in Path(f"/proc/{said}/cmdline").read_bytes():  # not a reused pid
                return descriptor
        except OSError:
            pass
        if descriptor >= 0:
            os.close(descriptor)
        return -1

    def _program(self) -> str:
        program = find_program("docker", self._options.env, self.workspace)
        if program is None:
            raise SandboxError("docker is not installed; nothing was run", fix=INSTALL)
        return program

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


def _here(found: Mapping[str, Any]) -> bool:
    """Return whether the container is on this machine's own kernel."""
    return sys.platform == "linux" and found["kernel"] == platform.release()


def _wrong(found: Mapping[str, Any], spec: Spec) -> str:
    """Return how the container differs from its spec.

    Docker follows links when it mounts: a command that still runs could have replaced a protected path by a link after
    our look. So the paths inside must have the identity that we saw.
    """
    if not found["filtered"]:
        return "there is no system call filter for the container's processor; nothing was run"
    if not _here(found):
        return ""  # with a virtual machine in between, no inode is the same inside

    def differs(mount: Mount) -> bool:
        # A link that existed only during docker's mount could have led a mount of the workspace elsewhere.
        elsewhere = mount.target.startswith(f"{ROOT}/") and as_listed(mount.target) not in found["points"]
        return elsewhere or tuple(found["mounts"].get(mount.target, ())) != mount.identity

    different = [mount.source for mount in spec.mounts if differs(mount)]
    if different:
        return f"docker mounted other files than the workspace has: {', '.join(different)}; nothing was run"
    return ""
