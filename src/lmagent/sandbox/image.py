"""Builds a docker image of nothing but names, in a moment and without any registry.

It has empty folders, the host's links of old (`bin` → `usr/bin`), and two lists of accounts; programs come from the
host's own /usr, which is mounted into the container. So it needs a Linux host with a merged /usr.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

from lmagent.core.errors import SandboxError
from lmagent.sandbox.docker import LOCAL, SHARED, trouble
from lmagent.sandbox.environment import HOME, find_program

FOLDERS = ("usr", "etc", "etc/ssl", "proc", "sys", "dev", "tmp", "run", "workspace", "home", "var", "root")
"""Without the home folder: its mode in the image would override that of the tmpfs, and no user could write there."""

LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_PULL = "docker pull python:3.12-slim, and set DOCKER_IMAGE=python:3.12-slim"


def build_local_image(name: str = LOCAL, env: Mapping[str, str] | None = None) -> str:
    """Build the image, and return its id. With `env` None, the docker client has this process's environment.

    Raises:
        SandboxError: this host cannot share its /usr, or docker failed.
    """
    env = os.environ if env is None else env
    content = archive()
    docker = find_program("docker", env, Path(os.devnull))
    if docker is None:
        raise SandboxError("docker is not installed", fix="install it: https://docs.docker.com/engine/install")
    argv = [docker, "import", "--change", f"LABEL {SHARED}=host", "--change", "WORKDIR /workspace", "-", name]
    done = subprocess.run(argv, input=content, capture_output=True, env=dict(env), check=False)
    if done.returncode:
        raise trouble(done.stderr.decode("utf-8", "replace"), name)
    return done.stdout.decode().strip()


def archive(root: Path = Path("/")) -> bytes:
    """Return the image's files, as a tar, with the links of `root`.

    Raises:
        SandboxError: programs of this host are not in /usr alone.
    """
    if sys.platform != "linux":
        raise SandboxError("the local image uses the /usr of a Linux host, and this host has another system", fix=_PULL)
    if not (root / "bin").is_symlink():
        raise SandboxError("the local image needs a merged /usr, and /bin is a folder here", fix=_PULL)
    if not (root / "usr/bin/python3").exists():
        raise SandboxError("the local image uses the host's /usr/bin/python3, which does not exist", fix=_PULL)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for folder in FOLDERS:
            _add(tar, folder, tarfile.DIRTYPE, mode=0o1777 if folder == "tmp" else 0o755)
        for link in LINKS:
            if (root / link).is_symlink():
                _add(tar, link, tarfile.SYMTYPE, target=os.readlink(root / link))
        for file, text in _accounts().items():
            _add(tar, file, tarfile.REGTYPE, text=text)
    return content.getvalue()


def _add(tar: tarfile.TarFile, name: str, kind: bytes, *, mode: int = 0o644, target: str = "", text: str = "") -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.linkname, entry.size = kind, mode, target, len(text)
    tar.addfile(entry, io.BytesIO(text.encode()))


def _accounts() -> dict[str, str]:
    uid, gid = os.getuid(), os.getgid()
    return {
        "etc/passwd": f"agent:x:{uid}:{gid}:agent:{HOME}:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n",
        "etc/group": f"agent:x:{gid}:\nnogroup:x:65534:\n",
        "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    }
