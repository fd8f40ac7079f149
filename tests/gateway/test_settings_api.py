"""Settings over HTTP: all are shown with their origin, and changed only where that widens nothing."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from gateway_kit import Running, gateway

from lmagent.config.settings import SETTINGS
from lmagent.testing.script import say

CONFIG = "home/.config/lmagent/config.toml"


def settings(running: Running) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in running.ask("GET", "/api/settings").json["settings"]}


def change(running: Running, name: str, value: str | None) -> Any:
    return running.ask("POST", "/api/settings", {"name": name, "value": value})


def test_every_setting_is_listed_with_value_origin_and_meaning(tmp_path):
    with gateway(tmp_path, LLM_TEMPERATURE="0.4", LLM_API_KEY="sk-very-secret") as running:
        found = settings(running)
        assert list(found) == [field.name for field in SETTINGS]
        row = found["llm_temperature"]
        assert (row["value"], row["layer"], row["default"]) == ("0.4", "environment", "0.65")
        assert row["help"].startswith("Sampling temperature")
        assert found["llm_url"]["layer"] == "flag"
        assert found["llm_api_key"]["value"] == "(set, 14 characters)"
        assert "sk-very-secret" not in running.ask("GET", "/api/settings").body.decode()


def test_a_change_is_kept_in_the_users_file_beside_what_is_there(tmp_path):
    file = tmp_path / CONFIG
    file.parent.mkdir(parents=True)
    file.write_text('# mine\ntheme = "dark"\n')
    with gateway(tmp_path, [say("one"), say("two")]) as running:
        answer = change(running, "llm_temperature", "0.2")
        assert (answer.status, answer.json["effect"]) == (200, "sessions"), answer.body
        assert file.read_text() == '# mine\ntheme = "dark"\nllm_temperature = 0.2\n'
        running.ask("POST", "/api/chat/new", {"message": "hi"})
        assert running.model.chats[-1].fields["temperature"] == 0.2
        row = settings(running)["llm_temperature"]
        assert (row["value"], row["layer"], row["yours"], row["pending"]) == ("0.2", "user config", True, False)
        assert change(running, "llm_temperature", None).json["row"]["value"] == "0.65"
        assert tomllib.loads(file.read_text()) == {"theme": "dark"}
        running.ask("POST", "/api/chat/newer", {"message": "hi"})
        assert running.model.chats[-1].fields["temperature"] == 0.65


def test_a_setting_that_is_read_at_the_start_says_that_it_waits_for_one(tmp_path):
    with gateway(tmp_path) as running:
        answer = change(running, "scheduler_lanes", "3").json
        assert (answer["effect"], answer["row"]["pending"]) == ("restart", True)
        running.stop()
        running.start()
        row = settings(running)["scheduler_lanes"]
        assert (row["value"], row["pending"]) == ("3", False)


def test_a_change_that_another_place_wins_over_names_that_place(tmp_path):
    with gateway(tmp_path, LLM_TEMPERATURE="0.4") as running:
        answer = change(running, "llm_temperature", "0.2").json
        assert (answer["effect"], answer["row"]["value"]) == ("hidden", "0.4")
        assert answer["hidden_by"] == "LLM_TEMPERATURE in the environment"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with gateway(tmp_path_factory.mktemp("settings")) as started:
        yield started


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("llm_api_key", "sk-x"),
        ("web_pin", "1"),
        ("llm_url", "http://evil.example/v1"),
        ("permission_allow", "shell(*)"),
        ("permission_deny", ""),
        ("sandbox", "off"),
        ("sandbox_hosts", "*:443"),
        ("notify_command", "touch /tmp/x"),
        ("own_shell", "true"),
        ("check_commands", "true"),
        ("shipped_rules", "false"),
        ("workspace", "/"),
        ("approve_plans", "true"),
        ("permission_mode", "auto"),
        ("permission_mode", "manual"),
        ("enable_shell", "true"),
        ("system", "Obey."),
    ],
)
def test_what_guards_the_user_is_not_changed_from_the_page(running, name, value):
    answer = change(running, name, value)
    assert answer.status == 400
    assert str(running.folder / CONFIG) in answer.json["error"]["fix"]
    assert not (running.folder / CONFIG).exists()


def test_what_is_wrong_with_a_value_is_said_and_nothing_is_written(running):
    answer = change(running, "llm_temperature", "hot")
    assert answer.status == 400
    assert "llm_temperature must be a number from 0 to 5, or none, not 'hot'" in answer.json["error"]["message"]
    assert "did you mean theme?" in change(running, "themes", "dark").json["error"]["fix"]
    assert not (running.folder / CONFIG).exists()


def test_a_damaged_file_is_named_and_left_as_it_is(running):
    file = running.folder / CONFIG
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("theme = \n")
    for answer in (running.ask("GET", "/api/settings"), change(running, "theme", "dark")):
        assert answer.status == 400
        assert str(file) in answer.json["error"]["message"]
    assert file.read_text() == "theme = \n"
    file.unlink()
