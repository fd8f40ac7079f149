"""Checks: the commands that check a project, the output of a passing run, and the files that can influence its result.

A check that passes after such a file was changed verifies the work only in part. That rule is coarse on purpose: a file
that is neither code nor a document counts as configuration.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from lmagent.core.patterns import late

BYTES = 200_000
"""Bytes of a Makefile or package.json that are read."""

_SCRIPT = (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts", ".vue", ".svelte")
_JVM = (".java", ".kt", ".kts", ".scala", ".groovy")

_RUNNERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"(?:python3? -m )?pytest(?: -[qvx]+)*|python3? -m unittest(?: discover)?(?: -[qv])*|tox|nox", (".py",)),
    (r"make (?:check|tests?|verify)|(?:npm|pnpm|yarn|bun)(?: run)? test|ctest", ()),
    (r"(?:npx )?(?:jest|mocha|vitest run)|node --test|deno test", _SCRIPT),
    (r"cargo test", (".rs",)),
    (r"go test \./\.\.\.", (".go",)),
    (r"mvn test|gradle test", _JVM),
    (r"rspec", (".rb",)),
    (r"phpunit", (".php",)),
    (r"dotnet test", (".cs", ".fs")),
    (r"mix test", (".ex", ".exs")),
    (r"swift test", (".swift",)),
)
"""Command lines that run all tests of a project, and the suffixes of the code that they run; empty for any code.

A line counts only if it matches in full: a further option may leave out tests, or all of them.
"""

_MORE_CODE = "c h cc cpp hpp m sh bash pl pm lua r R jl dart zig hs clj sql ps1"

CODE = (*{suffix for _, suffixes in _RUNNERS for suffix in suffixes}, *(f".{name}" for name in _MORE_CODE.split()))
_RAN_TESTS = late(
    r"\b[1-9]\d*\s+(?:tests?|pass(?:ed|ing)?|examples?)\b|\btests? run:\s*[1-9]|\bpass(?:ed)?:?\s+[1-9]"
    r"|\bout of [1-9]|^ok\s+\S+\s+[\d(](?!.*no tests)",
    re.IGNORECASE | re.MULTILINE,
)

_TARGET = late(r"^(check|tests?|verify)\s*:(?!=)", re.MULTILINE)

_LOOKING = ("ls", "cat", "head", "tail", "grep", "wc", "pwd", "stat", "file", "diff")
_LOOKING_GIT = ("status", "diff", "log", "show")
_SPECIAL = late(r"[|&;<>()$`\n\\{}!]")


def code_of(command: str) -> tuple[str, ...] | None:
    """Return the suffixes of the code that a known runner tests, empty for any code; None for another command."""
    return next((suffixes for form, suffixes in _RUNNERS if re.fullmatch(form, command)), None)


def ran_tests(output: str) -> bool:
    return _RAN_TESTS.search(output) is not None


def is_looking(command: str) -> bool:
    """Return whether a command line is one simple command that only prints files or their names."""
    if _SPECIAL.search(command):
        return False
    with suppress(ValueError):  # an open quote
        words = [*shlex.split(command), "", ""]
        return words[0] in _LOOKING or (words[0] == "git" and words[1] in _LOOKING_GIT)
    return False


def has_code(paths: Iterable[str]) -> bool:
    return any(path.endswith(CODE) for path in paths)


def project_check(workspace: Path) -> str:
    """Return the command with which a project checks itself, by its files; empty if they name no check."""
    if targets := _TARGET.findall(makefile(workspace)):
        return f"make {min(targets, key=('check', 'test', 'tests', 'verify').index)}"
    if (test := package_scripts(workspace).get("test")) and "no test specified" not in str(test):
        return "npm test"
    names = ("pytest.ini", "conftest.py", "tests/conftest.py")
    if "[tool.pytest" in beginning(workspace / "pyproject.toml") or any((workspace / name).exists() for name in names):
        return "python3 -m pytest"
    if (workspace / "Cargo.toml").exists():
        return "cargo test"
    return "go test ./..." if (workspace / "go.mod").exists() else ""


def makefile(workspace: Path) -> str:
    """Return the text of the Makefile that make reads; empty without a Makefile."""
    return next(filter(None, (beginning(workspace / name) for name in ("GNUmakefile", "makefile", "Makefile"))), "")


def package_scripts(workspace: Path) -> dict[str, Any]:
    """Return the scripts of package.json; empty if it has none or is damaged."""
    with suppress(ValueError, RecursionError):
        package: Any = json.loads(beginning(workspace / "package.json"))
        scripts: Any = package.get("scripts") if isinstance(package, dict) else None  # type: ignore[reportUnknownMemberType]
        return scripts if isinstance(scripts, dict) else {}  # type: ignore[reportUnknownVariableType]
    return {}


def beginning(path: Path) -> str:
    """Return the first `BYTES` bytes of a file as text; empty if it cannot be read."""
    with suppress(OSError):
        if path.is_file():  # a pipe would never end
            with path.open("rb") as file:
                return file.read(BYTES).decode("utf-8", "replace")
    return ""


_SHELL_SCRIPTS = (".sh", ".bash", ".ps1", ".bat", ".gradle.kts")
_DOCUMENTS = (".md", ".rst", ".html", ".css", ".scss", ".svg", ".png", ".jpg", ".gif", ".ico", ".woff2", ".csv", ".pdf")

_WORDS = (
    r"tests?|specs?|checks?|verify|lint|ci|e2e|testing|testdata|fixtures?|mocks?|snapshots?|conftest|venv|node_modules"
    r"|site-packages|(?:site|user)customize|setup\.py|noxfile|build\.rs|gulpfile|gruntfile"
)
_TESTS = late(rf"(?:^|[^a-zA-Z])(?i:{_WORDS})(?![a-zA-Z])|Tests?(?![a-z])|Spec(?![a-z])|\.config\.|rc\.[cm]?js$")

_RUNNER_NAMES = late(
    r"(?:^|/)(?:_?pytest|py|pluggy|iniconfig|unittest|doctest|tox|nox|mypy|ruff|coverage|hypothesis|pyright|jest|mocha"
    r"|vitest|make|cargo|npm|npx|node|go|mvn|gradle|ctest|python3?)(?=[./]|$)"
)
"""A module or program of such a name may run in place of the runner."""


def is_guard(path: str, recipes: str) -> bool:
    """Return whether a changed file can influence a check's result.

    `recipes` is the text of the check and of the files with its commands.
    """
    name = path.rpartition("/")[2]
    plain = path.endswith((*CODE, *_DOCUMENTS)) and not path.endswith(_SHELL_SCRIPTS)
    hidden = any(part.startswith(".") for part in path.split("/"))
    return not plain or hidden or bool(_TESTS.search(path) or _RUNNER_NAMES.search(path)) or name in recipes


_PRODUCTS = late(
    r"(?:.*/)?(?:(?:target|build|_build|dist|out|coverage|playwright-report|test-?results|\.\w+)/.*"
    r"|(?:junit|report|test-?results?)[\w.-]*\.(?:xml|json|html))",
    re.IGNORECASE,
)


def is_product(path: str) -> bool:
    """Return whether a check writes this path: a build or a report."""
    return _PRODUCTS.fullmatch(path) is not None
