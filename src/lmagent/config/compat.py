"""Compat: files of older systems, read in place or imported.

agent_computer's `config.json` is read key by key: a key feeds a setting, or is known and not used, with the reason. An
import takes that file, a `.env`, an `mcp.json` (`mcpServers`, or an editor's `servers`) or a `cron.json`. Settings go
to the user's `config.toml`, secrets to the user's `.env`, the two JSON lists to the workspace's `.lmagent/`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta, Struct

from lmagent.config.files import decode_env, parse_env, read_small, save_env, save_settings, toml_of, write_private
from lmagent.config.layers import Layer
from lmagent.config.loader import LayerReader, Loaded
from lmagent.config.names import why_not_used
from lmagent.config.settings import BY_NAME, PLACEHOLDER_KEYS, PROVIDERS
from lmagent.core.decoding import convert, json_fault
from lmagent.core.errors import ConfigError

Pairs = tuple[tuple[str, str], ...]

_UNKNOWN = "it is no key that lmagent knows"

KEYS: dict[str, tuple[str, str]] = {
    "gateway.host": ("web_host", ""),
    "gateway.port": ("web_port", ""),
    "agent.name": ("", "not used: the agent is called lmagent everywhere"),
    "agent.workspace": ("workspace", "a path counts from the file's folder"),
    "agent.model.provider": ("llm_url", "the provider's usual address; `base_url` goes before it"),
    "agent.model.model_id": ("llm_model", ""),
    "agent.model.base_url": ("llm_url", "not with `openrouter`, which has an address of its own"),
    "agent.model.max_tokens": ("llm_max_tokens", ""),
    "agent.model.temperature": ("llm_temperature", ""),
    "agent.model.api_key": ("llm_api_key", "`openrouter_api_key` with the provider `openrouter`"),
    "agent.tools.allow": ("tools_allow", "`manage_tasks` becomes the todo tools; an empty list allows none"),
    "agent.tools.require_approval": ("permission_ask", "tools by their names here"),
    "agent.max_loop_iterations": ("bounded_steps", "caps bounded work alone"),
    "agent.deep_work.max_iterations": ("deep_steps", ""),
    "agent.deep_work.token_budget": ("deep_tokens", ""),
    "agent.deep_work.warning_threshold": ("", "not needed: the model gets a note when 0.8 of a budget is used"),
    "agent.non_interactive_approval_policy": (
        "",
        "not used: what needs approval is denied where no user can be asked; `permission_allow` rules exempt it",
    ),
    "sessions.directory": ("", "not used: take the sessions over with `lmagent sessions import FOLDER`"),
    "sessions.max_history_tokens": ("summarization_threshold", ""),
    "reflection.enabled": ("reflection", "true is `idle`"),
    "reflection.model_id": ("reflection_model", ""),
    "reflection.max_tokens": ("", "not used: a reply of reflection has 1,500 tokens"),
    "reflection.max_sessions_per_startup": ("", "not used: a run reads 10 sessions, and the next one continues"),
    "memory.enabled": ("enable_memory", ""),
    "memory.embedding_base_url": ("embedding_url", ""),
    "memory.embedding_model": ("embedding_model", ""),
    "memory.top_k": ("", "not used: the model says how many it wants"),
}
"""The setting that a key feeds, or empty; how its value is converted, or why it is not used."""

_TODO = ("todo_add", "todo_complete", "todo_update", "todo_list")
_TOOLS = {
    "read_file": ("read",),
    "write_file": ("write",),
    "list_directory": ("ls",),
    "list_files": ("ls",),
    "manage_tasks": _TODO,
}
_PLACEHOLDERS = ("", "your-model-id")


def read_agent_computer(document: dict[str, Any]) -> tuple[list[tuple[str, str, Any]], list[tuple[str, str]]]:
    """Sort the keys of a parsed `config.json`.

    Returns key, setting and unchecked value of those that feed a setting; key and reason of the others.
    """
    taken: list[tuple[str, str, Any]] = []
    left: list[tuple[str, str]] = []
    values = dict(_leaves(document, ""))
    provider = values.get("agent.model.provider")
    routed = provider == "openrouter"
    for key, value in values.items():
        name, note = KEYS.get(key, ("", _UNKNOWN))
        if (key not in KEYS and _is_openrouter_key(key, value)) or (key == "agent.model.api_key" and routed):
            taken.append((key, "openrouter_api_key", value))
        elif key == "agent.model.provider" and not routed and values.get("agent.model.base_url"):
            left.append((key, "base_url says where the server is"))
        elif key == "agent.model.provider":
            taken.append((key, name, PROVIDERS.get(value, value) if isinstance(value, str) else value))
        elif key == "agent.model.base_url" and routed:
            left.append((key, "the provider is openrouter, which has an address of its own"))
        elif key == "agent.model.model_id" and value in _PLACEHOLDERS:
            left.append((key, "it is a placeholder"))
        elif not name:
            left.append((key, note))
        elif value is not None:
            taken.append((key, name, _tools(key, value)))
    return taken, left


def _leaves(value: dict[str, Any], above: str) -> Iterator[tuple[str, Any]]:
    for name, inner in value.items():
        key = f"{above}.{name}" if above else name
        if isinstance(inner, dict) and key not in KEYS:
            yield from _leaves(cast("dict[str, Any]", inner), key)
        else:
            yield key, inner


def _tools(key: str, value: Any) -> Any:
    """Return tools by lmagent's names. A list of allowed tools that is empty allows nothing."""
    if key == "reflection.enabled":
        return {True: "idle", False: "off"}.get(value, value)
    if not key.startswith("agent.tools.") or not isinstance(value, list):
        return value
    names = cast("list[Any]", value)
    if not all(isinstance(name, str) for name in names):
        return names  # refused by the later check
    renamed = [new for name in names for new in _TOOLS.get(name, (name,))]
    return renamed if renamed or key == "agent.tools.require_approval" else ["none"]


