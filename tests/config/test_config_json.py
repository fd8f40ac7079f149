from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from config_machine import Machine, write

from lmagent.config.compat import KEYS
from lmagent.config.paths import own_places
from lmagent.config.show import rows
from lmagent.config.trust import trust
from lmagent.core.errors import ConfigError

DOCUMENTED: dict[str, Any] = {
    "gateway": {"host": "0.0.0.0", "port": 8000},
    "agent": {
        "name": "agent_computer Agent",
        "workspace": "./workspace",
        "model": {
            "provider": "lmstudio",
            "model_id": "qwen3-8b",
            "base_url": "http://10.5.0.2:1234/v1",
            "max_tokens": 8192,
        },
        "tools": {
            "allow": ["shell", "read_file", "web_fetch", "manage_tasks"],
            "require_approval": ["shell", "web_fetch", "write_file"],
        },
        "max_loop_iterations": 15,
        "deep_work": {"max_iterations": 200, "token_budget": 1500000, "warning_threshold": 0.8},
    },
    "sessions": {"directory": "./sessions", "max_history_tokens": 100000},
    "reflection": {"enabled": True, "model_id": "", "max_tokens": 4096, "max_sessions_per_startup": 10},
    "memory": {"enabled": True, "embedding_base_url": "http://10.5.0.2/v1", "embedding_model": "nomic", "top_k": 5},
}


def put(machine: Machine, document: object = DOCUMENTED, name: str = "config.json") -> Path:
    return write(machine.cwd / name, document if isinstance(document, str) else json.dumps(document, indent=2))


def trusting(machine: Machine, document: object = DOCUMENTED) -> Path:
    path = put(machine, document)
    trust(machine.data, machine.cwd)
    return path


def agent(**keys: object) -> dict[str, Any]:
    return {"agent": keys}


def test_a_named_file_sets_what_its_keys_mean_here(machine: Machine) -> None:
    path = put(machine, name="mine.json")
    (machine.cwd / "workspace").mkdir()
    loaded = machine.load(LMAGENT_CONFIG_JSON="mine.json")
    settings = loaded.settings
    assert (settings.web_host, settings.web_port) == ("0.0.0.0", 8000)
    assert settings.workspace == machine.cwd / "workspace"
    assert (settings.llm_url, settings.llm_model) == ("http://10.5.0.2:1234/v1", "qwen3-8b")
    assert settings.llm_max_tokens == 8192
    assert settings.tools_allow[:3] == ("shell", "read", "web_fetch")
    assert {"todo_add", "todo_complete"} < set(settings.tools_allow)
    assert settings.permission_ask == ("shell", "web_fetch", "write")
    assert (settings.bounded_steps, settings.max_iterations) == (15, 500)
    assert (settings.deep_steps, settings.deep_tokens) == (200, 1_500_000)
    assert settings.summarization_threshold == 100_000
    assert str(loaded.origins["llm_model"]) == f"agent.model.model_id in {path}"
    assert path in loaded.files
    assert [warning.text for warning in loaded.warnings] == [
        f"the workspace is {settings.workspace}, as agent.workspace in {path} says"
    ]


def test_every_documented_key_is_a_setting_or_named_with_the_reason(machine: Machine) -> None:
    def leaves(value: dict[str, Any], above: str = "") -> list[str]:
        return [
            key
            for name, inner in value.items()
            for key in (leaves(inner, f"{above}{name}.") if isinstance(inner, dict) else [f"{above}{name}"])  # pyright: ignore[reportUnknownArgumentType]
        ]

    documented = leaves(DOCUMENTED)
    assert len(documented) == 24
    assert set(documented) <= set(KEYS)
    put(machine)
    loaded = machine.load({"workspace": machine.cwd}, LMAGENT_CONFIG_JSON="config.json")
    said = {unused.name for unused in loaded.unused if unused.why}
    named = {origin.name for origin in (*loaded.origins.values(), *sum(loaded.item_origins.values(), ()))}
    assert set(documented) - said - named == {"agent.workspace"}  # the command line named another one


def test_the_workspaces_own_file_is_read_once_the_folder_is_trusted(machine: Machine) -> None:
    path = put(machine)
    loaded = machine.load()
    assert loaded.settings.llm_model == ""
    (warning,) = loaded.warnings
    assert warning.text == f"{path} is not read: it is in a folder you do not trust"
    assert warning.fix.endswith(f"lmagent config trust {machine.cwd}")
    trust(machine.data, machine.cwd)
    loaded = machine.load()
    assert loaded.settings.llm_model == "qwen3-8b"
    assert loaded.settings.workspace == machine.cwd
    assert any(unused.name == "agent.workspace" and "--config" in unused.why for unused in loaded.unused)
    assert loaded.warnings == ()


def test_a_file_that_changed_after_it_was_trusted_is_not_read(machine: Machine) -> None:
    trusting(machine)
    put(machine, agent(model={"base_url": "http://evil.example/v1"}))
    loaded = machine.load()
    assert loaded.settings.llm_url == ""
    assert "has changed since you trusted the folder" in loaded.warnings[0].text


@pytest.mark.parametrize("content", ['{"model": "x"}', "[1]", "{ // a comment\n", '{"agent": "Mozilla"}', ""])
def test_a_config_json_of_another_program_is_left_alone(machine: Machine, content: str) -> None:
    trusting(machine, content)
    loaded = machine.load()
    assert loaded.warnings == ()
    assert loaded.files == ()


