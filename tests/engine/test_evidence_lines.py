"""Which shell lines prove something by their exit code: against a table, and against bash itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lmagent.engine.evidence.line import read
from lmagent.engine.evidence.places import is_guard, is_leaving, lays_hands_on
from lmagent.engine.evidence.record import Evidence, Run
from lmagent.engine.evidence.runners import Check, ran_none, recognise
from lmagent.engine.evidence.verdict import Setting, judge

GUARDS = """
tests/test_a.py test_a.py pkg/a_test.go a.test.ts spec/a_spec.rb conftest.py pytest.ini tox.ini pyproject.toml Makefile
package.json .github/workflows/ci.yml node_modules/.bin/jest .venv/bin/pytest scripts/run-tests.sh Cargo.toml pytest.py
jest.config.js tsconfig.json _pytest/main.py sitecustomize.py src/ATests.java requirements-dev.txt
"""
ORDINARY = "src/calc.py README.md lib/checkout.py app/contest.py src/latest.js docs/specials.md"


def checks(command: str, own: tuple[str, ...] = ()) -> list[Check]:
    """The checks that have surely passed where the line's exit code is 0."""
    found = [recognise(ran, own) for ran in read(command, ".", "/w").ran]
    return [one for one in found if isinstance(one, Check)]


@pytest.mark.parametrize(
    "command",
    [
        "pytest",
        "pytest -q -x --tb=short",
        "pytest -xvs -n 4",
        "python3 -m pytest -ra",
        ".venv/bin/python -m pytest",
        "/w/.venv/bin/pytest",
        "timeout 60 pytest",
        "uv run pytest -q",
        "PYTHONPATH=. pytest",
        "export PYTHONPATH=. && pytest",
        "env CI=1 pytest",
        "pytest --disable-warnings",
        "poetry run python -m unittest discover",
        "cd sub && pytest",
        "(cd sub && pytest)",
        "set -o pipefail; pytest 2>&1 | tail -5",
        "set -euo pipefail\npytest | tee /dev/null",
        "pytest > /dev/null 2>&1",
        "pytest && echo done",
        "echo begin; pytest",
        "make lint; make test",
        "CI=1 NO_COLOR=1 make check",
        "make -j4 test",
        "npm test",
        "npm run test --silent",
        "cargo test --workspace -- --nocapture",
        "go test ./...",
        "go test -race -count=1 ./...",
        "./gradlew test",
        "mvn -q -B verify",
        "ctest --output-on-failure -j 4",
        "node --test",
        "npx vitest run",
        "coverage run --source=src -m pytest",
        "tox",
    ],
)
def test_a_line_whose_exit_code_is_that_of_a_whole_check_counts(command):
    (check,) = [one for one in checks(command) if one.name != "make lint"]
    assert not check.narrow
    assert not check.static


@pytest.mark.parametrize(
    "command",
    [
        "pytest || true",
        "pytest; true",
        "pytest | tail",
        "! pytest",
        "pytest &",
        "pytest & wait $!",
        "false && pytest; echo ok",
        "if pytest; then echo ok; fi",
        "if pytest; then :; else :; fi",
        "while pytest; do break; done",
        "for i in 1; do pytest; done",
        "{ pytest; }",
        "pytest() { true; }; pytest",
        "alias pytest=true; pytest",
        "hash -p /bin/true pytest; pytest",
        "PATH=.:$PATH pytest",
        "PATH=/tmp/x; pytest",
        "export PATH=/tmp/x; pytest",
        "PYTEST_ADDOPTS=--co pytest",
        "PYTHONPATH=fake python -m pytest",
        "env PATH=/tmp pytest",
        "env -i pytest",
        "env PYTHONPATH=fake pytest",
        "export PYTHONPATH=.:fake && pytest",
        "CI=$(mv a b) pytest",
        "set -o pipefail | true; pytest | tail",
        "false && set -o pipefail; pytest | tail",
        "(cd a; cd b; pytest)",
        "cd a; cd b; pytest && cd /w",
        "pytest --collect-only",
        "pytest --version",
        "pytest --help",
        "pytest --deselect tests/test_a.py",
        "pytest --ignore=tests",
        "pytest -c other.ini",
        "pytest -o addopts=--co",
        "pytest -p no:terminal",
        "pytest $ARGS",
        "pytest ${ARGS:=--co}",
        "$PYTEST",
        "py*est",
        "./pytest",
        "/tmp/pytest",
        "sub/pytest",
        "sh pytest",
        "echo pytest passed",
        "echo pytest && true",
        "grep pytest README",
        "bash -c 'pytest'",
        "eval pytest",
        "exec pytest",
        "command pytest",
        "builtin eval pytest",
        "source x; pytest",
        ". ./x && pytest",
        "trap 'exit 0' EXIT; pytest",
        "pytest; exit 0",
        "pytest; exit $?",
        "pytest || exit 0",
        "shopt -s expand_aliases; pytest",
        "set +e; pytest",
        "cd -; pytest",
        "cd $X && pytest",
        "xargs pytest < list",
        "pytest <<EOF\nx\nEOF",
        "python -c 'import pytest'",
        "python pytest.py",
        "pip install pytest",
        "make -n test",
        "make -i test",
        "make -f other.mk test",
        "make test SHELL=/bin/true",
        "MAKEFLAGS=-n make test",
        "make -t test",
        "make build",
        "npm test -- --listTests",
        "npm test --if-present",
        "npm run test --ignore-scripts",
        "npm install",
        "cargo test --no-run",
        "cargo test -- --list",
        "go test -c ./...",
        "go test -list . ./...",
        "go test -exec true ./...",
        "mvn test -DskipTests",
        "gradle test -x test",
        "ctest -N",
        "node test.js",
        "vitest --passWithNoTests",
        "tox --notest",
        "unittest",
        "",
        "pytest '",
        "pytest \x00",
    ],
)
def test_a_line_whose_exit_code_proves_no_check_does_not_count(command):
    assert checks(command) == []


