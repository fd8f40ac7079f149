"""Several turns in one session: continued, steered, interrupted, and its questions answered by the program."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lmagent import ApprovalRequested, ConfigError, LmagentError, TextDelta, ToolFinished, ToolStarted
from lmagent.core import events as ev
from lmagent.core.errors import SessionBusy, SessionNotFound
from lmagent.testing import call, say, slow

WRITE = (call("write", path="a.txt", content="x\n"), say("Done."))


def test_a_session_continues_over_turns_and_is_found_by_its_id_later(agent_with):
    agent = agent_with([say("I note it."), say("It is 7."), say("Still 7.")])

    async def main() -> str:
        async with agent.session() as session:
            await session.send("Remember 7")
            result = await session.send("Which number?")
            assert (result.text, result.turn, result.session) == ("It is 7.", 2, session.id)
            return session.id

    session = asyncio.run(main())
    assert agent_with.again().run_sync("And now?", session=session).text == "Still 7."
    assert "Remember 7" in str(agent_with.server.chats[-1].messages)


def test_a_session_can_have_an_id_of_the_programs_own(agent_with):
    agent = agent_with([say("one"), say("two")])

    async def main() -> list[int]:
        turns = list[int]()
        for _ in range(2):
            async with agent.session("order-17", create=True) as session:
                assert session.id == "order-17"
                turns.append((await session.send("go")).turn)
        return turns

    assert asyncio.run(main()) == [1, 2]


def test_an_id_that_no_session_has_is_refused(agent_with):
    agent = agent_with([])
    with pytest.raises(SessionNotFound, match="there is no session nowhere"):
        agent.run_sync("hi", session="nowhere")

    async def main() -> None:
        async with agent.session("../x", create=True):
            pass

    with pytest.raises(ConfigError, match="cannot be the id of a session"):
        asyncio.run(main())


def test_a_steering_message_reaches_the_running_turn(agent_with):
    (agent_with.workspace / "a.txt").write_text("hello\n")
    agent = agent_with([slow(call("read", path="a.txt"), first=0.3), say("Bonjour.")])

    async def main() -> str:
        async with agent.session() as session:
            with pytest.raises(ConfigError, match="no turn is running"):
                await session.steer("too early")
            run = session.send("Read a.txt")
            async for event in run:
                if isinstance(event, ToolStarted):
                    await session.steer("Answer in French")
            return run.result.text

    assert asyncio.run(main()) == "Bonjour."
    assert "Answer in French" in str(agent_with.server.chats[1].messages)


def test_an_interrupt_ends_the_turn_and_the_session_continues(agent_with):
    agent = agent_with([slow(say("a long answer " * 50), each=0.05), say("Yes.")])

    async def main() -> None:
        async with agent.session() as session:
            run = session.send("Talk")
            async for event in run:
                if isinstance(event, TextDelta):
                    await session.interrupt()
            assert (run.result.status, run.result.reason) == ("interrupted", ev.BY_USER)
            assert (await session.send("Again?")).text == "Yes."

    asyncio.run(main())


def test_a_session_has_one_turn_at_a_time(agent_with):
    agent = agent_with([slow(say("a long answer " * 50), each=0.05)])

    async def main() -> None:
        async with agent.session() as session:
            async for event in session.send("Talk"):
                if isinstance(event, TextDelta):
                    with pytest.raises(SessionBusy, match="a turn is running"):
                        await session.send("More")
                    with pytest.raises(SessionBusy, match=r"has session .* open already"):
                        async with agent.session(session.id):
                            pass
                    await session.interrupt()

    asyncio.run(main())


def answered(agent: Any, answer: Any) -> tuple[str, list[ToolFinished]]:
    async def main() -> tuple[str, list[ToolFinished]]:
        finished = list[ToolFinished]()
        async with agent.session() as session:
            run = session.send("Write a.txt")
            async for event in run:
                if isinstance(event, ApprovalRequested):
                    assert await answer(session, event)
                    assert not await session.approve(event)  # it was answered
                elif isinstance(event, ToolFinished):
                    finished.append(event)
            return run.result.status, finished

    return asyncio.run(main())


def test_a_program_answers_the_events_of_questions(agent_with):
    async def approve(session: Any, question: ApprovalRequested) -> bool:
        assert question.tool == "write"
        assert "a.txt" in question.summary
        return await session.approve(question)

    status, _ = answered(agent_with(WRITE, approve="events", permission="normal"), approve)
    assert status == "done"
    assert (agent_with.workspace / "a.txt").read_text() == "x\n"


def test_the_model_reads_why_the_program_denied_a_call(agent_with):
    async def deny(session: Any, question: ApprovalRequested) -> bool:
        return await session.deny(question.id, "not on Sundays")

    _, (finished,) = answered(agent_with(WRITE, approve="events", permission="normal"), deny)
    assert finished.status == "denied"
    assert "not on Sundays" in finished.content
    assert not (agent_with.workspace / "a.txt").exists()


@pytest.mark.parametrize("is_async", [True, False])
def test_a_function_answers_the_questions_of_single_tasks(agent_with, is_async):
    asked = list[str]()

    def decide(question: ApprovalRequested) -> bool | str:
        asked.append(question.tool)
        return True if len(asked) > 1 else "first say please"

    async def decide_later(question: ApprovalRequested) -> bool | str:
        await asyncio.sleep(0)
        return decide(question)

    script = [WRITE[0], WRITE[0], say("Done.")]
    agent = agent_with(script, approve=decide_later if is_async else decide, permission="normal")
    assert agent.run_sync("Write a.txt").status == "done"
    assert asked == ["write", "write"]
    assert "first say please" in str(agent_with.server.chats[1].messages)
    assert (agent_with.workspace / "a.txt").exists()


def test_a_question_whose_answering_fails_ends_the_turn_and_the_program_sees_why(agent_with):
    def decide(question: ApprovalRequested) -> bool:
        raise ZeroDivisionError("no answer")

    agent = agent_with(WRITE, approve=decide, permission="normal")
    with pytest.raises(ZeroDivisionError, match="no answer"):
        agent.run_sync("Write a.txt")
    assert not (agent_with.workspace / "a.txt").exists()


def test_a_single_task_has_no_place_for_answers_to_events(agent_with):
    with pytest.raises(ConfigError, match="is for sessions"):
        agent_with([], approve="events").run_sync("hi")


def test_a_finished_session_has_nothing_to_resume(agent_with):
    agent = agent_with([say("hello")])
    session = agent.run_sync("hi").session
    with pytest.raises(LmagentError, match="has no unfinished turn"):
        agent.resume_sync(session)


def test_new_instructions_hold_in_a_session_that_is_continued(agent_with):
    session = agent_with([say("hello"), say("ahoy")], instructions="Be brief.").run_sync("hi").session
    agent_with.again(instructions="Talk like a pirate.").run_sync("hi", session=session)
    assert "Talk like a pirate." in str(agent_with.server.chats[-1].messages[-1])
