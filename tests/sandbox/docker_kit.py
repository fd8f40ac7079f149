"""A docker engine for the tests: one that runs, or one that is started here, or a loud skip. And one that goes away."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmagent.core.errors import SandboxError
from lmagent.sandbox.docker import Docker, build_local_image
from lmagent.sandbox.environment import SandboxRequest

IMAGE = "lmagent-sandbox-test"


@contextlib.contextmanager
def engine() -> Iterator[dict[str, str]]:
    """The environment in which docker works, with the image built. Skips where there can be none."""
    from testkit.images import docker_engine  # `escape_run` imports this file where there is no test kit

    with docker_engine() as env:
        if _docker(env, "image", "inspect", IMAGE).returncode:
            try:
                build_local_image(IMAGE, env)
            except SandboxError as error:
                pytest.skip(f"needs docker: the local image cannot be built ({error.message})")
        yield env


def docker(workspace: Path, env: dict[str, str], **more) -> Docker:
    return Docker(workspace, SandboxRequest(env=env, **{"image": IMAGE, **more}))


def _docker(env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *arguments], env=env, capture_output=True, text=True)


def containers(env: dict[str, str], workspace: Path) -> list[str]:
    listed = _docker(env, "ps", "-aq", "--filter", f"label=lmagent.workspace={os.path.realpath(workspace)}")
    return listed.stdout.split()


class Relay:
    """A socket in front of the engine's, which can be cut: then the engine is gone, for who uses it."""

    def __init__(self, path: Path, env: dict[str, str]) -> None:
        context = _docker(env, "context", "inspect", "--format", "{{.Endpoints.docker.Host}}").stdout.strip()
        self._engine = env.get("DOCKER_HOST", context).removeprefix("unix://")
        self._path = path
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._open = [self._listener]
        self.env = {**env, "DOCKER_HOST": f"unix://{path}"}
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(self._engine)
                self._open += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=_carry, args=(source, sink), daemon=True).start()

    def cut(self) -> None:
        self._path.unlink()
        for end in self._open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self._path.exists():
            self.cut()
        for end in self._open:
            end.close()


def _carry(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            sink.sendall(piece)
        sink.shutdown(socket.SHUT_WR)
