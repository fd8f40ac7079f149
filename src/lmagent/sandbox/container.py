"""Docker's command lines for the container of a workspace. Nothing here runs anything.

A container's name is a hash of its whole setup: the workspace, the user, the image, the limits, and the mounts. Mounts
are fixed when a container starts, and git's protected paths are not (a `git init`, or a `git config` of the user, which
replaces the file by a new one). So the name covers the inode of each protected path: a changed set means a new
container for the next command, and the old container ends when its own commands have.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path

from msgspec import Struct

from lmagent.core.errors import SandboxError
from lmagent.core.sandbox import Limits
from lmagent.sandbox.environment import HOME
from lmagent.sandbox.git.guard import Protected

LOCAL = "lmagent-sandbox"
"""Name of the image that is built here, from scratch (see `image`)."""

SHARED = "lmagent.usr"
"""Label of an image that has the host's /usr mounted."""

ROOT = "/workspace"
IDLE = 60
"""Seconds that a container stays after the last lmagent has disconnected."""

MEGABYTE = 1024 * 1024

ETC = ("ld.so.cache", "alternatives", "ssl/certs", "ssl/openssl.cnf", "ca-certificates", "pki/tls/certs", "localtime")
"""The visible part of the host's /etc if its /usr is mounted: not `ssl/private`, which root could read."""

_BOOT = """
import sys, types
for name, text in {sources!r}:
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
module.main()
"""


class Mount(Struct, frozen=True):
    """A folder or file that is mounted inside; `identity` (device and inode) is compared inside."""

    source: str
    target: str
    writable: bool
    identity: tuple[int, int]


class Spec(Struct, frozen=True):
    """The setup of a container.

    Attributes:
        image_id: the id that the name had at the last look.
        user: user and group inside, `1000:1000`.
        limits: of all commands together.
        mounts: outermost first.
        hidden: whether the workspace's `.lmagent` is covered.
    """

    workspace: str
    image: str
    image_id: str
    user: str
    limits: Limits
    network: str
    mounts: tuple[Mount, ...]
    hidden: bool

    @property
    def policy(self) -> str:
        """A hash of hardening options, image and mounts."""
        return _hash((*_hardening(self), self.image_id, repr(self.mounts)))

    @property
    def name(self) -> str:
        return f"lmagent-{_hash((self.workspace, self.policy))}"

    @property
    def labels(self) -> dict[str, str]:
        """Labels that identify the container."""
        return {"lmagent.workspace": self.workspace, "lmagent.policy": self.policy}


def _hash(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:24]


def run(spec: Spec) -> list[str]:
    labels = [part for name, value in spec.labels.items() for part in ("--label", f"{name}={value}")]
    name = ["run", "--detach", "--rm", "--pull", "never", "--name", spec.name]
    return [*name, *labels, *_hardening(spec), "--entrypoint", "python3", spec.image_id, *program("hold", str(IDLE))]


def serve(name: str) -> list[str]:
    return ["exec", "--interactive", "--workdir", "/", name, "python3", *program("serve")]


def program(*arguments: str, module: str = "supervisor") -> list[str]:
    """Return the arguments of a python3 that runs one of our programs, with the standard library alone."""
    folder = resources.files("lmagent.sandbox")
    sources = [(f"lmagent.sandbox.{name}", (folder / f"{name}.py").read_text()) for name in ("keeper", module)]
    return ["-I", "-S", "-c", _BOOT.format(sources=sources), *arguments]


def _hardening(spec: Spec) -> tuple[str, ...]:
    limits = spec.limits
    memory, tmp = f"{limits.memory_mb}m", f"rw,nosuid,nodev,exec,size={limits.tmp_mb}m,nr_inodes=100000"
    covers = ["--tmpfs", f"{ROOT}/.lmagent:ro,size=4k,mode=0555"] if spec.hidden else []
    return (
        *("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--pids-limit", str(limits.pids), "--memory", memory, "--memory-swap", memory),
        *("--cpus", str(limits.cpus or 0.9), "--network", spec.network, "--user", spec.user, "--ipc", "private"),
        *("--log-driver", "none", "--no-healthcheck", "--hostname", "sandbox", "--shm-size", "64m"),
        *("--ulimit", "core=0", "--ulimit", f"fsize={limits.file_mb * MEGABYTE}", "--ulimit", "nofile=4096:4096"),
        *("--tmpfs", f"/tmp:{tmp},mode=1777", "--tmpfs", f"{HOME}:{tmp},mode=0777"),
        *(part for mount in spec.mounts for part in ("--mount", _mount(mount))),
        *(*covers, "--workdir", ROOT),
    )


