from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from config_machine import Machine, unprivileged, write

from lmagent.config.loader import load
from lmagent.config.settings import DEFAULT_URL, OPENROUTER_URL, SETTINGS, Settings
from lmagent.config.show import rows
from lmagent.core.errors import ConfigError

LAYERS = ("user config", "user .env", "workspace config", "current .env", "environment", "flag")


def put(machine: Machine, layer: str, temperature: float) -> tuple[dict[str, str], dict[str, float]]:
    """Set the temperature in a layer; returns what to add to the environment and to the flags."""
    toml, dotenv = f"llm_temperature = {temperature}\n", f"LLM_TEMPERATURE={temperature}\n"
    if layer == "user config":
        machine.user_config(toml)
    elif layer == "user .env":
        machine.user_env(dotenv)
    elif layer == "workspace config":
        machine.workspace_config(toml)
    elif layer == "current .env":
        machine.workspace_env(dotenv)
    elif layer == "environment":
        return {"LLM_TEMPERATURE": str(temperature)}, {}
    else:
        return {}, {"llm_temperature": temperature}
    return {}, {}


@pytest.mark.parametrize(("weaker", "stronger"), list(itertools.combinations(LAYERS, 2)))
def test_of_any_two_layers_the_later_wins_and_is_named_as_the_origin(
    machine: Machine, weaker: str, stronger: str
) -> None:
    env, flags = put(machine, stronger, 0.2)
    more_env, more_flags = put(machine, weaker, 0.1)
    loaded = machine.load({**more_flags, **flags}, **{**more_env, **env})
    assert loaded.settings.llm_temperature == 0.2
    assert loaded.origins["llm_temperature"].layer == stronger


def test_without_any_file_everything_is_a_default(machine: Machine) -> None:
    loaded = machine.load()
    assert loaded.settings == Settings(workspace=machine.cwd.resolve(), agent_data_dir=machine.data)
    assert {origin.layer for origin in loaded.origins.values()} == {"default"}
    assert loaded.warnings == ()
    assert loaded.files == ()


def test_the_current_folders_env_file_wins_over_the_workspaces(machine: Machine, tmp_path: Path) -> None:
    work = tmp_path / "work"
    write(work / ".env", "LLM_MODEL=from-workspace\nLLM_TEMPERATURE=0.1\n")
    machine.workspace_env(f"WORKSPACE={work}\nLLM_MODEL=from-current\n")
    loaded = machine.load()
    assert loaded.settings.workspace == work
    assert loaded.settings.llm_model == "from-current"
    assert loaded.origins["llm_model"].layer == "current .env"
    assert loaded.settings.llm_temperature == 0.1
    assert loaded.origins["llm_temperature"].layer == "workspace .env"
    assert any("the workspace is" in warning.text and str(work) in warning.text for warning in loaded.warnings)


def test_an_origin_names_file_and_variable(machine: Machine) -> None:
    config = machine.user_config("# mine\n\nmax_errors = 7\n")
    env = machine.workspace_env("\nMAX_EMPTY_ITERATIONS=4\n")
    loaded = machine.load({"max_iterations": 9}, TEMPERATURE="0.9")
    shown = {row.name: row.origin for row in rows(loaded)}
    assert shown["max_errors"] == f"max_errors in {config}"
    assert shown["max_empty_iterations"] == f"MAX_EMPTY_ITERATIONS in {env}"
    assert shown["llm_temperature"] == "TEMPERATURE in the environment"
    assert shown["max_iterations"] == "--max-iterations"
    assert shown["max_nudges"] == "default"


def test_a_settings_own_name_wins_over_its_aliases(machine: Machine) -> None:
    loaded = machine.load(TEMPERATURE="0.9", AGENT_TEMPERATURE="0.8", LLM_TEMPERATURE="0.3")
    assert loaded.settings.llm_temperature == 0.3
    assert machine.load(TEMPERATURE="0.9", AGENT_TEMPERATURE="0.8").settings.llm_temperature == 0.9


def test_an_alias_in_a_later_layer_wins_over_the_own_name_in_an_earlier_one(machine: Machine) -> None:
    machine.workspace_env("LLM_TEMPERATURE=0.3\n")
    assert machine.load(TEMPERATURE="0.9").settings.llm_temperature == 0.9


