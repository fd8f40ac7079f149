"""Who may use a prompt cache that several conversations share, and when."""

from __future__ import annotations

import anyio
import pytest

from lmagent.providers.cache_slot import IDLE, SHARE, CachedConversation, CacheSlot, caches
from lmagent.providers.dialects.base import ServerFacts
from lmagent.testing.fakes.clock import FakeClock


def test_a_conversation_keeps_the_slot_between_the_steps_of_its_turn() -> None:
    async def main() -> None:
        slot, first, second = (
            CacheSlot(FakeClock(auto=True)),
            CachedConversation(0, lambda: True),
            CachedConversation(1),
        )
        await slot.take(first)
        assert not slot.is_free(second)
        slot.leave()
        assert not slot.is_free(second), "its tools run now"
        assert slot.is_free(first)

    anyio.run(main)


def test_a_conversation_whose_turn_is_over_lets_the_next_one_in() -> None:
    async def main() -> None:
        slot, first, second = CacheSlot(FakeClock(auto=True)), CachedConversation(0), CachedConversation(1)
        await slot.take(first)
        assert not slot.is_free(second), "its request is still running"
        slot.leave()
        assert slot.is_free(second)

    anyio.run(main)


def test_a_turn_that_needs_no_model_for_long_lets_the_next_one_in() -> None:
    async def main() -> None:
        clock = FakeClock(auto=True)
        slot, first, second = CacheSlot(clock), CachedConversation(0, lambda: True), CachedConversation(1)
        await slot.take(first)
        await clock.sleep(IDLE + 1)
        assert not slot.is_free(second), "its request is still running, however long"
        slot.leave()
        await clock.sleep(IDLE - 1)
        assert not slot.is_free(second)
        await clock.sleep(1)
        assert slot.is_free(second)

    anyio.run(main)


def test_a_long_turn_gives_way_between_two_steps_to_one_that_waits_and_gets_the_slot_back() -> None:
    async def main() -> None:
        clock = FakeClock(auto=True)
        slot, first, second = CacheSlot(clock), CachedConversation(0, lambda: True), CachedConversation(1)
        order: list[str] = []

        async def step(who: CachedConversation, name: str) -> None:
            await slot.take(who)
            order.append(name)
            slot.leave()

        async with anyio.create_task_group() as tasks:
            await slot.take(first)
            tasks.start_soon(step, second, "second")
            await anyio.sleep(0.06)
            await clock.sleep(SHARE)
            slot.leave()
            tasks.start_soon(step, first, "first")
        assert order == ["second", "first"]

    anyio.run(main)


def test_a_long_turn_goes_on_when_nobody_waits() -> None:
    async def main() -> None:
        clock = FakeClock(auto=True)
        slot, first = CacheSlot(clock), CachedConversation(0, lambda: True)
        await slot.take(first)
        await clock.sleep(2 * SHARE)
        slot.leave()
        assert slot.is_free(first)

    anyio.run(main)


def test_what_is_asked_on_behalf_of_a_turn_does_not_wait_for_it() -> None:
    async def main() -> None:
        slot, first = CacheSlot(FakeClock(auto=True)), CachedConversation(0, lambda: True)
        await slot.take(first)
        slot.leave()
        with anyio.fail_after(1):
            await slot.take(CachedConversation(1, aside=True))
        slot.leave()
        assert slot.is_free(first)
        assert not slot.is_free(CachedConversation(2)), "the turn still has the slot"

    anyio.run(main)


def test_one_that_gives_up_waiting_holds_up_nobody() -> None:
    async def main() -> None:
        slot, first, third = CacheSlot(FakeClock(auto=True)), CachedConversation(0), CachedConversation(2)
        await slot.take(first)
        with anyio.move_on_after(0.06):
            await slot.take(CachedConversation(1))
        slot.leave()
        assert slot.is_free(third)

    anyio.run(main)


@pytest.mark.parametrize(
    ("facts", "near", "kept", "parallel"),
    [
        (ServerFacts(reached=True, dialect="llamacpp", slots=4), True, 4, None),
        (ServerFacts(reached=True, dialect="ollama"), True, 1, None),
        (ServerFacts(reached=True, dialect="vllm"), True, None, None),
        (ServerFacts(reached=True, dialect="generic"), True, 1, None),
        (ServerFacts(reached=True, dialect="generic"), False, None, None),
        (ServerFacts(reached=True, dialect="openrouter"), False, None, None),
        (ServerFacts(), True, None, None),
        (ServerFacts(reached=True, dialect="generic"), True, 8, 8),
        (ServerFacts(reached=True, dialect="generic"), False, None, 8),
        (ServerFacts(reached=True, dialect="llamacpp", slots=4), True, 4, 8),
    ],
)
def test_how_many_conversations_a_server_keeps(
    facts: ServerFacts, near: bool, kept: int | None, parallel: int | None
) -> None:
    assert caches(facts, near=near, parallel=parallel) == kept
