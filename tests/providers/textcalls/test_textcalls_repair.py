import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmagent.core.loosejson import Broken, Cut, completed
from lmagent.core.repair import fit, fit_text, fits

SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "ratio": {"type": ["number", "null"]},
        "on": {"type": "boolean"},
        "names": {"type": "array", "items": {"type": "string"}},
        "numbers": {"type": "array", "items": {"type": "integer"}},
        "options": {"type": "object", "properties": {"deep": {"type": "integer"}}},
        "unit": {"enum": ["celsius", "fahrenheit"]},
        "either": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]},
        "free": {},
    },
}


@pytest.mark.parametrize(
    ("name", "given_", "kept"),
    [
        ("count", "3", 3),
        ("count", " 3 ", 3),
        ("count", 3.0, 3),
        ("count", "3.0", 3),
        ("count", "three", "three"),
        ("count", 3.5, 3.5),
        ("count", True, True),
        ("ratio", "0.5", 0.5),
        ("ratio", "null", None),
        ("on", "true", True),
        ("on", "False", False),
        ("on", "maybe", "maybe"),
        ("on", 1, 1),
        ("text", 5, "5"),
        ("text", "5", "5"),
        ("text", '{"a": 1}', '{"a": 1}'),
        ("names", "a", ["a"]),
        ("names", '["a", "b"]', ["a", "b"]),
        ("names", [1, 2], ["1", "2"]),
        ("numbers", "7", [7]),
        ("numbers", ["1", "2"], [1, 2]),
        ("numbers", ["1", "x"], ["1", "x"]),
        ("options", '{"deep": "1"}', {"deep": 1}),
        ("options", {"deep": "1"}, {"deep": 1}),
        ("options", "x", "x"),
        ("unit", "Celsius", "celsius"),
        ("unit", "kelvin", "kelvin"),
        ("either", "4", 4),
        ("either", "[4]", [4]),
        ("free", "4", "4"),
        ("unknown", "4", "4"),
    ],
)
def test_a_value_is_repaired_only_if_it_then_fits(name, given_, kept):
    (found,) = fit({name: given_}, SCHEMA).values()
    assert (found, type(found)) == (kept, type(kept))


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("5", {"type": "string"}, "5"),
        ("null", {"type": "string"}, "null"),
        ("null", {"type": ["string", "null"]}, None),
        ("5", {"type": "integer"}, 5),
        ("[1, 2]", {"type": "array"}, [1, 2]),
        ("{'a': True}", {"type": "object"}, {"a": True}),
        ("5", {}, "5"),
        ("x", {"type": "integer"}, "x"),
    ],
)
def test_bare_text_takes_the_type_of_its_schema(text, schema, value):
    assert fit_text(text, schema) == value


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(sorted(SCHEMA["properties"])), VALUES))
def test_what_fits_is_never_changed_and_what_is_changed_fits(arguments):
    found = fit(arguments, SCHEMA)
    assert found.keys() == arguments.keys()
    for name, value in arguments.items():
        if fits(value, SCHEMA["properties"][name]):
            assert found[name] == value
        elif found[name] != value:
            assert fits(found[name], SCHEMA["properties"][name])


@pytest.mark.parametrize("text", ['{"a": "b', '{"a": 1', '["a"', '{"a"', "{", '{"a": tru'])
def test_what_ends_in_the_middle_is_cut_not_completed(text):
    with pytest.raises(Cut):
        completed(text, 0)


@pytest.mark.parametrize("text", ['{"a": }', '{"a" 1}', "{1: 2}", '{"a": b c}', '{"a": "x" y}'])
def test_what_is_not_plain_is_not_guessed(text):
    with pytest.raises((Broken, Cut)):
        completed(text, 0)