@pytest.mark.parametrize(
    ("command", "narrow"),
    [
        ("pytest tests/test_a.py::test_b", "tests/test_a.py::test_b"),
        ("pytest -k nothing", "-k nothing"),
        ("pytest -m 'not slow'", "-m not slow"),
        ("pytest --lf", "--lf"),
        ("python -m unittest pkg.test_a", "pkg.test_a"),
        ("cargo test adds", "adds"),
        ("cargo test -p core", "-p core"),
        ("go test", "one folder"),
        ("go test -run TestX ./...", "-run TestX"),
        ("make test-unit", "test-unit"),
        ("npm run test:unit", "test:unit"),
        ("tox -e py311", "-e py311"),
    ],
)
def test_a_part_of_a_check_is_known_as_one(command, narrow):
    (check,) = checks(command)
    assert check.narrow.endswith(narrow)


@pytest.mark.parametrize(
    "command",
    [
        "ruff check .",
        "mypy src",
        "pyright",
        "tsc --noEmit",
        "bash -n a.sh",
        "python -m py_compile a.py",
        "go vet ./...",
    ],
)
def test_what_only_reads_the_project_is_known_as_that(command):
    (check,) = checks(command)
    assert check.static


def test_a_persons_own_command_is_a_check_as_it_is_written():
    assert checks("./run_tests.sh  --fast", ("./run_tests.sh --fast",))
    assert not checks("./run_tests.sh", ("./run_tests.sh --fast",))
    assert not checks("FAST=1 ./run_tests.sh", ("./run_tests.sh",))


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("pytest", "collected 0 items\n\nno tests ran in 0.01s"),
        ("pytest", "3 skipped in 0.1s\nno tests ran"),
        ("python -m unittest", "Ran 0 tests in 0.000s\n\nNO TESTS RAN"),
        ("python -m unittest", "Ran 2 tests in 0.000s\n\nOK (skipped=2)"),
        ("make test", "make: Nothing to be done for 'test'."),
        ("make test", "make: 'test' is up to date."),
        ("npm test", "No tests found, exiting with code 0"),
        ("ctest", "No tests were found!!!"),
        ("go test ./...", "?   \tx/y\t[no test files]"),
        ("mvn verify", "[INFO] Tests are skipped."),
    ],
)
def test_a_run_that_says_that_it_ran_nothing_proves_nothing(command, output):
    (check,) = checks(command)
    assert ran_none(check, output)


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("pytest", "\x1b[32m======= \x1b[1m12 passed\x1b[0m, 1 skipped in 0.31s ======\x1b[0m"),
        ("python -m unittest", "..\nRan 2 tests in 0.000s\n\nOK"),
        (
            "cargo test",
            "running 3 tests\ntest result: ok. 3 passed; 0 failed\nrunning 0 tests\ntest result: ok. 0 passed",
        ),
        ("go test ./...", "ok  \tx/y\t0.3s\n?   \tx/z\t[no test files]"),
        ("node --test", "# tests 2\n# pass 2\n# fail 0"),
        ("npx jest", "Tests:       5 passed, 5 total"),
        ("npx vitest run", " Test Files  1 passed (1)\n      Tests  3 passed (3)"),
    ],
)
def test_a_run_that_says_how_many_tests_it_ran_counts(command, output):
    (check,) = checks(command)
    assert not ran_none(check, output)


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("pytest > /dev/null", "(no output)"),
        ("python -m unittest", "(no output)"),
        ("make test", "python3 -m unittest -q"),
        ("npm test", "> shop@1.0.0 test\n> jest"),
    ],
)
def test_a_run_that_does_not_say_how_many_tests_it_ran_proves_nothing(command, output):
    (check,) = checks(command)
    assert ran_none(check, output) == "its output does not show that tests ran"


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("make check", "ruff check .\nAll checks passed!"),
        ("npm test", "> jest\nTests:       5 passed, 5 total"),
        ("make test", "ok"),
    ],
)
def test_a_target_or_script_may_say_what_it_likes(command, output):
    (check,) = checks(command)
    assert not ran_none(check, output)


