"""Values are read only where they are of the wanted kind."""

from __future__ import annotations

from typing import Any

import pytest

from lmagent.providers.dialects.fields import entries, flag, mapping, named, number, text, window, words


@pytest.mark.parametrize("odd", [True, False, "4096", None, [], {}, -1, float("nan"), float("inf"), 10**20])
def test_what_is_no_count_is_not_there(odd: Any) -> None:
    assert number({"n": odd}, "n") is None
    assert window({"n": odd}, "n") is None


@pytest.mark.parametrize(
    ("said", "meant"), [(0, None), (15, None), (16, 16), (4096.0, 4096), (10**9, 10**9), (10**9 + 1, None)]
)
def test_a_window_is_a_sensible_number_of_tokens(said: float, meant: int | None) -> None:
    assert window({"a": {"n": said}}, "a", "n") == meant


def test_a_path_through_something_else_leads_nowhere() -> None:
    for value in (None, 7, "a", [], {"a": 7}, {"a": [{"b": 1}]}):
        assert number(value, "a", "b") is None
        assert text(value, "a", "b") == ""
        assert flag(value, "a", "b") is None
        assert mapping(value, "a", "b") == {}
        assert entries(value, "a", "b") == []
        assert words(value, "a", "b") == ()


def test_lists_are_read_without_what_does_not_belong_there() -> None:
    assert entries({"a": [1, {"b": 2}, None]}, "a") == [{"b": 2}]
    assert words({"a": [1, "b", None]}, "a") == ("b",)


def test_a_model_is_found_by_its_name_with_or_without_latest() -> None:
    listed = [{"name": "a:latest"}, {"name": "b"}]
    assert named(listed, "a") == listed[0]
    assert named(listed, "b:latest") is None
