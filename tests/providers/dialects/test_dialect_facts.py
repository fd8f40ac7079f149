"""Each fixture holds what a server of one kind answers and the facts that are in it."""

from __future__ import annotations

from typing import Any

import pytest
from dialect_kit import answering, ask, fixture, names

LOADING = ("/chat", "/completions", "/generate", "/embed", "/load", "/pull", "/create")


def differing(wanted: dict[str, Any], found: Any) -> dict[str, Any]:
    """The wanted facts that were not found, with what was."""
    wrong: dict[str, Any] = {}
    for name, value in wanted.items():
        known = getattr(found, name)
        if isinstance(value, dict):
            inner = differing(value, known) if known is not None else value
            wrong |= {f"{name}.{key}": what for key, what in inner.items()}
        elif known != value:
            wrong[name] = known
    return wrong


@pytest.mark.parametrize("name", names())
def test_what_a_server_says_is_read_from_its_answers(name: str) -> None:
    recorded = fixture(name)
    with answering(recorded["routes"]) as server:
        facts = ask(server.url + recorded["base"], recorded["model"])
    assert differing(recorded["facts"], facts) == {}
    assert facts.reached


@pytest.mark.parametrize("name", names())
def test_the_questions_load_nothing_and_change_nothing(name: str) -> None:
    recorded = fixture(name)
    with answering(recorded["routes"]) as server:
        ask(server.url + recorded["base"], recorded["model"])
        asked = [(received.method, received.path, received.query) for received in server.requests]
    assert len(asked) == len(set(asked)), "no question is asked twice"
    assert all(method == "GET" or path == "/api/show" for method, path, _ in asked)
    assert not any(word in path for _, path, _ in asked for word in LOADING)
    assert all("autoload=false" in query for _, _, query in asked if "model=" in query)


@pytest.mark.parametrize("name", names())
def test_a_model_that_the_server_does_not_list_brings_no_other_models_window(name: str) -> None:
    recorded = fixture(name)
    with answering(recorded["routes"]) as server:
        facts = ask(server.url + recorded["base"], "never-heard-of")
    one_model_whatever_the_name = facts.dialect == "llamacpp" or facts.label in ("KoboldCpp", "TabbyAPI")
    if facts.model is not None and facts.model.proof == "loaded":
        assert one_model_whatever_the_name
    assert facts.of("never-heard-of-either") is None


def test_facts_about_any_listed_model_can_be_looked_up() -> None:
    with answering(fixture("openrouter/variant")["routes"]) as server:
        facts = ask(f"{server.url}/api/v1")
    assert facts.model is None
    known = facts.of("google/gemma-3-27b-it")
    assert known is not None
    assert (known.window, known.served) == (96_000, None)
