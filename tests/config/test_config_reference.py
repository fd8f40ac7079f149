from __future__ import annotations

from pathlib import Path

from lmagent.config.names import CONVERTED, FIELD_OF, NOT_USED
from lmagent.config.settings import SETTINGS

OLDER = [
    "WORKSPACE",
    "LLM_URL",
    "LLM_BASE_URL",
    "LLM_API_KEY",
    "LLM_MODEL",
    "LLM_MAX_TOKENS",
    "LLM_TEMPERATURE",
    "LLM_MAX_RETRIES",
    "LLM_RETRY_DELAY",
    "LLM_TIMEOUT",
    "THINKING_MODEL",
    "THINKING_MAX_TOKENS",
    "SUMMARIZATION_THRESHOLD",
    "KEEP_RECENT_MESSAGES",
    "MAX_ITERATIONS",
    "MAX_SUB_AGENT_ITERATIONS",
    "MAX_SAME_TOOL_STREAK",
    "MAX_NO_PROGRESS_ITERS",
    "MAX_ERRORS",
    "MAX_EMPTY_ITERATIONS",
    "MAX_TOOL_OUTPUT",
    "MAX_FILE_READ",
    "MAX_GREP_RESULTS",
    "MAX_LS_ENTRIES",
    "PERMISSION_MODE",
    "REQUIRE_WORKSPACE",
    "SHELL_WORKSPACE_ONLY",
    "BLOCKED_COMMANDS",
    "ENABLE_MCP",
    "ENABLE_SUB_AGENTS",
    "ENABLE_TODO_TRACKING",
    "ENABLE_PLAN_ENFORCEMENT",
    "ENABLE_SUMMARIZATION",
    "AUTO_SAVE_SESSION",
    "SCHEDULER_POLL_INTERVAL",
    "VISION_ENABLED",
    "AGENT_MAX_DEPTH",
    "BRIEF_DATA_BUDGET",
    "ARTIFACT_SCAN_WINDOW",
    "AGENT_TOKEN",
    "AGENT_PORT",
    "AGENT_HOST",
    "AGENT_CERT",
    "AGENT_KEY",
    "FORCE_TRUECOLOR",
    "OPENROUTER_API_KEY",
    "AGENT_MODEL",
    "AGENT_MODEL_URL",
    "AGENT_MODEL_API_KEY",
    "AGENT_MODEL_PATH",
    "AGENT_GATEWAY",
    "AGENT_MAX_STEPS",
    "AGENT_TEMPERATURE",
    "AGENT_MAX_TOKENS",
    "AGENT_ENABLE_SHELL",
    "AGENT_ENABLE_FILES",
    "AGENT_ENABLE_FETCH",
    "AGENT_ENABLE_DATA_VIEW",
    "AGENT_ENABLE_PYEXE",
    "AGENT_LOG_LEVEL",
    "TEMPERATURE",
    "LM_API_URL",
    "LM_API_KEY",
    "AGENT_DATA_DIR",
    "DOCKER_NETWORK",
]


def test_every_variable_of_the_older_systems_is_known() -> None:
    assert [name for name in OLDER if name not in FIELD_OF and name not in NOT_USED] == []


def test_no_variable_feeds_two_settings_or_is_both_used_and_not_used() -> None:
    variables = [variable for setting in SETTINGS for variable in setting.variables]
    assert len(variables) == len(set(variables))
    assert not set(variables) & set(NOT_USED)
    assert set(CONVERTED) <= set(variables)


def test_the_reference_has_a_row_for_every_setting_and_every_name() -> None:
    text = (Path(__file__).parents[2] / "docs/configuration.md").read_text()
    for name in [*(setting.name for setting in SETTINGS), *NOT_USED]:
        assert f"| `{name}` |" in text
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert all(line.endswith(" |") for line in rows)
    assert "| `llm_timeout` | `LLM_TIMEOUT` |  | a number from 0.1 to 86400 | `560` | yes |" in text
