"""The escape-and-abuse suite: no case escapes from any backend, and most escape where there is none.

The cases are in `escape_cases_*.py`, with C programs in `escape_c/`; `escape_kit.py` tells how an escape is noticed.
Open findings are marked in the cases (`known`) and expected to fail, strictly: who closes one takes its mark away.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec
import pytest
from escape_cases import CASES, CATEGORIES
from escape_kit import KEY, Outcome
from escape_run import Plan

from lmagent.core.sandbox import Limits
from lmagent.sandbox.limits import make_group

pytestmark = pytest.mark.long

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
NOBODY = 1000
"""User of the runs as an ordinary user; it need not have an account."""

NEEDED = ("anyio", "msgspec", "idna", "typing_extensions", "sniffio", "exceptiongroup", "pathspec")
BACKENDS = ("bubblewrap", "bubblewrap-as-another-user", "docker")


@functools.cache
def programs() -> Path:
    """The compiled C programs."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc: it is not installed, and cases are written in C")
    folder = Path(tempfile.mkdtemp(prefix="lmagent-escape-c-"))
    folder.chmod(0o755)
    for source in sorted((HERE / "escape_c").glob("*.c")):
        library = source.stem == "preload"
        output = folder / (f"{source.stem}.so" if library else source.stem)
        subprocess.run(["gcc", "-O1", *(["-shared", "-fPIC"] if library else []), "-o", output, source], check=True)
    return folder


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> Iterator[None]:
    folder = programs()
    yield
    shutil.rmtree(folder, ignore_errors=True)
    programs.cache_clear()


@functools.cache
def others_python() -> tuple[str, str]:
    """A Python that another user can run, and the path on which it finds us: copies, for ours may lie in /root."""
    copy = Path(tempfile.mkdtemp(prefix="lmagent-escape-python-"))
    shutil.copytree(SOURCE / "lmagent", copy / "lmagent", ignore=shutil.ignore_patterns("__pycache__"))
    for name in NEEDED:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            origin = Path(spec.origin)
            if origin.name == "__init__.py":
                shutil.copytree(origin.parent, copy / name, ignore=shutil.ignore_patterns("__pycache__", "tests"))
            else:
                shutil.copy(origin, copy)
    for source in HERE.glob("escape_*.py"):
        shutil.copy(source, copy)
    subprocess.run(["chmod", "-R", "go+rX", copy], check=True)
    for program in (os.path.realpath(sys.executable), "/usr/bin/python3"):
        # It has to find itself again, to start another: whoever has become another user may still reach one in /root.
        test = "import subprocess, sys, escape_run; subprocess.run([sys.executable, '-c', ''], check=True)"
        argv = [*_as_nobody(), program, "-c", test]
        done = subprocess.run(argv, env={"PYTHONPATH": str(copy)}, capture_output=True, text=True, cwd="/")
        if done.returncode == 0:
            return program, str(copy)
    pytest.skip(f"needs another user: no Python here can be run by it ({done.stderr.strip()[-200:]})")


@pytest.fixture(scope="module", autouse=True)
def _copies_end() -> Iterator[None]:
    yield
    if others_python.cache_info().currsize:
        shutil.rmtree(others_python()[1])
        others_python.cache_clear()


def _as_nobody() -> list[str]:
    return ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]


def play(backend: str, cases: list[str], engine: Mapping[str, str] = MappingProxyType({})) -> list[Outcome]:
    """Run cases in a process of their own, as the user that the backend asks for."""
    other = backend == "bubblewrap-as-another-user"
    python, path = others_python() if other else (sys.executable, f"{SOURCE}:{HERE}")
    scratch = Path(tempfile.mkdtemp(prefix="lmagent-escapes-", dir="/tmp"))  # a socket's path must be short
    key = f"sk-{secrets.token_hex(16)}"
    try:
        scratch.chmod(0o755)
        name = "bubblewrap" if other else backend
        plan = Plan(name, cases, str(scratch), str(programs()), key, dict(engine))
        (scratch / "plan.json").write_bytes(msgspec.json.encode(plan))
        if other:
            os.chown(scratch, NOBODY, NOBODY)
        program = Path(path, "escape_run.py") if other else HERE / "escape_run.py"
        argv = [*(_as_nobody() if other else []), python, program, scratch / "plan.json", scratch / "result.json"]
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": path, "HOME": str(scratch / "home"), KEY: key}
        env |= {"PYTHONDONTWRITEBYTECODE": "1", **engine}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=240, cwd="/", check=False)
        if not (scratch / "result.json").exists():
            raise RuntimeError(f"the run ended with {done.returncode}: {done.stdout[-1000:]} {done.stderr[-3000:]}")
        return msgspec.convert(json.loads((scratch / "result.json").read_text()), list[Outcome])
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@functools.cache
def engine() -> dict[str, str]:
    """The environment in which docker works; skips where there is none."""
    if importlib.util.find_spec("lmagent.sandbox.docker") is None:
        pytest.skip("needs docker: there is no docker backend yet")
    import docker_kit

    return _held.enter_context(docker_kit.engine())


