"""JSON that is nested too deep is refused before it is decoded, however it hides its brackets."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.http.route import MAX_DEPTH, decode

PIECES = st.sampled_from('[]{}"\\a,:\n é')
PADDING = [[] for _ in range(MAX_DEPTH)]
"""Brackets enough that they are counted at all."""


def nested(levels: int, inside: str) -> bytes:
    return ("[" * levels + f"{json.dumps(PADDING)}, {json.dumps(inside)}" + "]" * levels).encode()


@given(inside=st.text(PIECES, max_size=200))
def test_brackets_in_a_string_are_no_levels(inside):
    assert decode(nested(MAX_DEPTH - 2, inside), msgspec.Raw)
    with pytest.raises(Refusal, match="nested deeper than 64"):
        decode(nested(MAX_DEPTH - 1, inside), msgspec.Raw)


@given(body=st.text(PIECES, max_size=400), levels=st.sampled_from([1, MAX_DEPTH, 100_000]))
def test_what_is_no_json_is_an_error_of_the_body_however_deep_it_begins(body, levels):
    with pytest.raises((Refusal, msgspec.DecodeError)):
        decode(b"[" * levels + b'"' + body.encode(), object)


def test_a_body_of_megabytes_is_looked_through_in_a_few_sweeps():
    text = "\\" * 4_000_000 + '"' * 4_000_000
    assert decode(nested(MAX_DEPTH - 2, text), msgspec.Raw)
    with pytest.raises(Refusal):
        decode(nested(MAX_DEPTH - 1, text), msgspec.Raw)
