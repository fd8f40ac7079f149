from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lmagent.config.layers import DEFAULT, Layer, LayerEntry, LayerName, Origin, merge
from lmagent.config.settings import BY_NAME, DEFAULTS, SETTINGS

NAMES: tuple[LayerName, ...] = ("user config", "user .env", "workspace config", "workspace .env", "environment", "flag")
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "llm_temperature": st.none() | st.floats(0, 2),
    "llm_model": st.text(max_size=5),
    "permission_mode": st.sampled_from(("auto", "normal", "manual")),
    "max_iterations": st.integers(1, 1000),
    "max_turn_tokens": st.none() | st.integers(1, 1000),
}
URLS = st.sampled_from(("http://localhost:1", "http://127.0.0.1:2", "https://a.example/v1", "http://127.evil.example/"))
KEYS = st.sampled_from(("lm-studio", "sk-one", "sk-two"))
RULES = st.lists(st.sampled_from("abcdef"), max_size=4, unique=True).map(tuple)
EVERYTHING = SCALARS | {
    "llm_url": URLS,
    "llm_base_url": URLS,
    "llm_api_key": KEYS,
    "openrouter_api_key": KEYS,
    "permission_allow": RULES,
    "permission_deny": RULES,
}


def layers_of(fields: dict[str, st.SearchStrategy[Any]], folders: bool) -> st.SearchStrategy[list[Layer]]:
    def one(name: LayerName) -> st.SearchStrategy[Layer]:
        folder = Path("/cloned") if folders and name.startswith("workspace") else None
        origin = Origin(name, "/file" if folder else "", "x")
        return st.fixed_dictionaries({}, optional=fields).map(
            lambda values: Layer(
                name,
                folder=folder,
                entries={key: LayerEntry(value, Origin(name, origin.source, key)) for key, value in values.items()},
            )
        )

    return st.tuples(*[one(name) for name in NAMES]).map(list)


@given(layers_of(SCALARS, folders=False))
def test_a_later_layer_always_wins_and_the_origin_says_so(layers: list[Layer]) -> None:
    merged = merge(layers)
    for field in SCALARS:
        last = next((layer.entries[field] for layer in reversed(layers) if field in layer.entries), None)
        assert merged.values[field] == (last.value if last else DEFAULTS[field])
        assert merged.origins[field] == (last.origin if last else DEFAULT)
    assert set(merged.values) == set(merged.origins) == {field.name for field in SETTINGS}


@given(layers_of(EVERYTHING, folders=True))
def test_an_untrusted_folder_never_loosens_what_holds_without_it(layers: list[Layer]) -> None:
    """Layers above the folder's are the user's word again, so only those below are compared."""
    below = [layer for layer in layers if layer.name.startswith(("user", "workspace"))]
    own = merge([layer for layer in below if layer.folder is None]).values
    mixed = merge(below).values
    modes = BY_NAME["permission_mode"].choices
    assert modes.index(mixed["permission_mode"]) >= modes.index(own["permission_mode"])
    assert mixed["max_iterations"] <= own["max_iterations"]
    if own["max_turn_tokens"] is not None:
        assert mixed["max_turn_tokens"] is not None
        assert mixed["max_turn_tokens"] <= own["max_turn_tokens"]
    assert mixed["permission_allow"] == own["permission_allow"]
    assert set(mixed["permission_deny"]) >= set(own["permission_deny"])


@given(layers_of(EVERYTHING, folders=True))
def test_an_untrusted_folder_never_gets_a_key_or_a_word_sent_elsewhere(layers: list[Layer]) -> None:
    merged = merge(layers)
    by_folder = {name for name, origin in merged.origins.items() if origin.layer.startswith("workspace")}
    assert "openrouter_api_key" not in by_folder
    for name in ("llm_url", "llm_base_url"):
        if name in by_folder:
            assert merged.values[name] in ("http://localhost:1", "http://127.0.0.1:2")
            assert merged.values["llm_api_key"] == "lm-studio" or "llm_api_key" in by_folder


@given(layers_of(EVERYTHING, folders=True))
def test_every_value_of_a_folder_either_counts_or_is_reported(layers: list[Layer]) -> None:
    merged = merge(layers)
    held = {(item.field, item.entry.origin) for item in merged.held}
    assert all(item.reason for item in merged.held)
    for field, origin in held:
        assert merged.origins[field] != origin


@given(layers_of(EVERYTHING, folders=True))
def test_each_rule_has_exactly_one_origin(layers: list[Layer]) -> None:
    merged = merge(layers)
    for field in ("permission_allow", "permission_ask", "permission_deny"):
        rules = merged.values[field]
        assert len(rules) == len(set(rules)) == len(merged.item_origins[field])
        for rule, origin in zip(rules, merged.item_origins[field], strict=True):
            (source,) = [layer for layer in layers if layer.name == origin.layer]
            assert rule in source.entries[field].value
