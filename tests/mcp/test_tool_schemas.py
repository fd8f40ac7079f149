"""Schemas of servers' tools in a form for small models."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lmagent.core.tool import signature
from lmagent.mcp.schemas import ENUM, fault, simplified

plain = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
keys = st.sampled_from(
    [
        "type",
        "properties",
        "items",
        "anyOf",
        "oneOf",
        "allOf",
        "enum",
        "required",
        "$ref",
        "$defs",
        "description",
        "const",
        "title",
        "default",
        "a",
        "b",
    ]
)
kinds = st.sampled_from(["object", "array", "string", "null", ["string", "null"], "#/properties/a", "#/$defs/a", "#"])
anything = st.recursive(
    plain | kinds, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5)
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
@given(st.dictionaries(keys, anything, max_size=6))
def test_every_schema_is_refused_or_becomes_a_plain_one(schema: dict[str, Any]) -> None:
    if fault(schema):
        return
    made = simplified(schema)
    text = msgspec.json.encode(made).decode()
    assert made["type"] == "object"
    assert all(isinstance(sub, dict) for sub in made["properties"].values())
    assert set(made.get("required", ())) <= set(made["properties"])
    assert len(text) < 200_000
    assert signature(made) is not None


def test_references_titles_defaults_and_null_go() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "EchoArguments",
        "type": "object",
        "$defs": {"Point": {"title": "Point", "type": "object", "properties": {"x": {"type": "number", "default": 1}}}},
        "properties": {
            "at": {"$ref": "#/$defs/Point", "description": "where"},
            "name": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "Name"},
            "size": {"type": ["integer", "null"]},
        },
        "required": ["at", "gone"],
    }
    assert simplified(schema) == {
        "type": "object",
        "properties": {
            "at": {"type": "object", "properties": {"x": {"type": "number"}}, "description": "where"},
            "name": {"type": "string"},
            "size": {"type": "integer"},
        },
        "required": ["at"],
    }


def test_a_schema_that_refers_to_itself_ends() -> None:
    tree: dict[str, Any] = {"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}
    assert len(msgspec.json.encode(simplified(tree))) < 20_000


def test_a_long_enum_becomes_words_and_rules_nothing_out() -> None:
    sub = simplified(
        {"type": "object", "properties": {"city": {"type": "string", "enum": [f"c{i}" for i in range(500)]}}}
    )
    city = sub["properties"]["city"]
    assert "enum" not in city
    assert city["description"].startswith("One of 500: c0, ")
    assert city["description"].count(",") <= ENUM


@pytest.mark.parametrize(
    "schema",
    ["text", {"type": "array"}, {"type": "object", "properties": 1}, {"type": "object", "properties": {"a": "string"}}],
)
def test_a_schema_that_is_none_has_a_reason(schema: Any) -> None:
    assert fault(schema)


def test_alternatives_without_end_are_cut() -> None:
    many = [{"const": each} for each in range(50_000)]
    made = simplified({"properties": {"a": {"anyOf": many}, "b": {"allOf": many}}})
    assert len(made["properties"]["a"]["anyOf"]) == ENUM
