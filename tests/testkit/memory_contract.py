"""What a search promises of an index; subclasses say of which one."""

from __future__ import annotations

import pytest

from lmagent.core.memory import MemoryIndex, MemoryItem

TALK = (
    MemoryItem("1", "I adopted a puppy last week", 100.0, "monday", "Ada"),
    MemoryItem("2", "Wonderful, I never had an animal", 110.0, "monday", "Ben"),
    MemoryItem("3", "The train to Lisbon leaves at nine", 200.0, "friday", "Ada"),
    MemoryItem("4", "Pack the umbrella for Lisbon", 210.0, "friday", "Ben"),
)


class MemoryContract:
    """No two items here are connected by their meaning alone."""

    def make(self) -> MemoryIndex:
        raise AssertionError("override make")

    def filled(self) -> MemoryIndex:
        index = self.make()
        index.index(TALK)
        return index

    def ids(self, index: MemoryIndex, query: str, k: int = 10, **times: float) -> list[str]:
        return [hit.id for hit in index.search(query, k, **times)]

    def test_an_item_is_found_at_once_with_all_that_is_known_of_it(self) -> None:
        index = self.filled()
        hit = index.search("puppy", 1)[0]
        assert (hit.id, hit.text, hit.ts, hit.session, hit.speaker) == (
            *("1", "I adopted a puppy last week"),
            *(100.0, "monday", "Ada"),
        )
        index.close()

    def test_the_best_hit_is_first_and_scores_fall(self) -> None:
        hits = self.filled().search("umbrella for Lisbon", 10)
        assert hits[0].id == "4"
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)

    def test_no_more_than_k_hits_are_returned(self) -> None:
        index = self.filled()
        assert len(index.search("Lisbon puppy", 2)) == 2
        assert index.search("Lisbon", 0) == []

    def test_an_item_with_the_same_id_takes_the_place_of_the_earlier_one(self) -> None:
        index = self.filled()
        index.index([MemoryItem("1", "It was a kitten", 100.0, "monday", "Ada")])
        assert index.count() == 4
        assert self.ids(index, "kitten")[0] == "1"
        assert "adopted" not in index.search("puppy kitten", 1)[0].text

    def test_a_removed_item_is_not_found(self) -> None:
        index = self.filled()
        assert index.remove(["1", "unknown"]) == 1
        assert "1" not in self.ids(index, "puppy")
        assert index.count() == 3

    def test_a_purged_item_is_not_found(self) -> None:
        index = self.filled()
        assert index.purge(["1", "unknown"]) == 1
        assert "1" not in self.ids(index, "puppy")

    def test_a_search_can_be_limited_to_a_time(self) -> None:
        index = self.filled()
        assert set(self.ids(index, "Lisbon puppy animal", since=150.0)) == {"3", "4"}
        assert set(self.ids(index, "Lisbon puppy animal", until=150.0)) == {"1", "2"}
        assert set(self.ids(index, "Lisbon", since=200.0, until=200.0)) == {"3"}

    def test_of_equal_hits_the_newest_comes_first_or_the_nearest_to_the_time_of_the_question(self) -> None:
        index = self.make()
        index.index([MemoryItem(f"n{number}", "buy milk", float(number)) for number in range(1, 4)])
        assert self.ids(index, "milk") == ["n3", "n2", "n1"]
        assert self.ids(index, "milk", now=1.0) == ["n1", "n2", "n3"]

    def test_of_equal_hits_of_the_same_time_the_smaller_id_comes_first(self) -> None:
        index = self.make()
        index.index([MemoryItem(name, "buy milk") for name in "cab"])
        assert self.ids(index, "milk") == ["a", "b", "c"]

    def test_an_item_is_returned_amid_its_neighbours(self) -> None:
        index = self.filled()
        around = index.around(["2", "unknown"])
        assert [item.id for item in around["2"]] == ["1", "2"]
        assert "unknown" not in around

    def test_an_item_without_a_session_has_no_neighbours(self) -> None:
        index = self.make()
        index.index([MemoryItem("a", "one"), MemoryItem("b", "two")])
        assert [item.id for item in index.around(["a"])["a"]] == ["a"]

    def test_an_empty_index_finds_nothing(self) -> None:
        index = self.make()
        assert index.count() == 0
        assert index.search("anything", 5) == []

    @pytest.mark.parametrize(
        "query", ["", "?", '"', "*", "NEAR(", "a AND OR NOT", "text:puppy", "-puppy", "(", "\0", "\ud800"]
    )
    def test_a_query_is_never_read_as_syntax(self, query: str) -> None:
        self.filled().search(query, 5)