@pytest.mark.parametrize(
    ("variable", "text", "field", "value"),
    [
        ("AGENT_MODEL", "qwen", "llm_model", "qwen"),
        ("AGENT_MODEL_URL", "http://10.0.0.5:8000/v1", "llm_url", "http://10.0.0.5:8000/v1"),
        ("LM_API_URL", "http://localhost:1234/v1", "llm_url", "http://localhost:1234/v1"),
        ("LM_API_KEY", "sk-lm", "llm_api_key", "sk-lm"),
        ("AGENT_MAX_STEPS", "20", "max_iterations", 20),
        ("MAX_SAME_TOOL_STREAK", "8", "loop_repeats", 3),
        ("MAX_SAME_TOOL_STREAK", "1", "loop_repeats", 1),
        ("LLM_MAX_TOKENS", "-1", "llm_max_tokens", None),
        ("LLM_TEMPERATURE", "none", "llm_temperature", None),
        ("THINKING_MODEL", "False", "thinking_model", False),
        ("THINKING_MODEL", "on", "thinking_model", True),
        ("PERMISSION_MODE", " AUTO ", "permission_mode", "auto"),
        ("LLM_TIMEOUT", "30", "llm_timeout", 30.0),
        ("NO_COLOR", "0", "no_color", True),
        (
            "LMAGENT_PERMISSION_DENY",
            "write(a/**, b), read(.ssh/**)",
            "permission_deny",
            ("write(a/**, b)", "read(.ssh/**)"),
        ),
    ],
)
def test_variables_are_read_as_the_older_systems_wrote_them(
    machine: Machine, variable: str, text: str, field: str, value: object
) -> None:
    assert getattr(machine.load(**{variable: text}).settings, field) == value


def test_an_empty_variable_sets_nothing_but_a_model_name(machine: Machine) -> None:
    machine.user_config('llm_model = "mine"\nllm_url = "http://localhost:9/v1"\nmax_errors = 9\n')
    loaded = machine.load(LLM_MODEL="", LLM_URL="", MAX_ERRORS="", PERMISSION_MODE="", NO_COLOR="", WORKSPACE="")
    assert loaded.settings.llm_model == ""
    assert loaded.settings.llm_url == "http://localhost:9/v1"
    assert loaded.settings.max_errors == 9
    assert loaded.settings.no_color is False
    assert loaded.settings.workspace == machine.cwd


def test_known_names_without_a_meaning_are_listed_with_the_reason_and_never_an_error(machine: Machine) -> None:
    machine.workspace_env("AUTO_SAVE_SESSION=true\nDATABASE_URL=postgres://x\n")
    machine.user_config("keep_recent_messages = 3\nvision_enabled = true\n")
    loaded = machine.load(SHELL_WORKSPACE_ONLY="true", AGENT_STORE_PATH="/x", PATH="/bin")
    unused = {entry.name: entry for entry in loaded.unused}
    assert set(unused) == {
        "AUTO_SAVE_SESSION",
        "keep_recent_messages",
        "SHELL_WORKSPACE_ONLY",
        "AGENT_STORE_PATH",
    }
    assert all(entry.why for entry in unused.values())
    assert unused["AUTO_SAVE_SESSION"].source.endswith(".env")
    assert loaded.warnings == ()
    assert loaded.settings.vision_enabled == "true"


def test_a_misspelt_variable_of_ours_in_an_env_file_is_pointed_out(machine: Machine) -> None:
    machine.workspace_env("LLM_MODLE=qwen\nLLM_SOMETHING_ELSE=1\n")
    (warning,) = machine.load().warnings
    assert warning.text.startswith("LLM_MODLE in ")
    assert "LLM_MODEL" in warning.fix


