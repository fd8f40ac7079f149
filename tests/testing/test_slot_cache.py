"""The slots of the fake llama.cpp server keep what real ones keep."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from testkit.servers import SlotCache

MAIN = b"main conversation " * 400
SIDE = b"another thing " * 300


def test_a_prompt_that_grows_is_read_from_where_it_grew() -> None:
    cache = SlotCache(1)
    first = cache.admit(MAIN)
    cache.release(0)
    second = cache.admit(MAIN + b"x" * 400)
    assert (first.cached, first.read) == (0, len(MAIN) // 4)
    assert (second.why, second.cached, second.read) == ("prefix", len(MAIN) // 4, 100)


def test_the_same_prompt_again_reads_its_last_token() -> None:
    cache = SlotCache(1)
    cache.admit(MAIN)
    cache.release(0)
    assert cache.admit(MAIN).read == 1


def test_a_side_call_on_the_only_slot_throws_the_main_conversation_out() -> None:
    cache = SlotCache(1)
    for prompt in (MAIN, SIDE, MAIN):
        cache.admit(prompt)
        cache.release(0)
    assert cache.evictions == 2
    assert cache.cached == 0
    assert cache.read == (2 * len(MAIN) + len(SIDE)) // 4


def test_a_second_slot_keeps_it() -> None:
    cache = SlotCache(2)
    rows = []
    for prompt in (MAIN, SIDE, MAIN + b"more"):
        row = cache.admit(prompt)
        cache.release(row.slot)
        rows.append((row.slot, row.why))
    assert rows == [(0, "lru"), (1, "lru"), (0, "prefix")]
    assert cache.evictions == 0


def test_a_prompt_goes_to_the_slot_with_the_longest_beginning_of_it() -> None:
    cache = SlotCache(3)
    for wanted, prompt in enumerate((MAIN[:2000], MAIN[:4000], SIDE)):
        cache.admit(prompt, wanted)
        cache.release(wanted)
    assert cache.admit(MAIN).slot == 1


def test_a_tenth_in_common_is_too_little() -> None:
    cache = SlotCache(2)
    row = cache.admit(MAIN[:3000])
    cache.release(row.slot)
    assert cache.admit(MAIN[:300] + SIDE).why == "lru"


def test_a_slot_can_be_asked_for_and_wraps_around() -> None:
    cache = SlotCache(2)
    assert [cache.admit(MAIN, wanted).slot for wanted in (1, 7, 4)] == [1, 1, 0]
    assert {row.why for row in cache.log} == {"id"}


def test_a_busy_slot_is_passed_over() -> None:
    cache = SlotCache(2)
    assert cache.admit(MAIN).slot == 0
    assert cache.admit(MAIN).slot == 1
    assert not cache.free()
    cache.release(1)
    assert cache.free()
    assert not cache.free(0)
    assert cache.free(1)


def test_without_the_cache_everything_is_read_again() -> None:
    cache = SlotCache(1)
    cache.admit(MAIN)
    cache.release(0)
    assert cache.admit(MAIN, cache=False).cached == 0


@given(
    st.integers(1, 4),
    st.lists(
        st.tuples(st.sampled_from([b"aaaa", b"abab", b"bbbb", b""]), st.integers(0, 30), st.integers(-1, 5)),
        max_size=30,
    ),
)
def test_every_token_is_either_read_or_taken_from_the_cache(slots: int, prompts: list[tuple[bytes, int, int]]) -> None:
    cache = SlotCache(slots)
    for word, times, wanted in prompts:
        prompt = b"begin" + word * times
        row = cache.admit(prompt, wanted)
        cache.release(row.slot)
        assert row.cached + row.read == row.tokens == len(prompt) // 4
        assert row.read >= min(1, row.tokens)
        assert row.slot in range(slots)
        assert cache.slots[row.slot].held == prompt
