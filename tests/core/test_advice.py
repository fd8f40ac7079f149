"""What a person can do about a failure is recorded so that every surface can show it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmagent.core.errors import LmagentError
from lmagent.core.events import Notice, TurnFinished
from lmagent.core.lines import advice_line

SOURCE = Path(__file__).parents[2] / "src/lmagent"
SHARED = ("agents", "core", "engine", "planning", "providers", "store", "undo")
"""Packages whose failures reach every surface."""

TYPED = re.compile(r"lmagent [a-z-]|--[a-z]|\b[A-Z]{2,}_[A-Z*]")
"""Commands, options and variables: only a terminal has a place to type them."""


def fixes(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        named = [node.arg] if isinstance(node, ast.keyword) else []
        if isinstance(node, ast.Assign):
            named = [ast.unparse(target) for target in node.targets]
        if "fix" in named and isinstance(node, ast.keyword | ast.Assign):
            yield "".join(str(part.value) for part in ast.walk(node.value) if isinstance(part, ast.Constant))


@pytest.mark.parametrize("package", SHARED)
def test_the_advice_that_every_surface_shows_names_nothing_to_type_in_a_terminal(package: str) -> None:
    found = [
        f"{path.relative_to(SOURCE)}: {fix}"
        for path in sorted((SOURCE / package).rglob("*.py"))
        if path.name != "cassette.py"  # recorded and played by options of the terminal alone
        for fix in fixes(path)
        if TYPED.search(fix)
    ]
    assert found == []


def test_a_terminal_shows_what_to_type_in_place_of_the_general_advice() -> None:
    assert str(LmagentError("It broke.", fix="mend it", terminal="lmagent mend")) == "It broke.\n  → lmagent mend"
    assert str(LmagentError("It broke.", fix="mend it")) == "It broke.\n  → mend it"
    end = TurnFinished(outcome="error", fix="mend it", terminal="lmagent mend")
    assert advice_line(end) == "\n  → lmagent mend"
    assert advice_line(Notice(level="info", code="x", text="It broke.", fix="mend it")) == "\n  → mend it"
    assert advice_line(Notice(level="info", code="x", text="It broke.")) == ""
