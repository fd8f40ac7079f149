from __future__ import annotations

import stat
from pathlib import Path

import pytest
from config_machine import Machine, write

from lmagent.config.trust import is_trusted, trust, trust_file, untrust
from lmagent.core.errors import ConfigError


def test_a_folder_may_not_switch_on_auto_mode(machine: Machine) -> None:
    path = machine.workspace_config('permission_mode = "auto"\n')
    loaded = machine.load()
    assert loaded.settings.permission_mode == "normal"
    assert loaded.origins["permission_mode"].layer == "default"
    (warning,) = loaded.warnings
    assert str(path) in warning.text
    assert "held back" in warning.text
    assert warning.fix.endswith(f"lmagent config trust {machine.cwd}")


def test_the_env_file_of_a_folder_may_not_either_wherever_it_is_read_from(machine: Machine, tmp_path: Path) -> None:
    machine.workspace_env("PERMISSION_MODE=auto\n")
    assert machine.load().settings.permission_mode == "normal"
    assert machine.load({"workspace": tmp_path}).settings.permission_mode == "normal"


def test_a_folder_may_ask_for_more_caution(machine: Machine) -> None:
    machine.user_config('permission_mode = "auto"\n')
    machine.workspace_config('permission_mode = "manual"\npermission_deny = ["write"]\npermission_ask = ["read(x)"]\n')
    loaded = machine.load()
    assert loaded.settings.permission_mode == "manual"
    assert loaded.settings.permission_deny == ("write",)
    assert loaded.settings.permission_ask == ("read(x)",)
    assert loaded.warnings == ()


def test_the_users_environment_and_flags_go_before_a_folders_caution(machine: Machine) -> None:
    machine.workspace_config('permission_mode = "manual"\n')
    assert machine.load(PERMISSION_MODE="normal").settings.permission_mode == "normal"
    assert machine.load({"permission_mode": "auto"}).settings.permission_mode == "auto"


def test_a_folder_may_not_allow_anything_nor_take_a_users_rule_away(machine: Machine) -> None:
    machine.user_config('permission_deny = ["write(secrets/**)"]\n')
    machine.workspace_config('permission_allow = ["*"]\npermission_deny = []\n')
    loaded = machine.load()
    assert loaded.settings.permission_allow == ()
    assert loaded.settings.permission_deny == ("write(secrets/**)",)
    assert "permission_allow" in loaded.warnings[0].text


def test_a_folder_may_lower_a_budget_and_not_raise_it(machine: Machine) -> None:
    machine.user_config("max_session_tokens = 1000\nmax_iterations = 50\n")
    machine.workspace_config("max_session_tokens = 900\nmax_iterations = 60\nmax_turn_seconds = 5\n")
    loaded = machine.load()
    assert loaded.settings.max_session_tokens == 900
    assert loaded.settings.max_iterations == 50
    assert loaded.settings.max_turn_seconds == 5
    machine.workspace_config('max_session_tokens = "none"\n')
    assert machine.load().settings.max_session_tokens == 1000


def test_a_folder_cannot_have_the_users_key_sent_to_its_server(machine: Machine) -> None:
    machine.workspace_env("LLM_URL=http://127.0.0.1:9999/v1\n")
    loaded = machine.load(LLM_API_KEY="sk-users-own")
    assert loaded.settings.llm_url == ""
    (warning,) = loaded.warnings
    assert "it would send your key (LLM_API_KEY in the environment) to 127.0.0.1" in warning.text
    assert "sk-users-own" not in warning.text


def test_a_link_to_the_users_env_file_does_not_make_the_key_the_folders(machine: Machine) -> None:
    (machine.cwd / ".env").symlink_to(machine.user_env("LLM_API_KEY=sk-users-own\n"))
    machine.workspace_config('llm_url = "http://localhost:9999/v1"\n')
    loaded = machine.load()
    assert loaded.settings.llm_url == ""
    assert any("it would send your key" in warning.text for warning in loaded.warnings)


@pytest.mark.parametrize("key", ["", "lm-studio", "ollama"])
def test_a_folder_may_name_a_server_on_this_machine_where_no_key_is_at_stake(machine: Machine, key: str) -> None:
    machine.workspace_env("LLM_URL=http://localhost:11434/v1\n")
    loaded = machine.load(LLM_API_KEY=key)
    assert loaded.settings.endpoint == "http://localhost:11434/v1"
    assert loaded.warnings == ()


def test_a_folder_may_name_a_server_on_this_machine_with_a_key_of_its_own(machine: Machine) -> None:
    machine.workspace_env("LLM_URL=http://localhost:8000/v1\nLLM_API_KEY=sk-of-the-folder\n")
    settings = machine.load().settings
    assert (settings.endpoint, settings.key) == ("http://localhost:8000/v1", "sk-of-the-folder")


def test_a_folder_cannot_blank_the_users_server_out(machine: Machine) -> None:
    machine.user_config('llm_url = "https://models.example/v1"\n')
    machine.workspace_config('llm_url = ""\n')
    assert machine.load().settings.endpoint == "https://models.example/v1"