def test_a_named_file_is_read_instead_of_the_workspaces(machine: Machine) -> None:
    trusting(machine)
    put(machine, agent(model={"model_id": "other"}), name="other.json")
    loaded = machine.load(LMAGENT_CONFIG_JSON="other.json")
    assert loaded.settings.llm_model == "other"
    assert loaded.settings.bounded_steps == 15


def test_env_files_and_config_toml_of_the_workspace_go_before_it(machine: Machine) -> None:
    machine.user_config('llm_model = "user"\nmax_errors = 9\n')
    machine.user_env("LLM_MODEL=user-env\n")
    trusting(machine, agent(model={"model_id": "json"}, max_loop_iterations=7))
    assert machine.load().settings.llm_model == "json"
    assert machine.load().origins["llm_model"].layer == "config.json"
    machine.workspace_config('llm_model = "toml"\n')
    assert machine.load().settings.llm_model == "toml"
    machine.workspace_env("LLM_MODEL=env\n")
    loaded = machine.load()
    assert (loaded.settings.llm_model, loaded.settings.bounded_steps, loaded.settings.max_errors) == ("env", 7, 9)


def test_openrouter_has_its_own_address_and_key(machine: Machine) -> None:
    model = {"provider": "openrouter", "model_id": "a/b", "base_url": "http://10.5.0.2:1234/v1"}
    put(machine, agent(model=model))
    settings = machine.load(
        LMAGENT_CONFIG_JSON="config.json", OPENROUTER_API_KEY="sk-or-1", LLM_API_KEY="sk-else"
    ).settings
    assert (settings.endpoint, settings.key) == ("https://openrouter.ai/api/v1", "sk-or-1")
    put(machine, agent(model={**model, "api_key": "sk-or-2"}))
    loaded = machine.load(LMAGENT_CONFIG_JSON="config.json")
    assert loaded.settings.key == "sk-or-2"
    assert "sk-or-2" not in repr((rows(loaded), loaded.unused, loaded.warnings, loaded.settings))


def test_a_local_provider_without_an_address_is_not_openrouter_because_its_key_is_set(machine: Machine) -> None:
    put(machine, agent(model={"provider": "lmstudio"}))
    settings = machine.load(LMAGENT_CONFIG_JSON="config.json", OPENROUTER_API_KEY="sk-or-1").settings
    assert settings.endpoint == "http://localhost:1234/v1"
    assert settings.key == "lm-studio"


def test_an_empty_list_of_tools_allows_none(machine: Machine) -> None:
    put(machine, agent(tools={"allow": [], "require_approval": []}))
    settings = machine.load(LMAGENT_CONFIG_JSON="config.json").settings
    assert settings.tools_allow == ("none",)
    assert settings.permission_ask == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{\n"agent": {\n', r"config\.json is not valid JSON: line 3"),
        ('{"agent": {"model": {}}', r"is not valid JSON: line 1, column 24"),
        ('{"agent": {\n"max_loop_iterations": "many"}}', r"agent\.max_loop_iterations in .* must be a whole number"),
        ('{"agent": {"tools": {"allow": [1]}}}', r"agent\.tools\.allow in .* must be"),
        ('{"agent": {"model": {"provider": "gpt"}}}', r"provider in .* must be a URL"),
        ('{"agent": {"model": {"base_url": {}}}}', r"base_url in .* must be a URL"),
        ('{"agent": ' + '{"a":' * 5000, "is not valid JSON"),
        ("[]", "must hold one JSON object"),
        ('{"agent": {"model": {"api_key": 5}}}', r"api_key in .* must be"),
    ],
)
def test_what_cannot_be_right_is_an_error_that_names_the_place(machine: Machine, text: str, words: str) -> None:
    put(machine, text)
    with pytest.raises(ConfigError, match=words) as caught:
        machine.load(LMAGENT_CONFIG_JSON="config.json")
    assert caught.value.fix


def test_an_unknown_key_is_named_with_the_reason(machine: Machine) -> None:
    put(machine, '{"model": {"provider": "x"},\n"agent": {"max_loop_iteration": 3, "mood": 1, "tools": 5}}')
    unused = {unused.name: unused.why for unused in machine.load(LMAGENT_CONFIG_JSON="config.json").unused}
    assert unused == dict.fromkeys(
        ("model.provider", "agent.max_loop_iteration", "agent.mood", "agent.tools"), "it is no key that lmagent knows"
    )


def test_a_missing_file_and_a_config_toml_are_refused_with_what_to_type(machine: Machine) -> None:
    with pytest.raises(ConfigError, match="there is no configuration file") as caught:
        machine.load(LMAGENT_CONFIG_JSON="gone.json")
    assert "--config" in caught.value.fix
    put(machine, "max_errors = 3\n", name="config.toml")
    with pytest.raises(ConfigError, match="is not valid JSON"):
        machine.load(LMAGENT_CONFIG_JSON="config.toml")


def test_a_named_file_in_the_workspace_is_kept_from_the_agent(machine: Machine) -> None:
    path = put(machine)
    assert own_places(machine.cwd, {**machine.env, "LMAGENT_CONFIG_JSON": str(path)}) == (Path("config.json"),)


@pytest.mark.parametrize("content", ['{"name": "a web page"}', "x" * 5_000_000])
def test_another_programs_file_of_that_name_is_not_trusted_and_stops_nothing(machine: Machine, content: str) -> None:
    put(machine, content)
    assert trust(machine.data, machine.cwd) == ()
    assert machine.load().warnings == ()
