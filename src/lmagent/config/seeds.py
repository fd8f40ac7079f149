"""Seeds: agent_computer's `config.json`, key by key, as settings. Reading it in place and importing it share the table.

A key feeds a setting, or is known and not used, with the reason. Everything else is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from lmagent.config.names import closest
from lmagent.config.settings import PROVIDERS


class JsonKey(Struct, frozen=True):
    """A key of `config.json`.

    Attributes:
        field: the setting it feeds; empty when it is not used.
        note: why it is not used, or how its value is converted.
    """

    field: str = ""
    note: str = ""


_REFLECTION = "not used by this version: there is no reflection yet"
_MEMORY = "not used by this version: there is no memory yet"

KEYS: dict[str, JsonKey] = {
    "gateway.host": JsonKey("web_host"),
    "gateway.port": JsonKey("web_port"),
    "agent.name": JsonKey(note="not used: the agent is called lmagent everywhere"),
    "agent.workspace": JsonKey("workspace", "a path counts from the file's folder"),
    "agent.model.provider": JsonKey("llm_url", "the provider's usual address; `base_url` goes before it"),
    "agent.model.model_id": JsonKey("llm_model"),
    "agent.model.base_url": JsonKey("llm_url", "not with `openrouter`, which has an address of its own"),
    "agent.model.max_tokens": JsonKey("llm_max_tokens"),
    "agent.model.temperature": JsonKey("llm_temperature"),
    "agent.model.api_key": JsonKey("llm_api_key", "`openrouter_api_key` with the provider `openrouter`"),
    "agent.tools.allow": JsonKey("tools_allow", "`manage_tasks` becomes the todo tools; an empty list allows none"),
    "agent.tools.require_approval": JsonKey("permission_ask", "tools by their names here"),
    "agent.max_loop_iterations": JsonKey("bounded_steps", "caps bounded work alone"),
    "agent.deep_work.max_iterations": JsonKey("deep_steps"),
    "agent.deep_work.token_budget": JsonKey("deep_tokens"),
    "agent.deep_work.warning_threshold": JsonKey(note="not needed: the model is told when 0.8 of a budget is used"),
    "agent.non_interactive_approval_policy": JsonKey(
        note="not used: what needs approval is denied where no user can be asked; `permission_allow` rules exempt it"
    ),
    "sessions.directory": JsonKey(note="not used: take the sessions over with `lmagent sessions import FOLDER`"),
    "sessions.max_history_tokens": JsonKey("summarization_threshold"),
    "reflection.enabled": JsonKey(note=_REFLECTION),
    "reflection.model_id": JsonKey(note=_REFLECTION),
    "reflection.max_tokens": JsonKey(note=_REFLECTION),
    "reflection.max_sessions_per_startup": JsonKey(note=_REFLECTION),
    "memory.enabled": JsonKey(note=_MEMORY),
    "memory.embedding_base_url": JsonKey(note=_MEMORY),
    "memory.embedding_model": JsonKey(note=_MEMORY),
    "memory.top_k": JsonKey(note=_MEMORY),
}

_SECTIONS = {key.rpartition(".")[0] for key in KEYS} | {key.partition(".")[0] for key in KEYS}
_TODO = ("todo_add", "todo_complete", "todo_update", "todo_list")
_TOOLS = {
    "read_file": ("read",),
    "write_file": ("write",),
    "list_directory": ("ls",),
    "list_files": ("ls",),
    "manage_tasks": _TODO,
}
_ABSENT = frozenset({"web_fetch", "web_fetch_js", "web_fetch_stealth", "memory_search"})
_PLACEHOLDERS = ("", "your-model-id")
_OURS = re.compile(r'"agent"\s*:\s*\{')


class ConfigJson(Struct):
    """The content of a `config.json`.

    Attributes:
        taken: key, setting and value, which is not checked yet.
        left: key, and why it is not used.
        wrong: key, and what its value has to be.
        unknown: key, and the key that was probably meant, or an empty text.
    """

    taken: list[tuple[str, str, Any]]
    left: list[tuple[str, str]]
    wrong: list[tuple[str, str]]
    unknown: list[tuple[str, str]]


def is_agent_computers(text: str) -> bool:
    """Whether a file called `config.json` is agent_computer's: other programs have one too."""
    return _OURS.search(text) is not None


def read_agent_computer(document: dict[str, Any], base: Path) -> ConfigJson:
    """Sort the keys of a parsed `config.json`; `base` is its folder."""
    found = ConfigJson([], [], [], [])
    values = dict(_leaves(document, "", found))
    provider = values.get("agent.model.provider")
    for key, value in values.items():
        known = KEYS.get(key)
        if known is None and _is_openrouter_key(key, value):
            found.taken.append((key, "openrouter_api_key", value))
        elif known is None:
            found.unknown.append((key, closest(key, list(KEYS))))
        elif key == "agent.model.provider":
            _take_provider(values, found)
        elif key == "agent.model.base_url" and provider == "openrouter":
            found.left.append((key, "the provider is openrouter, which has an address of its own"))
        elif key == "agent.model.model_id" and value in _PLACEHOLDERS:
            found.left.append((key, "it is a placeholder"))
        elif key == "agent.model.api_key" and provider == "openrouter":
            found.taken.append((key, "openrouter_api_key", value))
        elif key == "sessions.directory" and isinstance(value, str):
            found.left.append((key, f"take the sessions over with: lmagent sessions import {base / value}"))
        elif not known.field:
            found.left.append((key, known.note))
        elif value is not None:
            found.taken.append((key, known.field, _tools(key, value)))
    return found


def line_of(text: str, key: str) -> int:
    """The line, from 1, of a dotted key in a JSON text; 0 if it is not found."""
    at = 0
    for part in key.split("."):
        found = re.compile(rf'"{re.escape(part)}"\s*:').search(text, at)
        if found is None:
            return 0
        at = found.end()
    return text.count("\n", 0, at) + 1


def _leaves(value: dict[str, Any], above: str, found: ConfigJson) -> Iterator[tuple[str, Any]]:
    for name, inner in value.items():
        key = f"{above}.{name}" if above else name
        if isinstance(inner, dict) and key not in KEYS:
            yield from _leaves(cast("dict[str, Any]", inner), key, found)
        elif key in _SECTIONS:
            found.wrong.append((key, "must be an object with keys of its own"))
        else:
            yield key, inner


def _take_provider(values: dict[str, Any], found: ConfigJson) -> None:
    key, provider = "agent.model.provider", values["agent.model.provider"]
    if provider not in PROVIDERS:
        found.wrong.append((key, f"must be one of {', '.join(PROVIDERS)}"))
    elif provider != "openrouter" and values.get("agent.model.base_url"):
        found.left.append((key, "base_url says where the server is"))
    else:
        found.taken.append((key, "llm_url", PROVIDERS[provider]))


def _tools(key: str, value: Any) -> Any:
    """Lists of tools, by their names here. A tool that does not exist here needs no approval, and allows nothing."""
    if not key.startswith("agent.tools.") or not isinstance(value, list):
        return value
    names = cast("list[Any]", value)
    if not all(isinstance(name, str) for name in names):
        return names  # is refused when it is checked
    asks = key == "agent.tools.require_approval"
    renamed = [new for name in names if not (asks and name in _ABSENT) for new in _TOOLS.get(name, (name,))]
    return renamed if renamed or asks else ["none"]


def _is_openrouter_key(key: str, value: Any) -> bool:
    return isinstance(value, str) and bool(value) and "openrouter" in key.lower() and key.lower().endswith("key")
