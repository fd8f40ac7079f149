"""What is found, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from testkit.search_kit import ConceptEmbedder, opened, said

from lmagent.memory import open_memory
from lmagent.memory.search.query import asks, query_words, without_names
from lmagent.memory.search.recipe import FoundItem, base_scores, fuse


def item(number: int, session: str = "s", before: int | None = None, after: int | None = None) -> FoundItem:
    return FoundItem(number, session, named=False, asks=False, before=before, after=after)


def test_an_answer_is_found_by_the_words_of_the_question_before_it(tmp_path: Path) -> None:
    index, _ = opened(tmp_path)
    index.index(said("Ann: What instrument does your sister play?", "Bob: The cello, since she was six."))
    index.index(said("Ann: The play begins at eight.", "Bob: I shall be late.", session="other"))
    assert [hit.id for hit in index.search("Which instrument does his sister play?", 2)] == ["s1", "s2"]


def test_words_are_found_in_their_other_forms(tmp_path: Path) -> None:
    index, _ = opened(tmp_path)
    index.index(said("Ann: We adopted two kittens", "Bob: Nice"))
    assert index.search("adopting a kitten", 1)[0].id == "s1"


def test_accents_and_case_make_no_difference(tmp_path: Path) -> None:
    index, _ = opened(tmp_path)
    index.index([{"id": "1", "text": "Das CAFÉ in Köln"}, {"id": "2", "text": "Привет, мир"}])
    assert index.search("cafe koln", 1)[0].id == "1"
    assert index.search("ПРИВЕТ", 1)[0].id == "2"


def test_words_like_of_and_the_do_not_count_unless_there_is_no_other() -> None:
    assert query_words("What was the name of his dog?") == ["name", "dog"]
    assert query_words("To be or not to be?") == ["to", "be", "or", "not"]


def test_a_speaker_that_the_query_names_comes_before_another_who_said_the_same(tmp_path: Path) -> None:
    index, _ = opened(tmp_path)
    index.index(said("Bob: I like hiking in the hills", session="a"))
    index.index(said("Ann Lee: I like hiking in the hills", session="b", begin=0))
    assert index.search("Where does Ann like hiking?", 1)[0].speaker == "Ann Lee"
    assert index.search("Where does Bob like hiking?", 1)[0].speaker == "Bob"


def test_a_question_comes_after_a_statement_with_the_same_words(tmp_path: Path) -> None:
    index, _ = opened(tmp_path)
    index.index(said("Ann: You moved to Oslo?", session="a"))
    index.index(said("Bob: She moved to Oslo.", session="b", begin=0))
    assert [hit.id for hit in index.search("who moved to Oslo", 2)] == ["b1", "a1"]


def test_a_statement_with_a_question_after_it_is_no_question() -> None:
    assert asks("You moved to Oslo?")
    assert asks('Wow! "Where was that? Did you like it?"')
    assert not asks("I moved to Oslo. It is cold. What about you?")
    assert not asks("Really? Yes.")
    assert not asks("")


def test_a_query_has_its_meaning_without_the_names_of_speakers() -> None:
    speakers = ["Ana Lee", "user"]
    assert without_names("What did Ana’s dog eat?", speakers) == "What did dog eat?"
    assert without_names("Who is Ana?", speakers) == "Who is Ana?"
    assert without_names("Which user table is it?", speakers) == "Which user table is it?"


def test_neighbours_and_the_session_raise_an_items_score() -> None:
    items = {1: item(1, after=2), 2: item(2, before=1), 3: item(3, "t")}
    scores = fuse(items, {1: 1.0, 3: 1.0})
    assert scores[1] > scores[2] > 0
    talk = {number: item(number) for number in (1, 2)} | {3: item(3, "t"), 4: item(4, "t")}
    scores = fuse(talk, {1: 1.0, 2: 0.8, 3: 1.0, 4: 0.0})
    assert scores[1] > scores[3]


def test_words_and_cosines_are_weighed_six_to_four() -> None:
    assert base_scores({1: 8.0, 2: 4.0}, None) == {1: 1.0, 2: 0.5}
    assert base_scores({1: 8.0}, {1: 0.5, 2: 1.0}) == {1: pytest.approx(0.7), 2: pytest.approx(0.6)}


def test_items_without_a_session_are_no_neighbours(tmp_path: Path) -> None:
    index, _ = opened(tmp_path)
    index.index([{"id": "1", "text": "the alarm code"}, {"id": "2", "text": "buy milk"}])
    assert [hit.id for hit in index.search("alarm", 5)] == ["1"]


def test_the_order_is_the_same_each_time_and_in_a_reopened_index(tmp_path: Path) -> None:
    index, _ = opened(tmp_path, ConceptEmbedder())
    for number in range(30):
        index.index(said("Ann: a trip by train", "Bob: dinner with the dog", session=f"s{number}"))
    assert index.wait_embedded(20)
    first = index.search("train dinner", 40)
    assert index.search("train dinner", 40) == first
    index.close()
    again, _ = opened(tmp_path, ConceptEmbedder())
    assert again.search("train dinner", 40) == first


def test_meaning_finds_what_no_word_connects(tmp_path: Path) -> None:
    index, _ = opened(tmp_path, ConceptEmbedder())
    index.index(said("Ann: Our new puppy sleeps all day", session="a"))
    index.index(said("Bob: The soup was cold", session="b"))
    index.index(said("Cid: A flight in May", session="c"))
    assert index.wait_embedded(20)
    assert index.search("which pet", 1)[0].id == "a1"
    assert index.search("her journey", 1)[0].id == "c1"


def test_ten_thousand_items_are_searched_and_a_new_one_is_found_at_once(tmp_path: Path) -> None:
    index, _ = opened(tmp_path)
    index.index({"id": str(n), "text": f"item {n} of the stock list", "session": f"s{n // 20}"} for n in range(10_000))
    index.index([{"id": "new", "text": "the spare key is below the flower pot"}])
    assert index.count() == 10_001
    assert index.search("Where is the spare key?", 3)[0].id == "new"
    assert index.search("item 4711", 1)[0].id == "4711"


def test_a_query_of_a_megabyte_is_answered(tmp_path: Path) -> None:
    index, _ = opened(tmp_path)
    index.index(said("Ann: the blue bicycle"))
    assert index.search("bicycle " + "word number nine " * 60_000, 3)[0].id == "s1"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(), max_size=80), query=st.text(st.characters(), max_size=80))
def test_no_text_and_no_query_makes_the_index_fail(tmp_path: Path, text: str, query: str) -> None:
    with open_memory(tmp_path) as index:
        index.index([{"id": "x", "text": text, "session": query, "speaker": text}])
        index.search(query, 3)
        index.search(text, 3)
        index.around(["x", query])
        index.remove(["x", text])
        assert index.count() == 0
