"""A claim to be done after nothing but failed writes is asked about once, and is not taken for done."""

from __future__ import annotations

import anyio
from kit import bench, call, say

from lmagent.engine.endings import QUESTION
from lmagent.policy.gate import Rules

FAILS, WORKS = ("write", '{"path": "missing"}'), ("write", '{"path": "a"}')


def _asked(made) -> int:
    return str(made.model.requests[-1].messages).count(QUESTION)


def test_a_claim_after_nothing_but_failed_writes_is_asked_about_once_and_ends_incomplete():
    async def check():
        made = await bench(call(FAILS), say("It is written."), say("It is written, really."))
        finished = await made.submit()
        assert (finished.outcome, finished.cause) == ("error", "incomplete")
        assert finished.answer == "It is written, really."
        assert _asked(made) == 1

    anyio.run(check)


def test_a_write_that_works_after_the_question_ends_the_turn_as_done():
    async def check():
        made = await bench(call(FAILS), say("It is written."), call(WORKS), say("Now it is."))
        assert (await made.submit()).outcome == "done"
        assert _asked(made) == 1

    anyio.run(check)


def test_who_names_a_reason_is_believed():
    async def check():
        made = await bench(call(FAILS), say("BLOCKED: the folder is not there"))
        assert (await made.submit()).outcome == "blocked"

    anyio.run(check)


def test_a_turn_with_one_write_that_worked_is_not_asked_about():
    async def check():
        made = await bench(call(FAILS, WORKS), say("One is written."))
        assert (await made.submit()).outcome == "done"
        assert _asked(made) == 0

    anyio.run(check)


def test_failed_reads_are_not_asked_about():
    async def check():
        made = await bench(call(("read", '{"path": "missing"}')), say("It does not exist."))
        assert (await made.submit()).outcome == "done"

    anyio.run(check)


def test_a_write_that_a_rule_forbids_counts_as_failed():
    async def check():
        made = await bench(call(WORKS), say("Written."), say("Written."), rules=Rules(deny=("write",)))
        assert (await made.submit()).cause == "incomplete"

    anyio.run(check)


def test_the_turn_before_does_not_count():
    async def check():
        made = await bench(call(FAILS), say("BLOCKED: no folder"), say("You are welcome."))
        await made.submit()
        assert (await made.submit("thanks")).outcome == "done"

    anyio.run(check)
