"""Calls are constrained from a model's first failure on, and only then."""

import anyio
import msgspec
from kit import Bench, bench, call, faults, opening_of, say

from lmagent.core import events as ev
from lmagent.core.ports import ModelTraits
from lmagent.engine.constrain import FREE_NOTE, GOOD_CALLS, NOTE
from lmagent.engine.context.aside import ask_aside
from lmagent.engine.session import Session
from lmagent.engine.turn import NUDGE_ACT


class Learned(ModelTraits):
    """Traits in memory."""

    def __init__(self) -> None:
        self.models: set[str] = set()

    def is_constrained(self, model: str) -> bool:
        return model in self.models

    def constrain(self, model: str) -> None:
        self.models.add(model)

    def free(self, model: str) -> None:
        self.models.discard(model)


async def made_with(*answers, model: str = "m", traits: Learned | None = None) -> Bench:
    made = await bench(*answers)
    made.wiring.traits = traits or Learned()
    await made.session.record(ev.ModelChanged(model=model))
    return made


def constrained(made: Bench) -> list[bool]:
    return [request.constrain for request in made.model.requests]


def test_a_model_that_calls_by_itself_is_left_alone():
    async def check():
        made = await made_with(call(("read", '{"path": "a"}')), call(("nothing", "{}")), say("done"))
        await made.submit()
        assert constrained(made) == [False, False, False]
        assert NOTE not in str(made.session.state.messages)

    anyio.run(check)


def test_damaged_arguments_switch_it_on_and_the_model_is_told_once():
    async def check():
        traits = Learned()
        made = await made_with(call(("read", '{"path": ')), call(("read", '{"path": "a"}')), say("done"), traits=traits)
        assert (await made.submit()).outcome == "done"
        assert constrained(made) == [False, True, True]
        assert traits.models == {"m"}
        assert msgspec.json.encode(made.session.state.messages).decode().count("<replies>") == 1
        assert all(faults(request) == [] for request in made.model.requests)
        (event,) = made.of(ev.CallsConstrained)
        assert "JSON" in event.reason

    anyio.run(check)


def test_calls_that_are_announced_twice_and_not_made_switch_it_on():
    async def check():
        made = await made_with(
            say("I will now read the file."),
            say("Now I will read the file."),
            call(("read", '{"path": "a"}')),
            say("ok"),
        )
        assert (await made.submit()).outcome == "done"
        assert constrained(made) == [False, False, True, True]
        assert NUDGE_ACT in str(made.session.state.messages)

    anyio.run(check)


def test_a_later_session_with_that_model_begins_with_it_and_one_with_another_model_does_not():
    async def check():
        traits = Learned()
        traits.constrain("m")
        again = await made_with(say("done"), traits=traits)
        await again.submit()
        assert constrained(again) == [True]
        other = await made_with(say("done"), model="other", traits=traits)
        await other.submit()
        assert constrained(other) == [False]
        await again.session.record(ev.ModelChanged(model="other"))
        await again.submit()
        assert constrained(again)[-1] is False

    anyio.run(check)


def test_it_stays_on_when_the_session_is_resumed():
    async def check():
        made = await made_with(call(("read", "{")), say("done"))
        await made.submit()
        again = await Session.resume(made.log, made.wiring, opening_of(made.wiring, "auto"))
        assert again.request().constrain

    anyio.run(check)


def good(times: int, folder: str = "a"):
    return [call(("read", f'{{"path": "{folder}/{number}"}}')) for number in range(times)]


def test_one_slip_does_not_constrain_a_model_for_good():
    async def check():
        traits = Learned()
        made = await made_with(call(("read", "{")), *good(GOOD_CALLS), say("done"), traits=traits)
        assert (await made.submit()).outcome == "done"
        assert constrained(made) == [False, *[True] * GOOD_CALLS, False]
        assert traits.models == set()
        assert [event.lifted for event in made.of(ev.CallsConstrained)] == [False, True]
        assert str(made.model.requests[-1].messages).count(FREE_NOTE) == 1
        assert all(faults(request) == [] for request in made.model.requests)

    anyio.run(check)


def test_a_model_that_slips_again_is_constrained_for_longer():
    async def check():
        first, second = call(("read", "{")), call(("read", '{"path'))
        made = await made_with(first, *good(GOOD_CALLS), second, *good(2 * GOOD_CALLS, "b"), say("done"))
        assert (await made.submit()).outcome == "done"
        assert constrained(made) == [False, *[True] * GOOD_CALLS, False, *[True] * (2 * GOOD_CALLS), False]

    anyio.run(check)


def test_a_call_that_did_not_fit_begins_the_count_anew():
    async def check():
        misfit = call(("nothing", "{}"))
        made = await made_with(call(("read", "{")), *good(GOOD_CALLS - 1), misfit, *good(2), say("done"))
        assert (await made.submit()).outcome == "done"
        assert constrained(made)[-1] is True

    anyio.run(check)


def test_a_summary_is_never_constrained():
    async def check():
        made = await made_with(call(("read", "{")), say("done"))
        await made.submit()
        async for _ in ask_aside(made.session, "what?"):
            pass
        assert made.model.asides[-1].constrain is False

    anyio.run(check)