@pytest.mark.parametrize("variable", ["LLM_URL", "LLM_BASE_URL", "LM_API_URL", "AGENT_MODEL_URL"])
@pytest.mark.parametrize(
    "url", ["https://models.example/v1", "http://192.168.1.5:1234/v1", "http://127.0.0.1.example/"]
)
def test_a_folder_cannot_have_what_is_typed_sent_to_another_machine(machine: Machine, variable: str, url: str) -> None:
    machine.workspace_env(f"{variable}={url}\nLLM_API_KEY=sk-of-the-folder\n")
    loaded = machine.load()
    assert loaded.settings.given_endpoint == ""
    assert any("it would send what you type to" in warning.text for warning in loaded.warnings)


def test_a_folders_key_is_not_used_at_the_users_server(machine: Machine) -> None:
    machine.workspace_env("LLM_API_KEY=sk-of-the-folder\nOPENROUTER_API_KEY=sk-or-of-the-folder\n")
    loaded = machine.load(LLM_URL="https://models.example/v1")
    assert loaded.settings.key == "lm-studio"
    assert loaded.settings.openrouter_api_key == ""
    assert len(loaded.warnings) == 2
    assert "of-the-folder" not in repr(loaded.warnings)


def test_the_users_own_env_file_may_say_anything(machine: Machine) -> None:
    machine.user_env("PERMISSION_MODE=auto\nLLM_URL=https://models.example/v1\nLLM_API_KEY=sk-mine\n")
    loaded = machine.load()
    assert loaded.settings.permission_mode == "auto"
    assert (loaded.settings.endpoint, loaded.settings.key) == ("https://models.example/v1", "sk-mine")
    assert loaded.warnings == ()


def test_once_trusted_a_folders_files_count_whole(machine: Machine) -> None:
    machine.workspace_config('permission_mode = "auto"\npermission_allow = ["write"]\n')
    machine.workspace_env("LLM_URL=https://models.example/v1\n")
    held = machine.load(LLM_API_KEY="sk-mine")
    assert len(held.warnings) == 3
    assert trust(held.settings.agent_data_dir, machine.cwd) == (".lmagent/config.toml", ".env")
    loaded = machine.load(LLM_API_KEY="sk-mine")
    assert loaded.warnings == ()
    assert loaded.settings.permission_mode == "auto"
    assert (loaded.settings.endpoint, loaded.settings.key) == ("https://models.example/v1", "sk-mine")


def test_trust_ends_when_a_file_changes_and_the_warning_says_so(machine: Machine) -> None:
    machine.workspace_env("PERMISSION_MODE=auto\n")
    trust(machine.data, machine.cwd)
    assert machine.load().settings.permission_mode == "auto"
    machine.workspace_env("PERMISSION_MODE=auto\nLLM_URL=https://elsewhere.example/v1\n")
    loaded = machine.load()
    assert loaded.settings.permission_mode == "normal"
    assert all("changed since you trusted the folder" in warning.text for warning in loaded.warnings)
    trust(machine.data, machine.cwd)
    assert machine.load().settings.permission_mode == "auto"


def test_trust_is_for_the_folder_itself_not_for_those_in_it_and_links_are_resolved(
    machine: Machine, tmp_path: Path
) -> None:
    trust(machine.data, tmp_path)
    assert is_trusted(machine.data, tmp_path)
    assert not is_trusted(machine.data, machine.cwd)
    (tmp_path / "link").symlink_to(machine.cwd)
    trust(machine.data, tmp_path / "link")
    assert is_trusted(machine.data, machine.cwd)


def test_trust_can_be_taken_back(machine: Machine) -> None:
    trust(machine.data, machine.cwd)
    assert is_trusted(machine.data, machine.cwd)
    assert untrust(machine.data, machine.cwd)
    assert not untrust(machine.data, machine.cwd)
    assert not is_trusted(machine.data, machine.cwd)


def test_the_list_of_trusted_folders_is_the_users_alone(machine: Machine) -> None:
    trust(machine.data, machine.cwd)
    assert stat.S_IMODE(trust_file(machine.data).stat().st_mode) == 0o600


def test_a_folder_cannot_say_where_the_list_of_trusted_folders_lies(machine: Machine) -> None:
    evil = machine.cwd / "data"
    machine.workspace_env(f"AGENT_DATA_DIR={evil}\nPERMISSION_MODE=auto\n")
    trust(evil, machine.cwd)
    loaded = machine.load()
    assert loaded.settings.agent_data_dir == machine.data
    assert loaded.settings.permission_mode == "normal"
    assert any("agent_data_dir" in warning.text and "ignored" in warning.text for warning in loaded.warnings)


def test_a_damaged_list_of_trusted_folders_is_an_error_and_trusts_nobody(machine: Machine) -> None:
    write(trust_file(machine.data), "{")
    machine.workspace_env("PERMISSION_MODE=auto\n")
    with pytest.raises(ConfigError, match="is damaged"):
        machine.load()


def test_a_workspaces_own_files_cannot_move_the_workspace(machine: Machine, tmp_path: Path) -> None:
    machine.workspace_config(f"workspace = '{tmp_path}'\n")
    loaded = machine.load()
    assert loaded.settings.workspace == machine.cwd
    assert "the workspace is chosen before its own files are read" in loaded.warnings[0].text
