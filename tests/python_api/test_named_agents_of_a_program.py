"""Agents of files and of projects in a program: what their author wrote, with the program's tools and limits."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from lmagent import Agent, ConfigError, tool
from lmagent.projects.starting import start
from lmagent.python.agent import FolderOptions
from lmagent.testing import ScriptedServer, call, say
from lmagent.testing.loopback import Received
from lmagent.testing.script import Behaviour

CLERK = """\
name = "Clerk"
description = "Knows the prices"
system_prompt = "You are the clerk."
tools = ["read", "price"]
[limits]
steps = 2
[parameters]
temperature = 0.9
"""


@tool
def price(item: str) -> str:
    """Return the price of an item."""
    return f"{item}: 5 EUR"


@tool
def stock(item: str) -> str:
    """Return how many of an item are left."""
    return f"{item}: 3"


@pytest.fixture
def home(empty_workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the user's folder of configuration, in which there is an agent."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(empty_workspace.parent / "config"))
    monkeypatch.setenv("AGENT_DATA_DIR", str(empty_workspace.parent / "data"))
    agents = empty_workspace.parent / "config" / "lmagent" / "agents"
    agents.mkdir(parents=True)
    (agents / "clerk.toml").write_text(CLERK)
    return agents.parent


@pytest.fixture
def dice(home: Path) -> Path:
    return start(home.parent.parent / "dice", "conversational")


def tools_of(received: Received) -> list[str]:
    return [each["function"]["name"] for each in received.body.get("tools", ())]


def served(script: Any, **options: Any) -> dict[str, Any]:
    return {"endpoint": script.base_url, "model": "m", "settings": {"sandbox": "off"}, **options}


def test_an_agent_of_a_file_has_its_words_and_its_tools_and_those_of_the_program(home, agent_with):
    agent = agent_with([call("stock", item="lamp"), say("Three.")], agent="clerk", tools=[price, stock], max_steps=5)
    result = agent.run_sync("How many lamps?")
    assert (result.status, result.text) == ("done", "Three.")
    first, last = agent_with.server.chats
    assert first.messages[0]["content"].startswith("You are the clerk.")
    assert sorted(tools_of(first)) == ["price", "read", "read_artifact", "recall", "stock"]
    assert first.body["temperature"] == 0.9
    assert last.messages[-1]["content"] == "lamp: 3"


def test_the_arguments_of_a_program_win_over_the_file(home, agent_with):
    script = [call("price", item=item) for item in "abcd"]
    file = agent_with(script, agent="clerk", tools=[price])
    assert file.run_sync("Prices?").status == "limit"
    options = {"sandbox": "off", "llm_temperature": 0.1}
    agent = agent_with(script, agent="clerk", tools=[price], max_steps=3, settings=options)
    result = agent.run_sync("Prices?")
    assert (result.status, result.steps) == ("limit", 3)
    assert agent_with.server.chats[0].body["temperature"] == 0.1


def test_a_sub_agent_of_a_file_has_the_tools_of_the_program_that_it_names(home, agent_with):
    def model(received: Received) -> Behaviour:
        if received.messages[0]["content"].startswith("You are the clerk."):
            return (
                call("report_result", status="complete", summary="5 EUR")
                if asked(received)
                else call("price", item="lamp")
            )
        return (
            say("It costs 5 EUR.") if asked(received) else call("delegate", agent="clerk", objective="Find the price")
        )

    def asked(received: Received) -> bool:
        return received.messages[-1]["role"] == "tool"

    agent = agent_with(model, tools=[price, stock], settings={"sandbox": "off", "max_iterations": 9})
    assert agent.run_sync("What does a lamp cost?").text == "It costs 5 EUR."
    clerk = [chat for chat in agent_with.server.chats if chat.messages[0]["content"].startswith("You are the clerk.")]
    assert "price" in tools_of(clerk[0])
    assert "stock" not in tools_of(clerk[0])
    assert clerk[-1].messages[-1]["content"] == "lamp: 5 EUR"


def test_an_unknown_agent_is_refused_with_the_known_ones(home, agent_with):
    with pytest.raises(ConfigError, match="no agent named 'clark'") as refused:
        agent_with([], agent="clark").run_sync("hi")
    assert refused.value.fix == "did you mean clerk?"
    with pytest.raises(ConfigError, match="system prompt of its own"):
        Agent(agent="clerk", system="You are mine.")


def test_a_project_is_run_with_its_prompts_tools_and_a_workspace_of_its_own(home, dice):
    script = [call("roll_dice", sides=2), call("price", item="die"), say("A one. Again?"), say("A two.")]
    with ScriptedServer(script) as server:
        agent = Agent.from_folder(dice, tools=[price], **served(server, settings={}))
        result = agent.run_sync("Roll")
        again = Agent.from_folder(dice, tools=[price], **served(server, settings={}))
        assert again.run_sync("Again", session="last").session == result.session
        first, *_, last, resumed = server.chats
    assert result.status == "done"  # it converses
    assert first.messages[0]["content"].startswith("You are dice, a companion for talks.")
    assert {"roll_dice", "days_until", "price"} <= set(tools_of(first))
    rolled, cost = (message["content"] for message in last.messages if message["role"] == "tool")
    assert '"rolled"' in rolled
    assert cost == "die: 5 EUR"
    assert resumed.messages[: len(last.messages)] == last.messages
    assert (home.parent.parent / "data" / "agents" / "dice" / "workspace" / ".lmagent" / "sessions").is_dir()


def test_a_session_of_a_project_is_not_continued_by_another_agent(home, dice, empty_workspace):
    with ScriptedServer([say("Hello.")]) as server:
        session = Agent.from_folder(dice, empty_workspace, **served(server)).run_sync("Hi").session
        with pytest.raises(ConfigError, match="no agent named 'dice'"):
            Agent(empty_workspace, **served(server)).run_sync("Hi", session=session)


@pytest.mark.parametrize("broken", ["missing", "typo"])
def test_a_project_that_cannot_be_used_is_refused_when_the_agent_is_made(home, dice, broken):
    (dice / "agent.yaml").write_text("name: dice\nparamters: {}\n")
    place, said = (dice, "agent.yaml:2:1: there is no key 'paramters'") if broken == "typo" else ("x", "no folder x")
    with pytest.raises(ConfigError, match=said):
        Agent.from_folder(place)


def test_from_folder_takes_the_arguments_of_an_agent_but_for_its_words():
    taken = set(inspect.signature(Agent).parameters) - {"workspace", "agent", "system", "builtin_tools"}
    assert set(FolderOptions.__annotations__) == taken
    assert get_type_hints(Agent.from_folder, include_extras=True, localns={**vars(sys.modules[Agent.__module__])})


KILLED = """\
import os, signal, sys
from lmagent import Agent, tool