def test_a_broken_line_about_a_setting_is_pointed_out_and_other_programs_lines_are_not(machine: Machine) -> None:
    machine.workspace_env("garbage here\nLLM_MODEL 'qwen'\n")
    (warning,) = machine.load().warnings
    assert warning.text.startswith("LLM_MODEL in ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('llm_modle = "x"\n', ["llm_modle", "did you mean llm_model?"]),
        ('# c\nLLM_URL = "http://x"\n', ["LLM_URL", "did you mean llm_url?"]),
        ("[llm]\nurl = 'http://x'\n", ["there is no setting 'llm'"]),
        ("max_errors = 'five'\n", ["max_errors", "a whole number of at least 1", "'five'"]),
        ("max_errors = true\n", ["must be a whole number", "True"]),
        ("max_iterations = 0\n", ["at least 1", "not 0", "for example 500"]),
        ("\n\npermission_mode = 'yolo'\n", ["auto, normal or manual", "'yolo'"]),
        ("permission_deny = 'shell'\n", ["a list of rules", "'shell'"]),
        ("llm_timeout = nan\n", ["a number from 0.1 to 86400"]),
        ("llm_url = 'localhost:1234'\n", ["a URL such as http://localhost:1234/v1"]),
        ("llm_url = 'http://me:secret@host/v1'\n", ["without a name or password"]),
        ("llm_url = \n", ["not valid TOML", "line 1"]),
        ("zzz_qqq = 1\n", ["there is no setting 'zzz_qqq'", "lmagent config"]),
    ],
)
def test_a_wrong_config_file_says_where_what_and_what_is_allowed(
    machine: Machine, text: str, expected: list[str]
) -> None:
    path = machine.user_config(text)
    with pytest.raises(ConfigError) as caught:
        machine.load()
    for part in [str(path), *expected]:
        assert part in str(caught.value)
    assert caught.value.fix


def test_a_wrong_variable_and_a_wrong_flag_are_named(machine: Machine) -> None:
    with pytest.raises(ConfigError, match=r"LLM_TIMEOUT in the environment must be a number .* not 'soon'"):
        machine.load(LLM_TIMEOUT="soon")
    with pytest.raises(ConfigError, match="--permission must be auto, normal or manual, not 'root'"):
        machine.load({"permission_mode": "root"})
    machine.workspace_env("A=1\nMAX_ERRORS=many\n")
    with pytest.raises(ConfigError, match=r"MAX_ERRORS in .*\.env must be"):
        machine.load()


def test_an_error_about_a_key_does_not_repeat_it(machine: Machine) -> None:
    with pytest.raises(ConfigError) as caught:
        machine.load(LLM_API_KEY="sk-very\nsecret")
    assert "very" not in str(caught.value)


def test_a_config_file_that_is_no_text_or_too_large_is_a_clear_error(machine: Machine) -> None:
    path = machine.user_config("")
    path.write_bytes(b"a = 1\nb = '\xff'\n")
    with pytest.raises(ConfigError, match=r"is not valid TOML: .*utf-8"):
        machine.load()
    path.write_bytes(b"#" * 1_000_001)
    with pytest.raises(ConfigError, match="larger than"):
        machine.load()


def test_folders_and_pipes_called_env_are_passed_over(machine: Machine) -> None:
    (machine.cwd / ".env").mkdir()
    machine.config_file.parent.mkdir(parents=True)
    os.mkfifo(machine.config_file)
    assert machine.load().files == ()


def test_an_unreadable_config_file_is_a_clear_error(public_folder: Path) -> None:
    config = write(public_folder / "config.toml", "max_errors = 1\n")
    config.chmod(0)
    with unprivileged(), pytest.raises(ConfigError, match="cannot be read: Permission denied") as caught:
        load({"HOME": str(public_folder), "LMAGENT_CONFIG": str(config)}, public_folder)
    assert str(config) in caught.value.fix


def test_lmagent_config_names_another_file_and_a_missing_one_is_an_error(machine: Machine, tmp_path: Path) -> None:
    machine.user_config("max_errors = 1\n")
    other = write(tmp_path / "other.toml", "max_errors = 2\n")
    assert machine.load(LMAGENT_CONFIG=str(other)).settings.max_errors == 2
    assert machine.load(LMAGENT_CONFIG=os.devnull).settings.max_errors == 5
    with pytest.raises(ConfigError, match=r"LMAGENT_CONFIG names .*gone.toml"):
        machine.load(LMAGENT_CONFIG=str(tmp_path / "gone.toml"))


def test_lists_of_rules_add_up_and_each_rule_knows_its_origin(machine: Machine) -> None:
    machine.user_config('permission_deny = ["a", "b"]\n')
    machine.workspace_config('permission_deny = ["b", "c"]\n')
    loaded = machine.load({"permission_deny": ["d"]})
    assert loaded.settings.permission_deny == ("a", "b", "c", "d")
    assert [origin.layer for origin in loaded.item_origins["permission_deny"]] == [
        "user config",
        "user config",
        "workspace config",
        "flag",
    ]
    assert [row.value for row in rows(loaded) if row.name == "permission_deny"] == ["a", "b", "c", "d"]


