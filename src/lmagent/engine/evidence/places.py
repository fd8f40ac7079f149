"""Places: what a path is to a check: a leaving of runs, a part of the check itself, or what is checked."""

from __future__ import annotations

import re
from collections.abc import Sequence

NAMED = 2
"""Paths that a reason names."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LEAVINGS = frozenset(
    (
        *("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".nyc_output", "htmlcov"),
        *(".git", ".lmagent", ".ipynb_checkpoints", ".benchmarks", ".tsbuildinfo"),
    )
)
_LEFT = re.compile(r".*\.(?:pyc|pyo|log|tsbuildinfo)|\.coverage(?:\..+)?|coverage\.(?:xml|json|lcov)|lcov\.info")
_PRODUCTS = frozenset(
    (
        *("target", "build", "dist", "out", "coverage", ".tox", ".nox", ".gradle", ".turbo", ".next", ".cache"),
        *("test-results", "playwright-report", "Testing", "TestResults", "_build", ".eggs"),
    )
)
_PRODUCED = r"(?:junit|report|test-?results?)[\w.-]*\.(?:xml|json|html)|.*\.egg-info"

_GUARD_FOLDERS = frozenset(
    (
        *("tests", "test", "testing", "spec", "specs", "__tests__", "__mocks__", "__snapshots__", "snapshots"),
        *("testdata", "fixtures", "e2e", "ci", ".github", ".gitlab", ".circleci", ".husky", ".config"),
        *("node_modules", ".venv", "venv", ".tox", ".nox", "site-packages", ".cargo", ".mvn", "gradle", "bin"),
    )
)
_GUARD_NAMES = _names(
    """
    conftest.py setup.cfg setup.py pyproject.toml noxfile.py tasks.py .coveragerc .pylintrc .flake8 pyrightconfig.json
    makefile gnumakefile justfile taskfile.yml taskfile.yaml package.json package-lock.json yarn.lock pnpm-lock.yaml
    pnpm-workspace.yaml .npmrc .yarnrc .yarnrc.yml bunfig.toml deno.json deno.jsonc lerna.json nx.json turbo.json
    cargo.toml build.rs go.mod go.work pom.xml gradlew gradlew.bat mvnw mvnw.cmd gradle.properties cmakelists.txt
    cmakepresets.json rakefile gemfile gemfile.lock .rspec composer.json mix.exs jenkinsfile azure-pipelines.yml
    .gitlab-ci.yml .travis.yml .pre-commit-config.yaml sitecustomize.py usercustomize.py .python-version .tool-versions
    .node-version .nvmrc .env .envrc rust-toolchain rust-toolchain.toml dockerfile .bazelrc build.bazel workspace.bazel
    package.swift .pytest.toml pipfile uv.toml
    """
)
_GUARD_FORMS = (
    r".*\.(?:ini|pth|mk|cmake|snap|bats|gradle(?:\.kts)?|csproj|sln|code-workspace)"
    r"|(?:\.?(?:jest|vitest|vite|babel|karma|mocha|mocharc|ava|playwright|cypress|webpack|rollup|eslint|eslintrc|ruff|mypy"
    r"|tsconfig|jsconfig|phpunit|nyc|nycrc|c8rc|swcrc|babelrc)\b.*)"
    r"|(?:[A-Z]\w*)?Tests?\.\w+|requirements.*\.txt|(?:[Mm]ake|GNUmake)file\..*"
)
_GUARD_WORDS = r"(?:^|[_.\-])(?:tests?|specs?|checks?|verify|lint|ci)(?=$|[_.\-])"
_SHADOWS = _names(
    "pytest _pytest py pluggy iniconfig unittest doctest tox nox mypy ruff coverage hypothesis pyright jest mocha "
    "vitest make cargo npm node go mvn gradle ctest python python3"
)
"""Modules and programs that run checks: a file of such a name may be taken for one."""

_RUNNER = (
    r"(?:bin|Scripts|site-packages|lib/python[\d.]{0,9})/[\w./-]{0,200}?\b(?:_?pytest|pluggy|unittest|tox|nox|mypy|ruff|jest|vitest"
    r"|mocha|make|cargo|rustc|npm|npx|node|go|mvn|gradle|ctest|python[\d.]*|sitecustomize|usercustomize)\b"
)
_HANDS = (
    r"(?:\b(?:cp|mv|ln|install|tee|dd|rsync|chmod|sed\s+-i|open|move|(?:copy|symlink|rename|replace)\w*)\b|>)"
    rf"[^|;&\n]{{0,300}}?(?P<target>{_RUNNER})|(?P<path>{_RUNNER})[^|;&\n]{{0,40}}\.(?:write|symlink|rename|replace|chmod)"
    r"|(?P<other>UNCHECKED_HASH|\.pth\b|(?:user|site)customize|--user-site|get(?:user)?sitepackages"
    r"|npm c(?:onfig)? set)"
)

_DETACHING = ("setsid", "nohup", "disown", "start_new_session", "Thread(", "Timer(")
_DETACHES = r"\b(?:setsid|nohup|disown)\b|\bstart_new_session\s*=|\b(?:Thread|Timer)\("

_PLACES = (
    "bin/",
    "Scripts/",
    "site-packages/",
    "sitepackages",
    "user-site",
    "lib/python",
    "UNCHECKED_HASH",
    ".pth",
    "customize",
    "npm c",
)
"""One of these stands wherever hands are laid on a runner."""


def is_leaving(path: str) -> bool:
    """Whether runs leave it behind and nobody works on it."""
    folders, name = _split(path)
    return not _LEAVINGS.isdisjoint((*folders, name)) or _LEFT.fullmatch(name) is not None


def is_product(path: str) -> bool:
    """Whether a check may well have made it itself: a build, a report."""
    folders, name = _split(path)
    return not _PRODUCTS.isdisjoint((*folders, name)) or re.fullmatch(_PRODUCED, name) is not None


def is_guard(path: str) -> bool:
    """Whether it may decide what a check finds: a test, a configuration, a runner."""
    folders, name = _split(path)
    if any(folder in _GUARD_FOLDERS or folder in _SHADOWS for folder in folders) or name in _GUARD_FOLDERS:
        return True
    stem = name.split(".", 1)[0]
    forms = re.fullmatch(_GUARD_FORMS, name) is not None or re.search(_GUARD_WORDS, name.lower()) is not None
    return forms or name.lower() in _GUARD_NAMES or stem in _SHADOWS


def is_within(path: str, folder: str) -> bool:
    """Whether it lies in a folder; both are relative to the workspace."""
    return folder in (".", "") or path == folder or path.startswith(f"{folder}/")


def stays_behind(text: str) -> bool:
    """Whether what a program leaves running by these words may change files between two calls, which nobody sees."""
    return any(word in text for word in _DETACHING) and re.search(_DETACHES, text) is not None


def _split(path: str) -> tuple[list[str], str]:
    *folders, name = path.split("/")
    return folders, name


def named(paths: Sequence[str]) -> str:
    """The first of these paths, and how many more there are."""
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return ", ".join(paths[:NAMED]) + more


def lays_hands_on(text: str) -> str:
    """The runner that a program may have put something else in the place of; empty for none.

    What lies in the workspace is seen by the change itself. A folder of programs outside of it is not.
    """
    if not any(place in text for place in _PLACES):
        return ""  # most commands name no such place, and cost no pattern
    found = re.search(_HANDS, text.replace("\\n", "\n"))
    return next(filter(None, found.groups())) if found else ""
