"""Arguments that are wrong are refused at once, under the name that the program used."""

from __future__ import annotations

import os
from typing import Any

import pytest

from lmagent import Agent, ConfigError
from lmagent.testing import call, say


@pytest.mark.parametrize(
    ("options", "why", "fix"),
    [
        ({"permission": "always"}, "permission must be auto, normal or manual, not 'always'", "correct it"),
        ({"max_steps": 0}, "max_steps must be a whole number of at least 1, not 0", "correct it"),
        ({"endpoint": "localhost:1234"}, "endpoint must be a URL such as", "correct it"),
        (
            {"settings": {"llm_temprature": 1}},
            "there is no setting 'llm_temprature'",
            "did you mean 'llm_temperature'?",
        ),
        ({"settings": {"LLM_TEMPERATURE": 1}}, "there is no setting", "did you mean 'llm_temperature'?"),
        (
            {"settings": {"llm_temperature": 9}},
            r"settings\['llm_temperature'\] must be a number from 0 to 5",
            "correct",
        ),
        ({"settings": {"workspace": "x"}}, "the workspace is an argument of its own", r"Agent\(workspace="),
        (
            {"model": "a", "settings": {"llm_model": "b"}},
            r"model= and settings\['llm_model'\] set the same",
            "leave one",
        ),
        ({"builtin_tools": [], "settings": {"tools_allow": ["read"]}}, "set the same", "leave one"),
        ({"tools": [int]}, "which is no function", "give functions"),
        ({"tools": ["price"]}, "tools holds 'price', which is no function", "give functions"),
        ({"approve": "always"}, "approve must be a function, 'events' or None", ""),
        ({"instructions": "x" * 9000}, "instructions have 9,000 characters", ""),
    ],
)
def test_a_wrong_argument_is_refused_when_the_agent_is_made(options: dict[str, Any], why: str, fix: str):
    with pytest.raises(ConfigError, match=why) as refused:
        Agent(**options)
    assert fix.replace("\\", "") in refused.value.fix


def test_an_empty_task_is_refused():
    with pytest.raises(ConfigError, match="the task is empty"):
        Agent().run_sync(" ")


def test_a_replay_without_a_cassette_is_refused(empty_workspace):
    with pytest.raises(ConfigError, match="no cassette is replayed"):
        _ = Agent().replay_report
    with pytest.raises(ConfigError, match="cannot be read"):
        Agent(empty_workspace, replay=empty_workspace / "missing.jsonl").run_sync("hi")


def test_none_in_the_settings_means_that_there_is_no_value(agent_with):
    agent_with([say("hi")], settings={"llm_temperature": None, "sandbox": "off"}).run_sync("hi")
    assert "temperature" not in agent_with.server.chats[0].fields


def test_the_number_of_steps_can_be_limited(agent_with):
    (agent_with.workspace / "a.txt").write_text("hello\n")
    agent = agent_with(lambda _: call("read", path="a.txt"), max_steps=2)
    result = agent.run_sync("Read a.txt for ever")
    assert (result.status, result.steps) == ("limit", 2)


def test_a_workspace_is_the_same_folder_after_the_program_has_changed_its_own(agent_with, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    agent_with([say("hi")])
    agent = Agent("workspace", endpoint=agent_with.server.base_url, model="m")
    os.chdir("/")
    agent.run_sync("hi")
    assert (agent_with.workspace / ".lmagent" / "sessions").is_dir()


def test_the_tilde_is_the_home_folder(agent_with):
    agent_with([say("hi")])
    assert Agent("~/workspace", endpoint=agent_with.server.base_url, model="m").run_sync("hi").status == "done"