def _mount(mount: Mount) -> str:
    """Return the value of `--mount`, a line of CSV. Unlike `-v`, it makes no missing folder."""
    fields = [
        "type=bind",
        f"source={mount.source}",
        f"target={mount.target}",
        *(() if mount.writable else ("readonly",)),
    ]
    return ",".join('"' + field.replace('"', '""') + '"' for field in fields)


def mounts(workspace: str, protected: Iterable[Protected], read: Sequence[Path], *, shared: bool) -> tuple[Mount, ...]:
    """Return all mounts.

    Args:
        read: more folders that are readable, at their own paths.
        shared: whether the host's /usr is mounted.

    Raises:
        SandboxError: the workspace cannot be read.
    """
    try:
        found = [Mount(workspace, ROOT, True, _identity(os.stat(workspace)))]
    except OSError as error:
        raise SandboxError(f"the workspace cannot be opened: {error}; nothing was run") from error
    system = ["/usr", *(f"/etc/{name}" for name in ETC)] if shared else []
    there = (path for path in (*system, *map(str, read)) if os.path.exists(path))
    found += [Mount(path, path, False, _identity(os.stat(path))) for path in there]
    for item in protected:
        try:
            status = os.lstat(item.path)
        except OSError:
            continue  # it vanished at this moment
        if not stat.S_ISLNK(status.st_mode):
            target = f"{ROOT}/{item.path.relative_to(workspace).as_posix()}"
            found.append(Mount(str(item.path), target, item.writable, _identity(status)))
    return tuple(found)


def is_folder(path: str) -> bool:
    """Return whether the path is a folder and no link."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def trouble(said: str, image: str) -> SandboxError:
    """Turn docker's standard error into an error with a fix."""
    text = " ".join(said.split())
    if text.startswith("template:"):  # `docker info` of some versions, without an engine
        text = "Cannot connect to the Docker daemon"
    short = text.split(" See 'docker")[0].split(" Run 'docker")[0][-400:] or "it said nothing"
    pull = f"docker pull {image}" if image.split(":")[0] != LOCAL else "lmagent sandbox image"
    for signs, message, fix in (
        (("permission denied while trying",), "docker does not let this user in", _GROUP),
        (_DOWN, "the docker engine does not run", _START),
        (("No such image", "Unable to find image"), f"there is no docker image {image!r}", pull),
        (("python3", "executable file not found"), f"there is no python3 in the docker image {image!r}", _PYTHON),
        (("No such container", "is not running"), "the container has ended", ""),
    ):
        if any(sign in text for sign in signs) and (signs[0] != "python3" or all(sign in text for sign in signs)):
            return SandboxError(f"{message}; nothing was run ({short})", fix=fix)
    return SandboxError(f"docker failed; nothing was run: {short}", fix="docker info shows more")


_DOWN = (
    "Cannot connect to the Docker daemon",
    "Is the docker daemon running",
    "if the daemon is running",
    "during connect",
)
_GROUP = "sudo usermod -aG docker $USER, then log in again (whoever is in that group is as good as root)"
_START = "start it: sudo systemctl start docker (or open Docker Desktop)"
_PYTHON = "choose one that has it: docker pull python:3.12-slim, DOCKER_IMAGE=python:3.12-slim"


def labels_match(text: str, spec: Spec) -> bool:
    """Return whether image and labels of a container (`IMAGE LABELS`, as docker prints them) match the spec."""
    image, _, labels = text.partition(" ")
    try:
        found = json.loads(labels)
    except ValueError:
        return False
    return image == spec.image_id and all(found.get(name) == value for name, value in spec.labels.items())
