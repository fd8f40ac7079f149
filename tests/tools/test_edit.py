"""The corpus: every case says what the contract demands, and says it as data."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lmagent.core.errors import ToolError
from lmagent.tools.edit.replace import EditRefused, replace_text

CORPUS = Path(__file__).parent / "edit_corpus"
CASES: list[dict[str, Any]] = [
    {"file": path.stem, **case}
    for path in sorted(CORPUS.glob("*.json"))
    for case in json.loads(path.read_text("utf-8"))
]


@pytest.mark.parametrize("case", CASES, ids=[f"{case['file']}: {case['name']}" for case in CASES])
def test_an_edit_does_what_the_contract_says(case):
    arguments = (case["source"], case["search"], case["replace"], case.get("replace_all", False))
    if case["expect"] != "refused":
        assert replace_text(*arguments) == case["expect"]
        return
    with pytest.raises(EditRefused) as refusal:
        replace_text(*arguments)
    assert refusal.value.reason == case["reason"]


def test_the_corpus_covers_every_clause_and_holds_enough_refusals():
    clauses = Counter(case["clause"] for case in CASES)
    assert len(CASES) >= 180
    assert sum(case["expect"] == "refused" for case in CASES) >= 60
    assert all(clauses[clause] >= 10 for clause in (1, 2, 3, 4, 5, 6))


def refusal(source: str, search: str, replace: str = "new", replace_all: bool = False) -> EditRefused:
    with pytest.raises(EditRefused) as caught:
        replace_text(source, search, replace, replace_all)
    return caught.value


def test_a_refusal_is_a_tool_error_with_facts_for_the_log():
    error = refusal("a\nb\na\n", "a")
    assert isinstance(error, ToolError)
    assert error.data == {"code": "ambiguous", "lines": [1, 3]}
    assert error.lines == (1, 3)


def test_an_ambiguous_search_names_all_its_lines_and_shows_them():
    error = refusal("".join(f"x = {n % 3}\n" for n in range(9)), "x = 1")
    assert error.lines == (2, 5, 8)
    assert "3 times, at lines 2, 5, 8" in error.message
    assert "     5\tx = 1" in error.message
    assert "replace_all" in error.message


def test_a_search_with_very_many_places_lists_the_first_ones():
    error = refusal("x\n" * 500, "x")
    assert error.lines == tuple(range(1, 21))
    assert "and more" in error.message
    assert len(error.message) < 600


def test_a_missing_search_shows_the_closest_region_numbered_and_what_differs():
    source = "".join(f"line {n}\n" for n in range(1, 30)) + "def f():\n    a = 10\n    return a\n"
    error = refusal(source, "def f():\n    a = 1\n    return a\n")
    assert error.reason == "missing"
    assert error.lines == (30, 32)
    assert "lines 30-32" in error.message
    assert "    31\t    a = 10" in error.message
    assert "    28\tline 28" in error.message
    assert "line 31: the file has `a = 10`; you gave `a = 1`" in error.message


def test_a_line_with_another_indentation_too_is_shown_by_what_made_the_edit_fail():
    error = refusal("class A:\n    def f(self):\n        return 10\n", "def f(self):\n  return 1")
    assert "the file has `return 10`; you gave `return 1`" in error.message


def test_the_closest_region_is_found_by_words_when_no_line_is_equal():
    error = refusal("alpha\nbeta = gamma(delta)\nend\n", "beta = gamma(epsilon)")
    assert error.lines == (2, 2)
    assert "beta = gamma(delta)" in error.message


def test_a_line_that_the_search_lacks_or_has_too_many_is_named():
    error = refusal("a = 1\nb = 2\nc = 3\n", "a = 1\nc = 3\n")
    assert "line 2: the file has `b = 2`" in error.message
    error = refusal("a = 1\nc = 3\n", "a = 1\nb = 2\nc = 3\n")
    assert "not in the file: you gave `b = 2`" in error.message


def test_other_indentation_is_called_what_it_is():
    assert "white space" in refusal("  if a:\n      b()\n", "if a:\n  b()\n").message


def test_an_edit_that_was_made_already_is_recognised():
    error = refusal("def f():\n    return 2\n", "    return 1\n", "    return 2\n")
    assert "already in the file, at line 2" in error.message


def test_nothing_similar_and_an_empty_file_are_said_so():
    assert "nothing in the file (2 lines) is like it" in refusal("aaa\nbbb\n", "zzz").message
    assert "the file is empty" in refusal("", "zzz").message


def test_messages_stay_short_for_long_lines_and_long_searches():
    error = refusal("x" * 100_000 + " y\n" + "word here\n" * 500, "x y z\n" + "word there\n" * 400)
    assert len(error.message) < 8_000


def test_the_line_numbers_count_carriage_return_line_feeds_and_old_mac_ends():
    assert refusal("a\r\nb\r\na\r\n", "a").lines == (1, 3)
    assert refusal("a\rb\ra\r", "a").lines == (1, 3)
