"""The suite of the MemoryIndex port."""

from __future__ import annotations

from lmagent.core.ports import MemoryIndex


class MemoryIndexConformance:
    """Subclass it and override `make`."""

    def make(self) -> MemoryIndex:
        """Return an empty index."""
        raise AssertionError("override make")

    def _filled(self) -> MemoryIndex:
        index = self.make()
        index.put("tea", "The user likes green tea in the morning", "fact")
        index.put("build", "The build needs Python 3.11 and make", "lesson")
        index.put("port", "The server listens on port 7860", "fact")
        return index

    def test_the_best_match_comes_first(self) -> None:
        """With its text as it was put in, and the higher score."""
        hits = self._filled().search("green tea")
        assert (hits[0].id, hits[0].text) == ("tea", "The user likes green tea in the morning")
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)

    def test_no_more_than_the_limit_come_back(self) -> None:
        """Also when more would match."""
        assert len(self._filled().search("the", limit=2)) <= 2

    def test_an_empty_index_and_an_empty_query_find_nothing(self) -> None:
        """Neither is an error."""
        assert list(self.make().search("tea")) == []
        assert list(self._filled().search("")) == []

    def test_a_query_of_any_characters_is_only_text(self) -> None:
        """No query language shows through."""
        for query in ('"', "tea AND", "NEAR(", "*", "a:b", "-tea", "'; drop table x", "(", "\x00"):
            self._filled().search(query)

    def test_a_text_put_again_replaces_the_old_one(self) -> None:
        """It is found by its new words alone."""
        index = self._filled()
        index.put("tea", "The user likes coffee", "fact")
        assert [hit.id for hit in index.search("coffee")] == ["tea"]
        assert all(hit.id != "tea" for hit in index.search("green"))

    def test_a_forgotten_text_is_not_found_again(self) -> None:
        """Forgetting it twice is False."""
        index = self._filled()
        assert index.forget("tea")
        assert not index.forget("tea")
        assert all(hit.id != "tea" for hit in index.search("green tea"))
