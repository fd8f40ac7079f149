"""The memory of a workspace in PostgreSQL: the same promises as the index in a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from testkit.memory_contract import TALK, MemoryContract
from testkit.postgres import database, postgres
from testkit.search_kit import ConceptEmbedder

from lmagent.cluster.database import Database
from lmagent.core.memory import MemoryItem
from lmagent.memory.search.postgres import PostgresMemoryIndex


class TestPostgresMemory(MemoryContract):
    @pytest.fixture(autouse=True)
    def _database(self) -> Iterator[None]:
        with database() as url:
            self.known = Database(url)
            yield
            self.known.close()

    def make(self, workspace: str = "shop") -> PostgresMemoryIndex:
        return PostgresMemoryIndex(self.known, workspace, None, lambda _: None)

    def test_another_process_finds_what_one_has_indexed(self) -> None:
        self.make().index(TALK)
        assert self.ids(self.make(), "umbrella")[0] == "4"

    def test_workspaces_do_not_find_each_others_items(self) -> None:
        self.make().index(TALK)
        other = self.make("garden")
        assert self.ids(other, "umbrella") == []
        assert other.count() == 0
        assert other.remove(["4"]) == 0

    def test_a_source_is_replaced_as_a_whole_and_removed_with_its_items(self) -> None:
        index = self.make()
        index.take("notes", "1", [MemoryItem("a", "red apples", session="notes")], whole=True)
        index.take("notes", "2", [MemoryItem("b", "green pears", session="notes")], whole=True)
        assert self.ids(index, "apples pears") == ["b"]
        assert index.marks() == {"notes": "2"}
        index.drop("notes")
        assert (index.count(), index.marks()) == (0, {})

    def test_a_rare_word_weighs_more_than_a_common_one(self) -> None:
        index = self.make()
        index.index([MemoryItem(f"n{number}", f"milk and bread {number}", float(number)) for number in range(20)])
        index.index([MemoryItem("rare", "saffron", 1.0)])
        assert self.ids(index, "milk saffron")[0] == "rare"

    def test_words_are_found_in_other_forms_and_without_accents(self) -> None:
        index = self.make()
        index.index([MemoryItem("a", "We met at the cafés of Zürich"), MemoryItem("b", "see src/app/main.py")])
        assert self.ids(index, "meeting cafe zurich") == ["a"]
        assert self.ids(index, "main") == ["b"]

    def test_without_pgvector_words_count_alone_and_the_reason_is_given(self) -> None:
        notices: list[str] = []
        index = PostgresMemoryIndex(self.known, "shop", ConceptEmbedder(), notices.append)
        index.index(TALK)
        assert self.ids(index, "umbrella")[0] == "4"
        assert index.kind == "words"
        assert "the database has no pgvector" in notices[0]
        index.close()


def test_with_pgvector_items_are_found_by_their_meaning() -> None:
    with postgres(vectors=True) as server:
        known = Database(server.url())
        known.migrate()
        notices: list[str] = []
        index = PostgresMemoryIndex(known, "shop", ConceptEmbedder(), notices.append)
        index.index(TALK)
        assert index.wait_embedded(20), notices
        assert [hit.id for hit in index.search("any pets?", 1)] == ["1"]
        assert index.kind == "words and vectors of concepts"
        index.index([MemoryItem("1", "The soup was salty", 100.0, "monday", "Ada")])
        assert index.wait_embedded(20), notices
        assert index.search("a meal", 1)[0].id == "1"
        assert index.alike("The soup was salty", 0.9, "") == "1"
        index.close()
        known.close()
