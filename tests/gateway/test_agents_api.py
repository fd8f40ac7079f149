"""Agents over HTTP: those that can be chosen, sessions of them, and a gateway that serves an agent project."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from gateway_kit import Running, gateway, until

from lmagent.projects.starting import start
from lmagent.testing.script import call, say

CLERK = """\
name = "Clerk"
description = "Knows the prices"
system_prompt = "You are the clerk."
model = "small"
tools = []
[permissions]
mode = "manual"
"""


def write_agent(folder: Path, name: str, text: str) -> Path:
    """Write a file of the user of a gateway that is an agent."""
    file = folder / "home" / ".config" / "lmagent" / "agents" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("agents")
    write_agent(folder, "clerk.toml", CLERK)
    with gateway(folder, lambda _: say("Five.")) as started:
        yield started


def test_the_agents_that_can_be_chosen_are_listed_with_their_places(running: Running):
    listed = running.ask("GET", "/api/agents").json
    assert listed["current"] == "lmagent"
    default, clerk = listed["agents"]
    assert default == {
        "name": "lmagent",
        "title": "lmagent",
        "description": "all tools, with your settings",
        "source": "",
        "mode": "normal",
        "model": "scripted",
    }
    place = str(running.folder / "home" / ".config" / "lmagent" / "agents" / "clerk.toml")
    assert clerk == {
        "name": "clerk",
        "title": "Clerk",
        "description": "Knows the prices",
        "source": place,
        "mode": "manual",
        "model": "scripted",  # typed, which wins
    }
    file = write_agent(running.folder, "poet.md", "---\nname: poet\ndescription: Rhymes\n---\nYou rhyme.\n")
    assert [row["name"] for row in running.ask("GET", "/api/agents").json["agents"]] == ["lmagent", "clerk", "poet"]
    file.unlink()


def test_a_session_begins_with_the_agent_that_was_asked_for_and_every_list_names_it(running: Running):
    session = running.ask("POST", "/api/sessions", {"agent": "clerk", "title": "Prices"}).json["session"]
    message = {"role": "user", "parts": [{"type": "text", "text": "What does a lamp cost?"}]}
    running.ask("POST", f"/api/sessions/{session}/commands", {"type": "submit", "message": message})
    until(lambda: running.ask("GET", f"/api/sessions/{session}").json["status"] == "done")
    assert running.model.chats[-1].messages[0]["content"] == "You are the clerk."
    other = running.ask("POST", "/api/sessions", {}).json["session"]
    rows = {row["id"]: row["agent"] for row in running.ask("GET", "/api/sessions").json["sessions"]}
    assert (rows[session], rows[other]) == ("clerk", "lmagent")
    view = running.ask("GET", f"/api/sessions/{session}/view").json["view"]
    assert (view["agent"], view["mode"]) == ("clerk", "manual")


def test_an_unknown_agent_is_refused_with_the_known_ones(running: Running):
    before = len(running.ask("GET", "/api/sessions").json["sessions"])
    for name, fix in (("clark", "did you mean clerk?"), ("zzz", "the agents here are: clerk;")):
        answer = running.ask("POST", "/api/sessions", {"agent": name})
        assert (answer.status, answer.json["error"]["code"]) == (400, "invalid")
        assert answer.json["error"]["message"] == f"there is no agent named '{name}' here"
        assert answer.json["error"]["fix"].startswith(fix)
    assert running.ask("POST", "/api/sessions", {"agent": "x" * 201}).status == 400
    assert len(running.ask("GET", "/api/sessions").json["sessions"]) == before


def test_a_gateway_of_a_project_has_its_agent_alone(tmp_path: Path):
    write_agent(tmp_path, "clerk.toml", CLERK)
    project = start(tmp_path / "dice-master", "conversational")
    (project / "agent.yaml").write_text((project / "agent.yaml").read_text().replace('"dice-master"', '"Dice Master"'))
    with gateway(tmp_path, [call("roll_dice"), say("A four. Again?")], project=project) as running:
        said = "".join(running.said)
        assert f"serves the agent Dice Master in {running.workspace}" in said
        assert f"{running.url}/v1, model agent/dice-master; lmagent web token prints its key" in said
        listed = running.ask("GET", "/api/agents").json
        assert (listed["current"], [row["name"] for row in listed["agents"]]) == ("dice-master", ["dice-master"])
        assert listed["agents"][0]["source"] == str(project)
        me, status = running.ask("GET", "/api/me").json, running.ask("GET", "/api/status").json
        assert (me["agent"], me["title"], status["agent"]) == ("dice-master", "Dice Master", "dice-master")
        models = [row["id"] for row in running.ask("GET", "/v1/models").json["data"]]
        assert models[:2] == ["agent/lmagent", "agent/dice-master"]
        assert "agent/clerk" not in models
        for name in ("lmagent", "clerk"):
            answer = running.ask("POST", "/api/sessions", {"agent": name})
            assert (answer.status, answer.json["error"]["fix"]) == (400, "the only agent here is dice-master")
        body = {"model": "agent/lmagent", "messages": [{"role": "user", "content": "Roll"}]}
        assert running.ask("POST", "/v1/chat/completions", body).json["choices"][0]["message"]["content"].endswith("?")
        (row,) = running.ask("GET", "/api/sessions").json["sessions"]
        assert (row["agent"], row["status"], row["waiting_for"]) == ("dice-master", "done", "")


def test_a_command_of_the_page_begins_a_session_of_an_agent(running: Running):
    listed = running.ask("POST", "/api/slash", {"line": "/agent"}).json
    assert "clerk    Knows the prices" in listed["text"]
    begun = running.ask("POST", "/api/slash", {"line": "/agent clerk"}).json
    assert running.ask("GET", f"/api/sessions/{begun['session']}").json["agent"] == "clerk"
