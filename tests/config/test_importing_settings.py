from __future__ import annotations

import json
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
from config_machine import Machine, write

from lmagent.config.compat import ImportReport, import_file
from lmagent.config.loader import Loaded
from lmagent.core.errors import ConfigError

AGENT_COMPUTER: dict[str, Any] = {
    "gateway": {"host": "0.0.0.0", "port": 8000},
    "agent": {
        "name": "agent_computer Agent",
        "workspace": "./workspace",
        "model": {
            "provider": "lmstudio",
            "model_id": "qwen2.5-coder",
            "base_url": "http://10.5.0.2:1234/v1",
            "max_tokens": 8192,
        },
        "tools": {"allow": ["shell", "read_file"], "require_approval": ["shell", "write_file"]},
        "max_loop_iterations": 15,
        "deep_work": {"max_iterations": 200, "token_budget": 1500000, "warning_threshold": 0.8},
        "non_interactive_approval_policy": "auto_approve",
    },
    "sessions": {"directory": "./sessions", "max_history_tokens": 100000},
    "reflection": {"enabled": True},
    "memory": {"enabled": True, "embedding_base_url": "http://10.5.0.2:1234/v1"},
}


@pytest.fixture
def loaded(machine: Machine) -> Loaded:
    return machine.load()


def take(machine: Machine, loaded: Loaded, name: str, content: object) -> ImportReport:
    text = content if isinstance(content, str) else json.dumps(content)
    return import_file(write(machine.home / "old" / name, text), loaded)


def test_agent_computers_config_is_taken_over_and_what_is_left_is_said(machine: Machine, loaded: Loaded) -> None:
    report = take(machine, loaded, "config.json", AGENT_COMPUTER)
    settings = machine.load().settings
    assert settings.llm_url == "http://10.5.0.2:1234/v1"
    assert settings.llm_model == "qwen2.5-coder"
    assert settings.llm_max_tokens == 8192
    assert (settings.max_iterations, settings.bounded_steps) == (500, 15)
    assert (settings.web_host, settings.web_port) == ("0.0.0.0", 8000)
    assert settings.tools_allow == ("shell", "read")
    assert settings.summarization_threshold == 100_000
    assert settings.permission_ask == ("shell", "write")
    assert settings.permission_mode == "normal"
    assert settings.workspace == machine.home / "old" / "workspace"
    assert ("agent.max_loop_iterations", f"bounded_steps in {loaded.config_file}") in report.taken
    left = dict(report.left)
    assert (settings.deep_steps, settings.deep_tokens) == (200, 1_500_000)
    assert {"agent.name", "agent.deep_work.warning_threshold", "sessions.directory"} <= set(left)
    assert "lmagent sessions import FOLDER" in left["sessions.directory"]
    assert (settings.reflection, settings.enable_memory) == ("idle", True)
    assert settings.embedding_url == "http://10.5.0.2:1234/v1"
    assert "denied" in left["agent.non_interactive_approval_policy"]
    assert all(left.values())


def test_an_openrouter_provider_becomes_its_url_and_its_key_a_secret(machine: Machine, loaded: Loaded) -> None:
    model = {
        "provider": "openrouter",
        "model_id": "a/b",
        "base_url": "http://10.5.0.2:1234/v1",
        "api_key": "sk-or-secret",
    }
    report = take(machine, loaded, "config.json", {"agent": {"model": model}})
    settings = machine.load().settings
    assert settings.endpoint == "https://openrouter.ai/api/v1"
    assert settings.key == "sk-or-secret"
    assert "sk-or-secret" not in loaded.config_file.read_text()
    assert "sk-or-secret" not in repr(report)
    assert stat.S_IMODE(loaded.env_file.stat().st_mode) == 0o600


def test_an_openrouter_key_in_a_table_of_providers_is_found(machine: Machine, loaded: Loaded) -> None:
    take(machine, loaded, "config.json", {"agent": {}, "providers": {"openrouter": {"api_key": "sk-or-1"}}})
    assert machine.load().settings.openrouter_api_key == "sk-or-1"


def test_a_value_that_is_not_allowed_stops_the_import_before_anything_is_written(
    machine: Machine, loaded: Loaded
) -> None:
    agent = {"max_loop_iterations": 9, "model": {"model_id": "your-model-id", "base_url": "nowhere"}}
    with pytest.raises(ConfigError, match=r"agent.model.base_url in .*config.json must be a URL"):
        take(machine, loaded, "config.json", {"agent": agent})
    with pytest.raises(ConfigError, match=r"MAX_ERRORS in .*\.env must be a whole number"):
        take(machine, loaded, ".env", "LLM_MODEL=m\nMAX_ERRORS=lots\n")
    assert not loaded.config_file.exists()


def test_a_placeholder_is_left(machine: Machine, loaded: Loaded) -> None:
    report = take(machine, loaded, "config.json", {"agent": {"model": {"model_id": "your-model-id"}}})
    assert report == ImportReport((), (("agent.model.model_id", "it is a placeholder"),))


