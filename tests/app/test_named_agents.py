"""Agents by name: their sessions have their own words, tools, rules and model, also when they are opened again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import Struct

from lmagent.app.host import Host
from lmagent.app.options import HostOptions
from lmagent.app.slash import SlashContext, dispatch
from lmagent.app.wiring import open_host
from lmagent.core.agent import NamedAgent
from lmagent.core.commands import Compact, Submit
from lmagent.core.errors import ConfigError
from lmagent.core.messages import user
from lmagent.core.model import SessionOptions
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.core.view import View
from lmagent.engine.lane import run_until_idle
from lmagent.engine.session import Session
from lmagent.testing import ScriptedServer, call, say


class Query(Struct):
    query: str


async def search(arguments: Query, _: ToolContext) -> ToolOutput:
    return ToolOutput(f"one paper on {arguments.query}")


SEARCH = Tool("search_papers", "Search for papers.", Query, "read", search)
COMPANION = NamedAgent("companion", system="You are kind.", tools=())
RESEARCHER = NamedAgent(
    "researcher",
    system="You find papers.",
    model="small",
    options=SessionOptions(temperature=0.25),
    tools=("read_file",),
    own=(SEARCH,),
    deny=("read(secret.txt)",),
    template="Question: {{user_input}}\nBe brief.",
)
CODER = NamedAgent("coder", system="You write Python.")
AGENTS = (COMPANION, RESEARCHER, CODER)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LLM_MODEL", "m")
    root = tmp_path / "ws"
    root.mkdir()
    (root / "secret.txt").write_text("hidden")
    (root / "AGENTS.md").write_text("Use tabs.")
    return root


def requests(
    workspace: Path, script: Sequence[Any], do: Callable[[Host], Awaitable[None]], agents: Sequence[NamedAgent] = AGENTS
) -> list[dict[str, Any]]:
    """Return the bodies of the requests that the model gets."""

    async def go(url: str) -> None:
        options = HostOptions(workspace, {"llm_url": url, "permission_mode": "auto"})
        host = await open_host(options, say=lambda _: None)
        host.registry.agents.sources.append(lambda: agents)
        try:
            await do(host)
        finally:
            await host.aclose()

    with ScriptedServer(script) as server:
        anyio.run(go, server.base_url)
        return [chat.body for chat in server.chats]


async def answered(session: Session, text: str) -> None:
    await session.send(Submit(message=user(text)))
    await run_until_idle(session)


def tools_of(body: dict[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in body.get("tools", ())]


def text_of(body: dict[str, Any]) -> str:
    return "\n".join(str(message.get("content") or "") for message in body["messages"])


def test_an_agent_without_tools_gets_its_own_words_and_nothing_about_a_workspace(workspace: Path) -> None:
    async def do(host: Host) -> None:
        await answered(await host.new_session(agent="companion"), "hi")

    (body,) = requests(workspace, [say("I will tell you a story soon.")], do)
    assert body["messages"][0]["content"] == "You are kind."
    assert "tools" not in body
    assert not any(word in text_of(body) for word in ("<tools>", "<environment>", "Use tabs"))


def test_an_agent_has_its_own_tools_and_those_that_it_names(workspace: Path) -> None:
    async def do(host: Host) -> None:
        session = await host.new_session(agent="researcher")
        await answered(session, "sleep")
        assert session.state.calls == {}

    script = [
        call("search_papers", query="sleep"),
        call("read", path="secret.txt"),
        call("shell", command="id"),
        say("ok"),
    ]
    first, *_, last = requests(workspace, script, do)
    assert tools_of(first) == ["read", "read_artifact", "recall", "search_papers"]
    assert (first["model"], first["temperature"]) == ("small", 0.25)
    assert "Question: sleep\nBe brief." in text_of(first)
    found, read, ran = (message["content"] for message in last["messages"] if message["role"] == "tool")
    assert found == "one paper on sleep"
    assert "secret.txt" in read
    assert "hidden" not in read
    assert "There is no tool named 'shell'" in ran


def test_an_agent_that_names_no_tools_has_all_of_them_after_its_own_words(workspace: Path) -> None:
    async def do(host: Host) -> None:
        await answered(await host.new_session(agent="coder"), "hi")
        await answered(await host.new_session(), "hi")

    coder, default = requests(workspace, [say("a"), say("b")], do)
    system = coder["messages"][0]["content"]
    assert system == f"You write Python.\n\n{default['messages'][0]['content']}"
    assert tools_of(coder) == tools_of(default)


def test_a_session_that_is_opened_again_has_its_agent(workspace: Path) -> None:
    async def do(host: Host) -> None:
        session = await host.new_session(agent="researcher")
        await answered(session, "one")
        await host.release(session.state.session)
        await answered(await host.open_session(session.state.session), "two")

    first, last = requests(workspace, [say("a"), call("search_papers", query="x"), say("b")], do)[:2]
    assert last["messages"][: len(first["messages"])] == first["messages"]
    assert (last["tools"], last["model"]) == (first["tools"], "small")
    assert "Question: two" in text_of(last)


def test_a_session_is_not_opened_without_its_agent(workspace: Path) -> None:
    left = list(AGENTS)

    async def do(host: Host) -> None:
        session = await host.new_session(agent="researcher")
        await answered(session, "one")
        await host.release(session.state.session)
        left.remove(RESEARCHER)
        with pytest.raises(ConfigError, match="no agent named 'researcher'"):
            await host.open_session(session.state.session)
        with pytest.raises(ConfigError) as unknown:
            await host.new_session(agent="codr")
        assert unknown.value.fix == "did you mean coder?"

    requests(workspace, [say("a")], do, left)


def test_an_agent_keeps_at_most_its_number_of_turns_at_a_cut(workspace: Path) -> None:
    agents = [NamedAgent("brief", system="Be brief.", tools=(), keep_turns=turns) for turns in (1, None)]

    async def do(host: Host) -> None:
        session = await host.new_session(agent="brief")
        for number in range(6):
            await answered(session, f"question {number}")
        await session.send(Compact())
        await run_until_idle(session)
        await answered(session, "last")

    def kept(agent: NamedAgent) -> list[str]:
        script = [
            *(say(f"answer {number}" + " and so on" * 90) for number in range(6)),
            say("They talked."),
            say("end"),
        ]
        *_, body = requests(workspace, script, do, [agent])
        return [message["content"][:8] for message in body["messages"] if message["role"] == "assistant"]

    few, more = map(kept, agents)
    assert few == ["answer 5"]
    assert more == ["answer 4", "answer 5"]


def test_an_agent_without_memory_begins_each_turn_anew(workspace: Path) -> None:
    forgetful = NamedAgent("forgetful", system="Be brief.", tools=(), keep_turns=0)

    async def do(host: Host) -> None:
        session = await host.new_session(agent="forgetful")
        await answered(session, "my name is Ada")
        await answered(session, "what is my name?")
        await host.release(session.state.session)
        await answered(await host.open_session(session.state.session), "and now?")

    first, second, third = requests(workspace, [say("hi"), say("unknown"), say("no")], do, [forgetful])
    assert len(first["messages"]) == len(second["messages"]) == len(third["messages"]) == 2
    assert "Ada" not in text_of(second)
    assert "what is my name?" in text_of(second)
    assert text_of(third) == text_of(second).replace("what is my name?", "and now?")


def test_a_question_of_an_agent_that_talks_waits_for_nothing(workspace: Path) -> None:
    endings = list[str]()

    async def do(host: Host) -> None:
        for name in ("talker", "companion"):
            session = await host.new_session(agent=name)
            await answered(session, "hi")
            endings.append(session.state.last_outcome)

    agents = [NamedAgent("talker", system="You chat.", tools=(), converses=True), COMPANION]
    requests(workspace, [say("And how are you?"), say("And how are you?")], do, agents)
    assert endings == ["done", "question"]


def test_a_command_lists_the_agents_and_begins_a_session_of_another_one(workspace: Path) -> None:
    async def do(host: Host) -> None:
        context = SlashContext(host, None, View())
        listed = await dispatch("/agent", context)
        assert listed.text.splitlines()[0] == "lmagent     all tools, with your settings  (current)"
        assert [choice.line for choice in listed.choices] == [
            "/agent lmagent",
            "/agent companion",
            "/agent researcher",
            "/agent coder",
        ]
        begun = (await dispatch("/agent companion", context)).session
        assert begun is not None
        assert begun.state.agent == "companion"
        again = await dispatch("/agent", SlashContext(host, begun, View()))
        assert [choice.line for choice in again.choices if choice.current] == ["/agent companion"]
        assert "agent      companion" in (await dispatch("/status", SlashContext(host, begun, View()))).text
        with pytest.raises(ConfigError) as unknown:
            await dispatch("/agent compnion", context)
        assert unknown.value.fix == "did you mean companion?"

    assert requests(workspace, [], do) == []
