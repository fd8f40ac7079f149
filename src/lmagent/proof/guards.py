"""Guards: files that can influence a check's result: tests, configuration, scripts, installed packages.

A check that passes after one of them was changed verifies the work only in part. The rule is coarse on purpose: a file
that is neither code nor a document counts as configuration.
"""

from __future__ import annotations

import re

from lmagent.proof.runners import CODE

_SCRIPTS = (".sh", ".bash", ".ps1", ".bat", ".gradle.kts")
_DOCUMENTS = (".md", ".rst", ".html", ".css", ".scss", ".svg", ".png", ".jpg", ".gif", ".ico", ".woff2", ".csv", ".pdf")

_WORDS = (
    r"tests?|specs?|checks?|verify|lint|ci|e2e|testing|testdata|fixtures?|mocks?|snapshots?|conftest|venv|node_modules"
    r"|site-packages|(?:site|user)customize|setup\.py|noxfile|build\.rs|gulpfile|gruntfile"
)
_TEST = re.compile(rf"(?:^|[^a-zA-Z])(?i:{_WORDS})(?![a-zA-Z])|Tests?(?![a-z])|Spec(?![a-z])|\.config\.|rc\.[cm]?js$")

_RUNNERS = re.compile(
    r"(?:^|/)(?:_?pytest|py|pluggy|iniconfig|unittest|doctest|tox|nox|mypy|ruff|coverage|hypothesis|pyright|jest|mocha"
    r"|vitest|make|cargo|npm|npx|node|go|mvn|gradle|ctest|python3?)(?=[./]|$)"
)
"""A module or program of such a name may run in place of the runner."""


def is_guard(path: str, recipes: str) -> bool:
    """Return whether a changed file can influence a check's result.

    `recipes` is the text of the check and of the files with its commands.
    """
    name = path.rpartition("/")[2]
    plain = path.endswith((*CODE, *_DOCUMENTS)) and not path.endswith(_SCRIPTS)
    hidden = any(part.startswith(".") for part in path.split("/"))
    return not plain or hidden or bool(_TEST.search(path) or _RUNNERS.search(path)) or name in recipes


_PRODUCTS = re.compile(
    r"(?:.*/)?(?:(?:target|build|_build|dist|out|coverage|playwright-report|test-?results|\.\w+)/.*"
    r"|(?:junit|report|test-?results?)[\w.-]*\.(?:xml|json|html))",
    re.IGNORECASE,
)


def is_product(path: str) -> bool:
    """Return whether a check writes this path: a build or a report."""
    return _PRODUCTS.fullmatch(path) is not None
