"""Hits as a model reads them."""

from __future__ import annotations

from pathlib import Path

from testkit.search_kit import opened, said

from lmagent.core.memory import Hit, MemoryItem
from lmagent.memory import grouped


def test_hits_are_shown_by_session_in_the_order_of_time_amid_their_neighbours(tmp_path: Path) -> None:
    index, _ = opened(tmp_path)
    index.index(said("Ann: Hello", "Bob: I sold the boat", "Ann: Oh no", session="a", begin=1))
    index.index(said("Bob: A new boat would be nice", session="b", begin=2))
    found = {hit.id: hit for hit in index.search("who sold the boat", 9)}
    hits = [found["a2"], found["b1"]]
    assert grouped(hits, index.around([hit.id for hit in hits]), 200) == (
        "session a:\n"
        "  1970-01-01 00:16 Ann: Hello\n"
        "  1970-01-01 00:16 [a2] Bob: I sold the boat\n"
        "  1970-01-01 00:16 Ann: Oh no\n"
        "session b:\n"
        "  1970-01-01 00:33 [b1] Bob: A new boat would be nice"
    )


def test_the_hits_get_room_before_their_neighbours() -> None:
    items = [MemoryItem(str(n), f"text {n} " * 5, 0.0, "s") for n in range(3)]
    hits = [Hit(*(items[n].id, items[n].text, 0.0, "s", ""), 1.0) for n in (1, 2)]
    text = grouped(hits, {"1": items, "2": items[1:]}, 30)
    assert "[1]" in text
    assert "[2]" in text
    assert "text 0" not in text


def test_items_of_one_time_keep_the_order_of_their_session() -> None:
    items = [MemoryItem(name, f"line {name}", 0.0, "note") for name in "zyxw"]
    hits = [Hit("x", "line x", 0.0, "note", "", 2.0), Hit("z", "line z", 0.0, "note", "", 1.0)]
    text = grouped(hits, {"z": items[:2], "x": items[1:]}, 100)
    assert [line[-1] for line in text.splitlines()[1:]] == ["z", "y", "x", "w"]


def test_the_text_keeps_to_the_budget_and_shows_the_beginning_of_a_best_hit_that_is_too_long() -> None:
    hits = [Hit(str(n), "wörd " * 400, 1e9, "s", "Ann", 1.0) for n in range(3)]
    for budget in (30, 100, 600, 1200):
        text = grouped(hits, {}, budget)
        assert len(text.encode()) <= budget * 4
        assert "wörd" in text
    assert grouped([], {}, 100) == ""
