"""lmagent's images, built by a real docker engine from the sources, without network, from a base that is made here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCKERD = ROOT / "scripts" / "dockerd.sh"
BASE = "lmagent-test-base"
IMAGES = {
    "agent": "lmagent-agent-test",
    "cluster": "lmagent-cluster-test",
    "lms": "lmagent-lms-test",
    "server": "lmagent-server-test",
}
"""The names of the images, by their targets in the Dockerfile; `cluster` is the agent of compose.cluster.yaml."""

EXTRAS = {"agent": "js", "cluster": "js,cluster", "lms": "js", "server": "local"}
POSTGRES = "lmagent-postgres-test"
ENTRYPOINT = Path(__file__).with_name("postgres_entrypoint.sh")


def run(env: dict[str, str], *argv: str, check: bool = True, cwd: Path = ROOT) -> str:
    done = subprocess.run(argv, env=env, capture_output=True, text=True, cwd=cwd)
    if check and done.returncode:
        raise AssertionError(f"{argv[:3]}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout.strip()


@contextmanager
def docker_engine() -> Iterator[dict[str, str]]:
    """The environment in which a docker engine answers; skips where there can be none."""
    env, started = dict(os.environ), False
    if shutil.which("docker") is None:
        pytest.skip("needs docker: the docker program is not installed")
    if subprocess.run(["docker", "version"], env=env, capture_output=True).returncode:
        script = subprocess.run([DOCKERD, "start", str(os.getpid())], capture_output=True, text=True)
        if script.returncode:
            pytest.skip(f"needs docker: no engine answers, and none can be started ({script.stderr.strip()})")
        started, env["DOCKER_HOST"] = True, script.stdout.strip()
    try:
        yield env
    finally:
        if started:
            subprocess.run([DOCKERD, "stop", str(os.getpid())], check=True)


def build_image(env: dict[str, str], target: str) -> str:
    """Build the image of a target, once in a process, and return its name."""
    return _built(env.get("DOCKER_HOST", ""), target)


@cache
def _built(host: str, target: str) -> str:
    env = {**os.environ, **({"DOCKER_HOST": host} if host else {})}
    _make_base(env, BASE)
    options = ["--build-arg", f"BASE={BASE}", "--build-arg", "PIP_OPTIONS=--no-index --find-links /src/wheels"]
    options += ["--build-arg", "PACKAGES=", "--build-arg", f"EXTRAS={EXTRAS[target]}", "--network", "none"]
    with TemporaryDirectory(prefix="lmagent-image-") as folder:
        context = Path(folder)
        for name in ("src", "pyproject.toml", "README.md", "LICENSE", "Dockerfile", ".dockerignore"):
            source = ROOT / name
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, context / name)
        shutil.copytree(_wheels(), context / "wheels")
        options += ["--target", "agent" if target == "cluster" else target, "-t", IMAGES[target]]
        run(env, "docker", "build", "-q", *options, str(context))
    return IMAGES[target]


def build_postgres(env: dict[str, str]) -> str:
    """Build an image with Debian's PostgreSQL that takes the variables of the official one, and return its name."""
    base = f"{POSTGRES}-base"
    _make_base(env, base, "postgresql")
    with TemporaryDirectory(prefix="lmagent-postgres-image-") as folder:
        shutil.copy(ENTRYPOINT, folder)
        lines = [f"FROM {base}", f"COPY {ENTRYPOINT.name} /entrypoint"]
        # As in the official image: any user may write there.
        lines += ["RUN install -d -o postgres -g postgres -m 3777 /var/lib/postgresql/data /var/run/postgresql"]
        lines += ["VOLUME /var/lib/postgresql/data", "STOPSIGNAL SIGINT", 'ENTRYPOINT ["/entrypoint"]']
        (Path(folder) / "Dockerfile").write_text("\n".join(lines) + "\n")
        run(env, "docker", "build", "-q", "--network", "none", "-t", POSTGRES, folder)
    return POSTGRES


def _make_base(env: dict[str, str], name: str, *packages: str) -> None:
    """Make a base image of Debian's packages if the engine has none of this name."""
    if not run(env, "docker", "images", "-q", name):
        command = [ROOT / "scripts" / "docker_base.sh", name, *packages]
        made = subprocess.run(command, env=env, capture_output=True, text=True)
        if made.returncode:
            pytest.skip(f"needs a base image: none can be made here ({made.stderr.strip()[-300:]})")


@cache
def _wheels() -> Path:
    """Fetch the wheels that the images need, for the Python of the base, and return their folder."""
    folder = Path(_kept.name)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *extras["local"], *extras["js"], *extras["cluster"], "hatchling"]
    # The base has Debian's Python: its wheels are asked for, whatever this process runs on.
    wanted = ["--python-version", "3.11", "--only-binary", ":all:"]
    pip = [sys.executable, "-m", "pip"] if shutil.which("pip") is None else ["pip"]
    got = subprocess.run([*pip, "download", "-q", "-d", folder, *wanted, *needed], capture_output=True)
    if got.returncode:
        pytest.skip(f"needs wheels for the image: {got.stderr.decode()[-300:]}")
    return folder


_kept = TemporaryDirectory(prefix="lmagent-wheels-")


def healthy(env: dict[str, str], container: str) -> str:
    """Wait until a container is healthy, or is not going to be; return its health and state."""
    state = ""
    for _ in range(120):
        state = run(env, "docker", "inspect", "-f", "{{.State.Health.Status}} {{.State.Status}}", container)
        if not state.startswith("starting running"):
            return state
        time.sleep(0.5)
    return state