def test_an_env_file_goes_to_the_config_and_its_secrets_to_the_users_env_file(machine: Machine, loaded: Loaded) -> None:
    machine.user_config("# mine\nmax_errors = 9\n")
    machine.user_env("OTHER=1\n")
    report = take(
        machine,
        loaded,
        ".env",
        'WORKSPACE="~/ws"\nLLM_URL="http://localhost:1234/v1/chat/completions"\nLLM_API_KEY="sk-secret"\nLLM_MODEL=""\n'
        "PERMISSION_MODE=auto\nTEMPERATURE=0.9\nLLM_TEMPERATURE=0.2\nLLM_MAX_TOKENS=-1\nENABLE_MCP=false\nMAX_FILE_READ=9\n"
        "DATABASE_URL=postgres://u:p@h/d\nLLM_TIMEOUT=\nsome nonsense\n",
    )
    (machine.home / "ws").mkdir()
    settings = machine.load().settings
    assert settings.workspace == machine.home / "ws"
    assert settings.llm_url.endswith("/v1/chat/completions")
    assert settings.llm_temperature == 0.2
    assert settings.llm_max_tokens is None
    assert settings.permission_mode == "auto"
    assert settings.max_errors == 9
    assert settings.llm_api_key == "sk-secret"
    assert loaded.env_file.read_text() == "OTHER=1\nLLM_API_KEY=sk-secret\n"
    assert "# mine" in loaded.config_file.read_text()
    assert "sk-secret" not in loaded.config_file.read_text()
    left = dict(report.left)
    assert settings.enable_mcp is False
    assert "every tool result is capped" in left["MAX_FILE_READ"]
    assert "it is no setting of lmagent" in left["DATABASE_URL"]
    assert set(left) == {"TEMPERATURE", "LLM_TIMEOUT", "DATABASE_URL", "MAX_FILE_READ", "some"}


def test_a_placeholder_key_is_not_kept_as_a_secret(machine: Machine, loaded: Loaded) -> None:
    report = take(machine, loaded, ".env", "LLM_API_KEY=lm-studio\n")
    assert report.taken == ()
    assert not loaded.env_file.exists()


@pytest.mark.parametrize("key", ["mcpServers", "servers"])
def test_mcp_servers_join_those_of_the_workspace(machine: Machine, loaded: Loaded, key: str) -> None:
    target = write(machine.cwd / ".lmagent" / "mcp.json", '{"mcpServers": {"git": {"command": "mine"}}, "x": 1}')
    servers = {
        "git": {"command": "theirs"},
        "brave": {"command": "npx", "args": ["-y", "server"], "env": {"BRAVE_API_KEY": "k"}},
        "remote": {"url": "https://mcp.example/"},
        "bad": {"command": 5},
        "worse": "text",
        "args": {"command": "x", "args": "-y"},
        "env": {"command": "x", "env": {"A": 1}},
    }
    report = take(machine, loaded, "mcp.json", {key: servers})
    assert report.taken == (("brave", str(target)), ("remote", str(target)))
    assert {name for name, _ in report.left} == {"git", "bad", "worse", "args", "env"}
    written = json.loads(target.read_text())
    assert written["x"] == 1
    assert written["mcpServers"] == {
        "git": {"command": "mine"},
        "brave": servers["brave"],
        "remote": servers["remote"],
    }
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


@pytest.mark.parametrize("wrapped", [False, True])
def test_jobs_join_those_of_the_workspace(machine: Machine, loaded: Loaded, wrapped: bool) -> None:
    target = write(machine.cwd / ".lmagent" / "cron.json", '[{"id": "a", "schedule": "hourly :15", "prompt": "old"}]')
    good = {"id": "b", "name": "B", "schedule": "daily 09:00", "prompt": "p", "session_id": "s", "enabled": False}
    jobs = [{"id": "a", "schedule": "startup", "prompt": "p"}, good, good, {"id": "c", "schedule": ""}, 5]
    report = take(machine, loaded, "cron.json", {"jobs": jobs} if wrapped else jobs)
    assert report.taken == (("b", str(target)),)
    assert [what for what, _ in report.left] == ["a", "b", "c", "job 5"]
    assert json.loads(target.read_text())[1:] == [good]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("config.json", "{", "not valid JSON"),
        ("config.json", '{"x": 1}', "nothing that can be taken over"),
        ("config.json", "5", "nothing that can be taken over"),
        ("mcp.json", '{"mcpServers": []}', "nothing that can be taken over"),
    ],
)
def test_a_file_that_is_nothing_we_know_says_what_is_accepted(
    machine: Machine, loaded: Loaded, name: str, content: str, expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected) as caught:
        take(machine, loaded, name, content)
    assert caught.value.fix


def test_a_missing_file_and_a_damaged_target_are_clear_errors(machine: Machine, loaded: Loaded) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        import_file(machine.home / "gone.json", loaded)
    machine.user_config("max_errors = \n")
    with pytest.raises(ConfigError, match=r"config.toml cannot be updated: .*line 1"):
        take(machine, loaded, ".env", "MAX_ERRORS=3\n")
    write(machine.cwd / ".lmagent" / "cron.json", "[")
    with pytest.raises(ConfigError, match=r"\.lmagent/cron.json is not valid JSON"):
        take(machine, loaded, "cron.json", [{"id": "a", "schedule": "startup", "prompt": "p"}])


def test_nothing_is_written_through_a_linked_lmagent_folder(machine: Machine, loaded: Loaded, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (machine.cwd / ".lmagent").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="is a link"):
        take(machine, loaded, "mcp.json", {"mcpServers": {"a": {"command": "x"}}})
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_importing_twice_changes_nothing(machine: Machine, loaded: Loaded) -> None:
    take(machine, loaded, "config.json", AGENT_COMPUTER)
    once = loaded.config_file.read_text()
    take(machine, loaded, "config.json", AGENT_COMPUTER)
    assert loaded.config_file.read_text() == once
    assert tomllib.loads(once)["bounded_steps"] == 15
