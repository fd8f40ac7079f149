from __future__ import annotations

import math
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmagent.config.toml import dump_flat, line_of, update_flat

TEXT = st.text(st.characters(codec="utf-8"))
SCALAR = TEXT | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
VALUES: st.SearchStrategy[dict[str, Any]] = st.dictionaries(TEXT, SCALAR | st.lists(TEXT))


@given(VALUES)
def test_what_is_written_is_read_back(values: dict[str, Any]) -> None:
    assert tomllib.loads(dump_flat(values)) == values


@given(VALUES, VALUES)
def test_an_update_sets_the_given_keys_and_keeps_the_others(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert tomllib.loads(update_flat(dump_flat(old), new)) == {**old, **new}


def test_nan_is_written_as_toml_has_it() -> None:
    assert math.isnan(tomllib.loads(dump_flat({"a": math.nan}))["a"])


def test_an_update_keeps_comments_order_and_tables() -> None:
    text = (
        "# mine\n"
        "llm_model = 'old' # the model\n"
        'permission_deny = [\n  "a", # one\n  "b",\n]\n'
        "max_errors = 5 # keep\n"
        "\n"
        "[other]\n"
        'llm_model = "untouched"\n'
    )
    assert update_flat(text, {"permission_deny": ["c"], "llm_model": "new", "prewarm": True}) == (
        "# mine\n"
        'llm_model = "new"\n'
        'permission_deny = ["c"]\n'
        "max_errors = 5 # keep\n"
        "\n"
        "prewarm = true\n"
        "[other]\n"
        'llm_model = "untouched"\n'
    )


def test_a_file_without_a_last_line_end_is_continued_on_a_new_line() -> None:
    assert update_flat("a = 1", {"b": 2}) == "a = 1\nb = 2\n"


@pytest.mark.parametrize("text", ["a = ", 'b = """\na = 1\n"""\n'])
def test_a_file_that_cannot_be_updated_safely_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"safely|Cannot|Invalid"):
        update_flat(text, {"a": 2})


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a = 1\nkey = 2", 2),
        ('"key" = 2', 1),
        ("\n\n[key]\nx = 1", 3),
        ("[[ key ]]", 1),
        ("key.x = 1", 1),
        ("a = 1", None),
    ],
)
def test_a_key_is_found_by_its_line(text: str, line: int | None) -> None:
    assert line_of(text, "key") == line