@pytest.mark.parametrize("path", GUARDS.split())
def test_what_decides_a_check_is_known(path):
    assert is_guard(path)


@pytest.mark.parametrize("path", ORDINARY.split())
def test_ordinary_files_decide_no_check(path):
    assert not is_guard(path)


def test_what_runs_leave_behind_is_no_change():
    for path in ("a/__pycache__/b.pyc", ".pytest_cache/v/x", ".git/index", "app.log", ".coverage"):
        assert is_leaving(path)
    for path in ("build/a.py", "src/log.py", "cache.py"):
        assert not is_leaving(path)


@pytest.mark.parametrize(
    "text",
    [
        "cp fake ~/.local/bin/pytest",
        "printf x > /usr/local/bin/make",
        "ln -sf /bin/true /usr/bin/node",
        "Path('/usr/bin/pytest').write_text('x')",
        "open('/usr/lib/python3.11/site-packages/_pytest/main.py', 'w')",
        "echo 'import os' > x.pth",
    ],
)
def test_hands_on_a_runner_outside_of_the_workspace_are_noticed(text):
    assert lays_hands_on(text)


@pytest.mark.parametrize(
    "text", [".venv/bin/pytest > out.txt 2>&1", "ls -l /usr/bin/python3", "cp a.py b.py; .venv/bin/pytest"]
)
def test_the_use_of_a_runner_is_no_hand_on_it(text):
    assert not lays_hands_on(text)


pieces = st.sampled_from(
    ["pytest", "pytest -q", "true", "false", "echo pytest", "cd .", "(pytest)", "! pytest", "pytest x"]
)
joints = st.sampled_from([" && ", " || ", "; ", "\n", " | ", " & "])
frames = st.sampled_from(
    [
        "{0}",
        "set -o pipefail; {0}",
        "set -e; {0}",
        "({0})",
        "{{ {0}; }}",
        "if {0}; then true; fi",
        "if true; then {0}; fi",
        "{0} 2>&1",
        "timeout 5 {0}",
        "f() {{ {0}; }}; f",
        "trap 'exit 0' EXIT; {0}",
        "{0}; exit 0",
        "eval '{0}'",
        "! {0}",
        "x=$({0})",
        "set -o pipefail\n{0} | cat",
    ]
)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(pieces, joints), min_size=1, max_size=4), frames)
def test_no_line_counts_whose_exit_code_is_0_for_bash_although_the_check_failed(tmp_path, parts, frame):
    line = frame.format(
        "".join(piece + (joint if at < len(parts) - 1 else "") for at, (piece, joint) in enumerate(parts))
    )
    bin_folder = failing_runner(tmp_path)
    counted = checks(line)
    run = subprocess.run(
        ["bash", "-c", line],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{bin_folder}:/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert not (counted and run.returncode == 0), line


def failing_runner(folder: Path) -> Path:
    """A folder with a pytest that always fails."""
    place = folder / "bin"
    if not place.exists():
        place.mkdir()
        (place / "pytest").write_text("#!/bin/sh\nexit 1\n")
        (place / "pytest").chmod(0o755)
    return place


@pytest.mark.parametrize("text", ["> bin/ " * 30_000, "make " * 40_000, "cp bin/" + "a" * 200_000, "pytest " * 30_000])
def test_the_longest_commands_cost_little(text):
    lays_hands_on(text)
    assert checks(text) == []
    assert judge(evidence_of(text), Setting("/w")).proof != "verified"


def evidence_of(command: str) -> Evidence:
    """A change, and then a command that ended well."""
    run = Run(seq=2, call="c", command=command, folder=".", ended=".", exports={}, code=0, output="3 passed")
    return Evidence(touched={"a.py": 1}, runs=[run])
