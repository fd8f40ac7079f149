"""Names: the variables that feed settings, and variables of older systems that are not used, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lmagent.config.settings import SETTINGS

FIELD_OF: dict[str, str] = {variable: setting.name for setting in SETTINGS for variable in setting.variables}
"""The setting that a variable feeds."""


def _streak_to_repeats(text: str) -> str:
    """Convert calls of one tool name (8 by default) to identical calls (3 by default); other text passes unchanged."""
    return str(-(-int(text) * 3 // 8)) if text.strip().isdecimal() else text


def _forced_docker(text: str) -> str:
    return "auto" if text.strip().lower() in ("false", "0", "no", "off") else "docker"


CONVERTED: dict[str, tuple[str, Callable[[str], str]]] = {
    "MAX_SAME_TOOL_STREAK": ("a streak of 8 calls of one tool becomes 3 identical calls", _streak_to_repeats),
    "FORCE_DOCKER": ("true is docker, false is auto", _forced_docker),
}
"""Variables of older systems whose values mean something else there."""

_CAP = "not needed: every tool result is capped by `tool_result_tokens` and kept whole as an artifact"

NOT_USED: dict[str, str] = {
    "ARTIFACT_SCAN_WINDOW": "not needed: the changes of a sub-agent are on record",
    "ENABLE_SUMMARIZATION": "not needed: a conversation that outgrows the window is always compacted",
    "KEEP_RECENT_MESSAGES": "not used: `keep_recent_tokens` counts tokens, not messages",
    "THINKING_MAX_TOKENS": "not used: `llm_max_tokens` caps thoughts and reply together",
    "AUTO_SAVE_SESSION": "not needed: every event is written at once",
    "REQUIRE_WORKSPACE": "not needed: file tools never leave the workspace",
    "SHELL_WORKSPACE_ONLY": "not needed: commands see nothing but the workspace",
    "BLOCKED_COMMANDS": "not used: use `permission_deny` rules such as `shell(curl *)`",
    "MAX_TOOL_OUTPUT": _CAP,
    "MAX_FILE_READ": _CAP,
    "MAX_GREP_RESULTS": _CAP,
    "MAX_LS_ENTRIES": _CAP,
    "FORCE_TRUECOLOR": "not needed: the terminal's own colours are used",
    "AGENT_MODEL_PATH": "not used: `lmagent models import FILE`, then its name as `llm_model`",
    "AGENT_GATEWAY": "not needed: any OpenAI-compatible server is reached by `llm_url`",
}

NOT_USED_PREFIXES: dict[str, str] = {
    "AGENT_STORE_": "not needed: sessions are kept in the workspace",
    "GEMINI_": "not used: give Gemini's OpenAI-compatible address as `llm_url`",
}


def why_not_used(variable: str) -> str:
    """Return why a known variable is not used; empty for a variable that is used or unknown."""
    if note := NOT_USED.get(variable):
        return note
    return next((note for prefix, note in NOT_USED_PREFIXES.items() if variable.startswith(prefix)), "")


def as_text(variable: str, text: str) -> str:
    """Return a variable's value in the unit of the setting that it feeds."""
    return CONVERTED[variable][1](text) if variable in CONVERTED else text


def closest(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches  # slow to import, and only a mistake needs it

    return next(iter(get_close_matches(name, list(known), n=1, cutoff=0.75)), "")
