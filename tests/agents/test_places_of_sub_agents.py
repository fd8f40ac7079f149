"""Places: where the prompts of sub-agents are on the server, and what of it is read again."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from agents_kit import a_host, by_brief, chats, children_of, do, of_type, report, results_of, use
from testkit.servers.compatible import VLLMServer
from testkit.servers.llamacpp import LlamaCppServer

from lmagent.core import events as ev
from lmagent.core.commands import Interrupt, Submit
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.testing import ScriptedServer
from lmagent.testing.prefix import canonical
from lmagent.testing.script import call, hang, say

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "bench"))

PARTS = [{"task_id": name, "objective": f"{name} part"} for name in ("first", "second", "third")]
SCRIPT = {
    "": [call("ls"), use("decompose", manifest=PARTS), call("ls", path="."), say("All done.")],
    **{f"{name} part": [call("ls"), report(summary=f"{name} done.")] for name in ("first", "second", "third")},
}


@pytest.mark.parametrize("slots", [1, 2, 3, 4])
def test_three_sub_agents_push_nothing_of_the_main_conversation_out_and_read_no_prefix_again(
    tmp_path: Path, slots: int
) -> None:
    from subagents import FILES, play

    for number in range(FILES):
        (tmp_path / f"{number}.txt").write_text(f"line {number} of a file\n" * 40)
    figures: dict[str, Any] = anyio.run(play, slots, 2, 3, tmp_path)
    assert figures["ok"] == figures["children"] == 6
    assert figures["main_evicted"] == 0
    assert figures["children_prefix"] == 0


def test_a_sub_agents_prompt_begins_with_its_parents_byte_for_byte(tmp_path: Path) -> None:
    async def main() -> None:
        with ScriptedServer(by_brief(SCRIPT), strict=True) as server:
            async with a_host(tmp_path, server) as host:
                session = await host.new_session()
                await do(session)
                assert len(children_of(host, session)) == 3
                prompts = [canonical(body) for body in chats(server)]
                asked = prompts[1]  # the parent's step that made the call
                assert all(prompt.startswith(asked) for prompt in prompts[2:])
                own = [*prompts[:2], *prompts[-2:]]
                assert all(later.startswith(earlier) for earlier, later in pairwise(own)), "the parent's only grows"

    anyio.run(main)


def test_a_long_conversation_is_not_inherited_and_stays_in_its_slot(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("".join(f"line {number} about the harvest\n" for number in range(1500)))
    script = {
        **SCRIPT,
        "": [*[call("read", path="long.txt", offset=at * 150) for at in range(4)], *SCRIPT[""][1:]],
    }

    async def main() -> None:
        with LlamaCppServer(by_brief(script), context=16384 * 2, slots=2) as server:
            async with a_host(tmp_path, server, llm_model=server.model, tool_result_tokens=1800) as host:
                session = await host.new_session()
                await do(session, "read about the harvest")
                for child in children_of(host, session):
                    assert not of_type(host, child, ev.ContextInherited)
                assert [event.result.status for event in results_of(host, session)] == ["ok"] * 3
                rows = server.kv.log
                mine = [row for row in rows if row.slot == 0]
                assert len(mine) == len(rows) - 6
                held = 0
                for row in mine:
                    assert row.cached >= held - 16
                    held = row.tokens
                beside = [row for row in rows if row.slot == 1]
                assert all(row.read < row.tokens / 2 for row in beside[1:]), "the fixed part is read once"

    anyio.run(main)


def test_one_that_begins_afresh_is_given_what_its_parent_found_about_it(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(
        "".join(f"The harvest of year {year} was {year % 7} tons.\n" for year in range(150))
    )
    script = {
        "": [call("read", path="a.txt"), use("delegate", objective="What was the harvest of year 83?"), say("Done.")],
        "What was the harvest of year 83?": [report(summary="6 tons.")],
    }

    async def main() -> None:
        with VLLMServer(by_brief(script)) as server:
            async with a_host(tmp_path, server, llm_model=server.model, brief_data_budget=1500) as host:
                session = await host.new_session()
                await do(session, "harvests")
                (started,) = of_type(host, session.state.session, ev.SubagentStarted)
                assert "The harvest of year 83 was 6 tons." in started.brief.data
                assert len(started.brief.data) <= 1500
                (first,) = [body for body in chats(server) if "You are a sub-agent. Do only" in str(body["messages"])]
                assert first["tools"] == chats(server)[0]["tools"]
                assert first["messages"][0] == chats(server)[0]["messages"][0]

    anyio.run(main)


def test_where_the_server_keeps_all_prompts_sub_agents_work_side_by_side(tmp_path: Path) -> None:
    async def main() -> None:
        with VLLMServer(by_brief(SCRIPT)) as server:
            async with a_host(tmp_path, server, llm_model=server.model) as host:
                session = await host.new_session()
                await do(session)
                marks = [type(event).__name__ for event in host.store.read(session.state.session)]
                order = [mark for mark in marks if mark in ("SubagentStarted", "SubagentFinished")]
                assert order[:3] == ["SubagentStarted"] * 3
                assert [event.result.status for event in results_of(host, session)] == ["ok"] * 3

    anyio.run(main)


@pytest.mark.long
def test_what_one_writes_while_a_command_of_another_runs_was_delivered_by_the_first_alone(tmp_path: Path) -> None:
    wanted = {"type": "file", "path": "a.txt"}
    manifest = [{"task_id": name, "objective": name, "deliverable": wanted} for name in ("writer", "waiter")]
    command = "until [ -e a.txt ]; do sleep 0.1; done; sleep 5"
    script = {
        "": [use("decompose", manifest=manifest), say("All done.")],
        "writer": [call("write", path="a.txt", content="hello\n"), report()],
        "waiter": [call("shell", command=command), report()],
    }

    async def main() -> None:
        with VLLMServer(by_brief(script)) as server:
            async with a_host(tmp_path, server, llm_model=server.model) as host:
                session = await host.new_session()
                await do(session)
                results = {event.task: event.result for event in results_of(host, session)}
                assert (results["writer"].status, results["waiter"].status) == ("ok", "partial")
                assert "you have not changed it" in results["waiter"].error

    anyio.run(main)


def test_one_that_begins_afresh_is_told_of_the_tools_that_it_may_use(tmp_path: Path) -> None:
    script = {"": [use("delegate", objective="the part"), say("Done.")], "the part": [report()]}

    async def main() -> None:
        with VLLMServer(by_brief(script)) as server:
            async with a_host(
                tmp_path, server, llm_model=server.model, agent_max_depth=1, context_window=32_768
            ) as host:
                session = await host.new_session()
                await do(session)
                main_note, child_note = (
                    next(
                        event.message.text
                        for event in host.store.read(name)
                        if isinstance(event, ev.MessageAdded) and event.message.text.startswith("<tools>")
                    )
                    for name in (session.state.session, *children_of(host, session))
                )
                assert "- delegate" in main_note
                assert "- report_result" not in main_note
                assert "- delegate" not in child_note
                assert "- decompose" not in child_note
                assert "- report_result" in child_note

    anyio.run(main)


def test_an_interrupt_ends_all_that_work_side_by_side_and_what_was_not_begun_is_not(tmp_path: Path) -> None:
    names = [f"part {number}" for number in range(6)]
    manifest = [{"task_id": name, "objective": name} for name in names]
    script = {
        "": [use("decompose", manifest=manifest), say("Done.")],
        **{name: [hang(say("x"), chunks=1)] for name in names},
    }

    async def main() -> None:
        with VLLMServer(by_brief(script)) as server:
            async with a_host(tmp_path, server, llm_model=server.model) as host:
                session = await host.new_session()
                await session.send(Submit(message=user("do it")))
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(run_until_idle, session)
                    with anyio.fail_after(20):
                        while sum(child.state.step for child in session.children.values()) < 4:
                            await anyio.lowlevel.checkpoint()
                    await session.send(Interrupt())
                assert session.state.last_outcome == "interrupted"
                assert [event.result.status for event in results_of(host, session)] == ["error"] * 4
                for child in children_of(host, session):
                    assert of_type(host, child, ev.TurnFinished)[-1].outcome == "interrupted"
                assert list(host.sessions) == [session.state.session]

    anyio.run(main)