_held = contextlib.ExitStack()


@pytest.fixture(scope="module", autouse=True)
def _engine_ends() -> Iterator[None]:
    yield
    _held.close()
    engine.cache_clear()


def ready(backend: str, request: pytest.FixtureRequest) -> Mapping[str, str]:
    """Skip where the backend cannot be had."""
    if backend == "docker":
        return engine()
    request.getfixturevalue("works")
    if backend == "bubblewrap-as-another-user":
        if os.geteuid() != 0:
            pytest.skip("the tests run as an ordinary user already")
        if shutil.which("setpriv") is None:
            pytest.skip("needs another user: setpriv is not installed")
    return {}


@functools.cache
def tags(backend: str) -> frozenset[str]:
    """What findings may apply to: the backend, the kind of user, whether there are control groups."""
    if backend == "docker":
        return frozenset({"docker", "docker-root"} if os.geteuid() == 0 else {"docker"})
    if backend == "bubblewrap-as-another-user" or os.geteuid() != 0:
        return frozenset({"bubblewrap", "user", "ungrouped"})
    if (group := make_group(Limits())) is None:
        return frozenset({"bubblewrap", "root", "ungrouped"})
    group.remove()
    return frozenset({"bubblewrap", "root"})


def known(backend: str) -> dict[str, str]:
    """The open findings on a backend, with their reasons."""
    found = {name: [why for tag, why in case.known.items() if tag in tags(backend)] for name, case in CASES.items()}
    return {name: why[0] for name, why in found.items() if why}


def listed(outcomes: list[Outcome], status: str) -> str:
    return "\n".join(f"{one.id}: {one.detail}" for one in outcomes if one.status == status)


@pytest.mark.parametrize("category", CATEGORIES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_no_case_escapes(backend: str, category: str, request: pytest.FixtureRequest):
    environment = ready(backend, request)
    cases = [name for name, case in CASES.items() if case.category == category and name not in known(backend)]
    outcomes = play(backend, cases, environment)
    for outcome in outcomes:
        print(f"{outcome.status:8} {outcome.seconds:5.1f} s  {outcome.id}")
    assert not listed(outcomes, "escaped"), f"escaped from {backend}:\n{listed(outcomes, 'escaped')}"
    assert not listed(outcomes, "broken"), f"prove nothing on {backend}:\n{listed(outcomes, 'broken')}"
    assert {outcome.id for outcome in outcomes} == set(cases)


def _open_findings() -> Iterator[object]:
    for backend in BACKENDS:
        for name, why in known(backend).items():
            mark = pytest.mark.xfail(strict=True, raises=AssertionError, reason=why)
            yield pytest.param(backend, name, marks=mark, id=f"{backend}-{name}")


@functools.cache
def known_outcomes(backend: str) -> dict[str, Outcome]:
    found = play(backend, list(known(backend)), engine() if backend == "docker" else {})
    return {outcome.id: outcome for outcome in found}


@pytest.mark.parametrize(("backend", "name"), list(_open_findings()))
def test_open_findings_are_closed(backend: str, name: str, request: pytest.FixtureRequest):
    ready(backend, request)
    outcome = known_outcomes(backend)[name]
    if outcome.status in ("broken", "skipped"):
        raise RuntimeError(f"{name} is {outcome.status}: {outcome.detail}")
    assert outcome.status == "held", outcome.detail


def test_without_a_sandbox_most_cases_escape():
    expected = ("escapes", "root") if os.geteuid() == 0 else ("escapes",)
    outcomes = play("off", [name for name, case in CASES.items() if case.control in expected])
    tried = [outcome for outcome in outcomes if outcome.status != "skipped"]
    escaped = [outcome for outcome in tried if outcome.status == "escaped"]
    toothless = [f"{outcome.id} ({outcome.status}): {outcome.detail}" for outcome in tried if outcome not in escaped]
    print(f"{len(escaped)} of {len(tried)} escape; not:", *toothless, sep="\n")
    assert len(escaped) >= 0.8 * len(tried), "\n".join(toothless)


def test_there_are_at_least_120_cases_in_three_languages():
    assert len(CASES) >= 120
    assert {case.language for case in CASES.values()} == {"sh", "python", "c"}