@tool
def mark(text: str) -> str:
    "Leave a mark."
    if sys.argv[3] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return text

agent = Agent.from_folder(sys.argv[1], endpoint=sys.argv[2], model="m", tools=[mark], instructions="Be brief.")
print(agent.run_sync("Mark it").session if sys.argv[3] == "die" else agent.resume_sync("last").text)
"""


def test_a_killed_program_resumes_with_the_agent_of_the_project(home, dice):
    def model(received: Received) -> Behaviour:
        return say("Marked.") if received.messages[-1]["role"] == "tool" else call("mark", text="x")

    with ScriptedServer(model, strict=True) as server:

        def run(how: str) -> subprocess.CompletedProcess[str]:
            program = [sys.executable, "-c", KILLED, str(dice), server.base_url, how]
            env = {**os.environ, "HOME": str(home.parent.parent)}
            return subprocess.run(program, env=env, capture_output=True, text=True, timeout=120, check=False)

        assert run("die").returncode == -signal.SIGKILL
        done = run("resume")
        assert (done.stdout, done.returncode) == ("Marked.\n", 0), done.stderr
        first, last = server.chats[0], server.chats[-1]
        assert server.prefix.breaks == []
    assert first.messages[0]["content"].startswith("You are dice")
    assert "Be brief." in str(first.messages)
    assert last.body["tools"] == first.body["tools"]
