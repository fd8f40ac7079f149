"""Which command lines are checks, which files decide about one, and what a passing run prints."""

from __future__ import annotations

import pytest

from lmagent.core.changes import is_byproduct
from lmagent.proof.checks import code_of, is_guard, is_looking, is_product, project_check, ran_tests

GUARDS = """
tests/test_a.py test_a.py pkg/a_test.go a.test.ts spec/a_spec.rb conftest.py pytest.ini tox.ini pyproject.toml Makefile
package.json .github/workflows/ci.yml node_modules/.bin/jest .venv/bin/pytest scripts/run-tests.sh Cargo.toml pytest.py
jest.config.js tsconfig.json _pytest/main.py sitecustomize.py src/ATests.java requirements-dev.txt go.sh .eslintrc.js
"""
ORDINARY = (
    "src/calc.py README.md lib/checkout.py app/contest.py src/latest.js docs/specials.md src/config.py bin/cli.js"
)


@pytest.mark.parametrize("command", ["pytest", "pytest -q -x", "python3 -m pytest", "python -m unittest discover -v"])
def test_a_known_runner_runs_the_code_of_its_language(command):
    assert code_of(command) == (".py",)


@pytest.mark.parametrize("command", ["make test", "make check", "npm test", "npm run test", "yarn test"])
def test_a_target_or_script_may_run_any_code(command):
    assert code_of(command) == ()


@pytest.mark.parametrize(
    "command",
    [
        *("pytest | tail -5", "pytest || true", "pytest; echo $?", "! pytest", "pytest &", "pytest\ntrue", "(pytest)"),
        *(
            "PATH=.:$PATH pytest",
            "env pytest",
            "pytest -k nothing",
            "pytest tests/test_a.py",
            "pytest --co",
            "pytest >f",
        ),
        *(
            "make -n test",
            "make test SHELL=/bin/true",
            "make -i test",
            "make\ntest",
            "go\ntest ./...",
            "cargo test adds",
        ),
        *(
            "./pytest",
            "bash -c pytest",
            "echo pytest",
            "pytest # all",
            "npm test --if-present",
            "python3 -m unittest -h",
        ),
        *("make -v test", "make test.nothing", "mvn test -DskipTests", "pytest\r", "", " ", "pytest -o addopts=--co"),
    ],
)
def test_a_line_that_is_more_or_less_than_a_known_runner_is_no_check(command):
    assert code_of(command) is None


@pytest.mark.parametrize(
    "command", ["ls -la", "cat a.py", "grep -rn 'def add' src", "git diff", "git log -3", "tail -5 x"]
)
def test_looking_at_files_is_no_program_that_could_change_a_check(command):
    assert is_looking(command)


@pytest.mark.parametrize(
    "command",
    ["cat a > b", "ls; rm x", "cat $(rm x)", "git commit -m x", "git", "python3 a.py", "head 'x", "cat a\nrm b", ""],
)
def test_every_other_command_may_have_changed_something(command):
    assert not is_looking(command)


@pytest.mark.parametrize(
    "output",
    [
        *("3 passed in 0.1s", "Ran 1 test in 0.0s\n\nOK", "Tests:  3 passed, 3 total", "# pass 3", "  3 passing (9ms)"),
        *(
            "test result: ok. 3 passed; 0 failed",
            "ok  \tx/y\t0.01s",
            "ok  \tx/y\t(cached)",
            "Tests run: 3, Failures: 0",
        ),
        *("100% tests passed, 0 tests failed out of 3", "3 examples, 0 failures", "OK (3 tests, 5 assertions)"),
    ],
)
def test_a_run_that_states_how_many_tests_ran_is_known(output):
    assert ran_tests(output)


@pytest.mark.parametrize(
    "output",
    [
        *("", "no tests ran in 0.01s", "Ran 0 tests in 0.000s", "make: 'test' is up to date.", "No tests found", "OK"),
        *("?   \tx/y\t[no test files]", "ok  \tx/y\t0.01s [no tests to run]", "[INFO] Tests are skipped.", "0 passed"),
        "test result: ok. 0 passed; 0 failed",
    ],
)
def test_a_run_that_states_no_test_is_known(output):
    assert not ran_tests(output)


@pytest.mark.parametrize("path", GUARDS.split())
def test_a_file_that_decides_about_a_check_is_known(path):
    assert is_guard(path, "")


@pytest.mark.parametrize("path", ORDINARY.split())
def test_ordinary_files_decide_about_no_check(path):
    assert not is_guard(path, "")


def test_a_file_that_the_check_names_decides_about_it():
    assert is_guard("tools/go.py", "test:\n\tpython3 tools/go.py\n")


def test_files_that_runs_leave_behind_are_no_changes():
    for path in ("a/__pycache__/b.pyc", ".pytest_cache/x", ".coverage", "coverage.xml", ".git/index", "run.log"):
        assert is_byproduct(path)
    assert is_product("target/debug/x")
    assert is_product("report.xml")
    assert not is_byproduct("src/log.py")
    assert not is_product("src/out.py")


def test_the_projects_own_check_is_found(tmp_path):
    assert project_check(tmp_path) == ""
    (tmp_path / "go.mod").write_text("module x\n")
    assert project_check(tmp_path) == "go test ./..."
    (tmp_path / "Cargo.toml").write_text("[package]\n")
    assert project_check(tmp_path) == "cargo test"
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    assert project_check(tmp_path) == "python3 -m pytest"
    (tmp_path / "package.json").write_text('{"scripts": {"test": "jest"}}')
    assert project_check(tmp_path) == "npm test"
    (tmp_path / "Makefile").write_text("CHECK := 1\ntest: build\n\tx\ncheck: test\n")
    assert project_check(tmp_path) == "make check"


@pytest.mark.parametrize(
    "content",
    ["", "[1]", "{", '{"scripts": 1}', '{"scripts": {"test": "no test specified"}}'],
)
def test_an_odd_package_file_names_no_check(tmp_path, content):
    (tmp_path / "package.json").write_text(content)
    assert project_check(tmp_path) == ""