def test_the_endpoint_is_the_url_then_the_base_url_then_openrouter_then_lm_studio(machine: Machine) -> None:
    key, base, url = {"OPENROUTER_API_KEY": "sk-or-1"}, {"LLM_BASE_URL": "http://b:1"}, {"LLM_URL": "http://u:1/v1"}
    assert machine.load().settings.endpoint == DEFAULT_URL
    assert machine.load().settings.given_endpoint == ""
    remote = machine.load(**key).settings
    assert (remote.endpoint, remote.key) == (OPENROUTER_URL, "sk-or-1")
    assert machine.load(**key, **base).settings.endpoint == "http://b:1"
    local = machine.load(**key, **base, **url).settings
    assert (local.endpoint, local.key) == ("http://u:1/v1", "lm-studio")


def test_the_openrouter_key_goes_to_openrouter_only(machine: Machine) -> None:
    keys = {"OPENROUTER_API_KEY": "sk-or-1", "LLM_API_KEY": "sk-other"}
    assert machine.load(**keys, LLM_URL="https://openrouter.ai/api/v1").settings.key == "sk-or-1"
    for url in (
        "https://openrouter.ai.example.org/v1",
        "http://openrouter.ai/api/v1",
        "https://example.org/openrouter.ai/",
    ):
        assert machine.load(**keys, LLM_URL=url).settings.key == "sk-other"


def test_secrets_are_in_no_text_form_of_the_settings(machine: Machine) -> None:
    loaded = machine.load(LLM_API_KEY="sk-abcdefgh", OPENROUTER_API_KEY="sk-or-xyz")
    shown = repr(loaded) + str(loaded.settings) + repr(rows(loaded))
    assert "abcdefgh" not in shown
    assert "xyz" not in shown
    assert loaded.settings.secrets == ("sk-abcdefgh", "sk-or-xyz")
    assert machine.load().settings.secrets == ()


def test_limits_and_window_follow_the_settings(machine: Machine) -> None:
    settings = machine.load(MAX_ITERATIONS="7", MAX_ERRORS="2", SUMMARIZATION_THRESHOLD="9000").settings
    assert (settings.limits.steps, settings.limits.errors, settings.limits.repeats) == (7, 2, 3)
    window = settings.window(16384)
    assert (window.tokens, window.threshold, window.keep_recent, window.result_cap) == (16384, 9000, 16000, None)
    assert window.result_tokens == 2048
    assert machine.load(LMAGENT_TOOL_RESULT_TOKENS="500").settings.window(16384).result_tokens == 500
    assert machine.load(LMAGENT_CONTEXT_WINDOW="4096").settings.window(16384).tokens == 4096


def test_every_setting_is_documented_and_can_be_set_by_a_variable_of_its_own() -> None:
    assert [field.name for field in SETTINGS] == list(Settings.__struct_fields__)
    assert len({field.env for field in SETTINGS}) == len(SETTINGS)
    assert all(field.help.endswith(".") for field in SETTINGS)


def test_paths_count_from_the_place_they_are_written_in(machine: Machine) -> None:
    write(machine.home / "ws" / "x", "")
    machine.user_config('workspace = "~/ws"\n')
    assert machine.load().settings.workspace == machine.home / "ws"
    assert machine.load({"workspace": "sub"}).settings.workspace == machine.cwd / "sub"
    assert machine.load(AGENT_DATA_DIR="~/data").settings.agent_data_dir == machine.home / "data"


def test_loading_reads_nothing_of_the_process_environment_and_stays_light(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from lmagent.config.loader import load;"
        f"s = load({{'HOME': {str(tmp_path)!r}}}, Path({str(tmp_path)!r})).settings;"
        "assert s.llm_model == '', s;"
        "heavy = {'tomllib', 'hashlib', 'difflib', 'shlex', 'subprocess', 'tempfile', 'shutil', 'ssl', 'sqlite3'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    env = {"LLM_MODEL": "from-the-process", "PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_loading_without_files_takes_less_than_three_milliseconds(machine: Machine) -> None:
    def once() -> float:
        begun = time.process_time()
        load(machine.env, machine.cwd)
        return time.process_time() - begun

    assert min(once() for _ in range(20)) < 0.003


def test_a_password_in_a_url_is_refused_and_not_repeated(machine: Machine) -> None:
    with pytest.raises(ConfigError) as refused:
        machine.load(LLM_URL="http://bob:hunter2secret@127.0.0.1:9/v1")
    assert "without a name or password in it" in str(refused.value)
    assert "hunter2secret" not in str(refused.value)