def _is_openrouter_key(key: str, value: Any) -> bool:
    return isinstance(value, str) and bool(value) and "openrouter" in key.lower() and key.lower().endswith("key")


def parse_json(path: Path, content: bytes) -> Any:
    try:
        return msgspec.json.decode(content.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        fault = json_fault(content)
        where = f"line {fault.lineno}, column {fault.colno}: {fault.msg}" if fault is not None else str(error)
        raise ConfigError(f"{path} is not valid JSON: {where}", fix="correct it, then try again") from error


# --- imports ----------------------------------------------------------------------------------------------------------

_ACCEPTED = "a .env file, agent_computer's config.json, an mcp.json or a cron.json"


class ImportReport(Struct, frozen=True):
    """The imported entries, each with its destination, and the others, each with the reason."""

    taken: Pairs
    left: Pairs


class _Server(Struct):
    """The required fields of an entry of `mcp.json`."""

    command: str = ""
    url: str = ""
    args: list[str] = []
    env: dict[str, str] = {}

    def __post_init__(self) -> None:
        if not self.command and not self.url:
            raise ValueError("it has neither a command nor a url")


class _Job(Struct):
    """The required fields of an entry of `cron.json`."""

    id: Annotated[str, Meta(min_length=1)]
    schedule: Annotated[str, Meta(min_length=1)]
    prompt: Annotated[str, Meta(min_length=1)]


def import_file(path: Path, loaded: Loaded) -> ImportReport:
    """Import a file of an older system into the files of the present configuration, or of the workspace.

    Raises ConfigError if it cannot be read or imported, a value is not allowed, or a target cannot be written.
    """
    content = read_small(path)
    if content is None:
        raise ConfigError(f"{path} does not exist, or is not a file", fix=f"name {_ACCEPTED}")
    reader, place = LayerReader(), Layer("config.json", path.parent.absolute(), loaded.workspace.home, path)
    if path.suffix.lower() != ".json" and not content.lstrip().startswith((b"{", b"[")):
        names = [line.name for line in parse_env(decode_env(content)) if line.name]
        return _import_settings(reader.env_file(place), names, loaded)
    parsed = parse_json(path, content)
    document = _as_object(parsed)
    jobs = document.get("jobs", parsed)
    if isinstance(jobs, list):
        return _import_jobs(cast("list[Any]", jobs), loaded.workspace.path / ".lmagent" / "cron.json")
    if servers := _as_object(document.get("mcpServers")) or _as_object(document.get("servers")):
        return _import_servers(servers, loaded.workspace.path / ".lmagent" / "mcp.json")
    if not {"agent", "gateway", "model", "sessions", "reflection"} & document.keys():
        raise ConfigError(f"{path} is JSON, but nothing that can be taken over", fix=f"name {_ACCEPTED}")
    report = _import_settings(reader.config_json(place, content), [], loaded)
    return ImportReport(report.taken, (*report.left, *((unused.name, unused.why) for unused in reader.unused)))


def _import_settings(given: Layer, names: list[str], loaded: Loaded) -> ImportReport:
    """Save settings: secrets first, so that a failure leaves nothing half done in `config.toml`.

    `names`: all variables of a `.env`; those that feed no setting are reported.
    """
    secrets: dict[str, str] = {}
    settings: dict[str, Any] = {}
    taken: list[tuple[str, str]] = []
    used = {entry.origin.name for entry in given.entries.values()}
    left = [
        (name, why_not_used(name) or "it is no setting of lmagent, is empty, or another name of the setting wins")
        for name in dict.fromkeys(names)
        if name not in used
    ]
    for name, entry in given.entries.items():
        setting, key = BY_NAME[name], entry.origin.name
        if not setting.secret:
            settings[name] = toml_of(entry.value)
            taken.append((key, f"{name} in {loaded.config_file}"))
        elif entry.value in PLACEHOLDER_KEYS:
            left.append((key, "it is a placeholder that local servers accept"))
        else:
            secrets[setting.env] = entry.value
            taken.append((key, f"{setting.env} in {loaded.env_file}"))
    if secrets:
        save_env(loaded.env_file, secrets)
    if settings:
        save_settings(loaded.config_file, settings)
    return ImportReport(tuple(taken), tuple(left))


def _import_servers(servers: dict[str, Any], target: Path) -> ImportReport:
    """Add MCP servers to an `mcp.json`; existing servers stay unchanged."""
    old = _as_object(_present(target))
    known = _as_object(old.get("mcpServers"))
    fresh, left = _sorted_out(list(servers.items()), set(known), _Server)
    if fresh:
        _write_json(target, {**old, "mcpServers": {**known, **fresh}})
    return ImportReport(tuple((name, str(target)) for name in fresh), left)


def _import_jobs(jobs: list[Any], target: Path) -> ImportReport:
    """Add scheduled jobs to a `cron.json`; existing jobs stay unchanged."""
    present: Any = _present(target)
    old = cast("list[Any]", present) if isinstance(present, list) else []
    named = [(str(_as_object(job).get("id") or f"job {number}"), job) for number, job in enumerate(jobs, 1)]
    fresh, left = _sorted_out(named, {_as_object(job).get("id") for job in old}, _Job)
    if fresh:
        _write_json(target, [*old, *fresh.values()])
    return ImportReport(tuple((name, str(target)) for name in fresh), left)


def _sorted_out(
    entries: list[tuple[str, Any]], known: set[Any], needs: type[_Server | _Job]
) -> tuple[dict[str, Any], Pairs]:
    """Return the entries that can be added, by name, and the others with the reason."""
    fresh: dict[str, Any] = {}
    left: list[tuple[str, str]] = []
    for name, entry in entries:
        try:
            convert(entry, needs)
        except msgspec.ValidationError as error:
            left.append((name, f"it cannot be used: {error}"))
        else:
            if name in known or name in fresh:
                left.append((name, "the workspace has one of that name"))
            else:
                fresh[name] = entry
    return fresh, tuple(left)


def _as_object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _present(target: Path) -> Any:
    if os.path.islink(target.parent):
        raise ConfigError(f"{target.parent} is a link; nothing is written through it", fix=f"rm {target.parent}")
    content = read_small(target)
    return None if content is None else parse_json(target, content)


def _write_json(target: Path, document: Any) -> None:
    write_private(target, msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
