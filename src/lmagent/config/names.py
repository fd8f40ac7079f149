"""Names: every variable of the older systems, and what becomes of it. The one alias table.

A name either feeds a setting, or is known and not used, with the reason; none is an "unknown variable". A setting's own
name (`Field.env`) wins over an alias of the same layer.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from lmagent.config.fields import FIELDS


class SeedName(Struct, frozen=True):
    """A variable of an older system.

    Attributes:
        field: the setting it feeds; empty when it is not used.
        note: why it is not used, or how its value is converted.
        convert: from its text to the setting's text; None takes it as it is.
    """

    field: str = ""
    note: str = ""
    convert: Callable[[str], str] | None = None


def _streak_to_repeats(text: str) -> str:
    """Calls of one tool name, 8 by default, to identical calls, 3 by default; what is no number passes unchanged."""
    return str(-(-int(text) * 3 // 8)) if text.strip().isdecimal() else text


def _forced_docker(text: str) -> str:
    return "auto" if text.strip().lower() in ("false", "0", "no", "off") else "docker"


_LATER = "not used by this version: "
_CAP = "not needed: every tool result is capped by `tool_result_tokens` and kept whole as an artifact"

SEED_NAMES: dict[str, SeedName] = {
    # Feeding a setting.
    "TEMPERATURE": SeedName("llm_temperature"),
    "AGENT_TEMPERATURE": SeedName("llm_temperature"),
    "AGENT_MODEL": SeedName("llm_model"),
    "AGENT_MODEL_URL": SeedName("llm_url"),
    "AGENT_MODEL_API_KEY": SeedName("llm_api_key"),
    "AGENT_MAX_TOKENS": SeedName("llm_max_tokens"),
    "AGENT_MAX_STEPS": SeedName("max_iterations"),
    "LM_API_URL": SeedName("llm_url"),
    "LM_API_KEY": SeedName("llm_api_key"),
    "MAX_SAME_TOOL_STREAK": SeedName(
        "loop_repeats", "a streak of 8 calls of one tool becomes 3 identical calls", _streak_to_repeats
    ),
    "FORCE_DOCKER": SeedName("sandbox", "true is docker, false is auto", _forced_docker),
    # Known, and not used.
    "ENABLE_MCP": SeedName(note=_LATER + "there is no MCP client yet"),
    "ARTIFACT_SCAN_WINDOW": SeedName(note="not needed: what a sub-agent changed is on record"),
    "ENABLE_SUMMARIZATION": SeedName(note="not needed: a conversation that outgrows the window is always compacted"),
    "KEEP_RECENT_MESSAGES": SeedName(note="not used: `keep_recent_tokens` counts tokens, not messages"),
    "THINKING_MAX_TOKENS": SeedName(note="not used: `llm_max_tokens` caps thoughts and reply together"),
    "AUTO_SAVE_SESSION": SeedName(note="not needed: every event is written at once"),
    "REQUIRE_WORKSPACE": SeedName(note="not needed: file tools never leave the workspace"),
    "SHELL_WORKSPACE_ONLY": SeedName(note="not needed: commands see nothing but the workspace"),
    "BLOCKED_COMMANDS": SeedName(note="not used: use `permission_deny` rules such as `shell(curl *)`"),
    "MAX_TOOL_OUTPUT": SeedName(note=_CAP),
    "MAX_FILE_READ": SeedName(note=_CAP),
    "MAX_GREP_RESULTS": SeedName(note=_CAP),
    "MAX_LS_ENTRIES": SeedName(note=_CAP),
    "FORCE_TRUECOLOR": SeedName(note="not needed: the terminal's own colours are used"),
    "AGENT_MODEL_PATH": SeedName(note="not used: `lmagent models import FILE`, then its name as `llm_model`"),
    "AGENT_GATEWAY": SeedName(note="not needed: any OpenAI-compatible server is reached by `llm_url`"),
}

NOT_USED_PREFIXES: dict[str, str] = {
    "AGENT_STORE_": "not needed: sessions lie in the workspace",
    "GEMINI_": "not used: give Gemini's OpenAI-compatible address as `llm_url`",
}

NOT_USED: dict[str, str] = {name: seed.note for name, seed in SEED_NAMES.items() if not seed.field}

VARIABLES: dict[str, tuple[str, ...]] = {
    field.name: (field.env, *(name for name, seed in SEED_NAMES.items() if seed.field == field.name))
    for field in FIELDS
}
"""Variables of each setting, its own name first."""

FIELD_OF: dict[str, str] = {name: field for field, names in VARIABLES.items() for name in names}
"""The setting that a variable feeds."""


def why_not_used(variable: str) -> str:
    """Why a known variable is not used; empty for one that is used or unknown."""
    if note := NOT_USED.get(variable):
        return note
    return next((note for prefix, note in NOT_USED_PREFIXES.items() if variable.startswith(prefix)), "")


def as_text(variable: str, text: str) -> str:
    """The variable's value in the unit of the setting it feeds."""
    seed = SEED_NAMES.get(variable)
    return seed.convert(text) if seed and seed.convert else text


def closest(name: str, known: list[str]) -> str:
    """The known name that was probably meant, or an empty text."""
    from difflib import get_close_matches  # rare and not free: only when something is wrong already

    return next(iter(get_close_matches(name, known, n=1, cutoff=0.75)), "")
