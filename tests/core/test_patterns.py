"""Patterns that are compiled when they are first used."""

import re

import pytest

from lmagent.core.patterns import late


def test_a_late_pattern_matches_as_a_compiled_one():
    text = "one Two three"
    assert late("two", re.IGNORECASE).search(text)[0] == "Two"
    assert late(r"\w+").findall(text) == ["one", "Two", "three"]
    assert late(r"\s").split(text) == ["one", "Two", "three"]


def test_a_pattern_that_is_no_expression_fails_at_its_first_use():
    broken = late("(")
    with pytest.raises(re.error):
        broken.match("text")
