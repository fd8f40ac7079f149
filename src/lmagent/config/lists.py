"""Lists: `mcp.json` and `cron.json` of the older systems, entry by entry into the workspace's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import msgspec

from lmagent.config.files import read_small, write_private
from lmagent.core.decoding import json_fault
from lmagent.core.errors import ConfigError

Pairs = tuple[tuple[str, str], ...]


def import_servers(servers: dict[str, Any], target: Path) -> tuple[Pairs, Pairs]:
    """Add MCP servers to an `mcp.json`; one that is there already stays as it is.

    Returns:
        What was taken and where to, what was left and why.

    Raises:
        ConfigError: the target is damaged or cannot be written.
    """
    old = as_object(_present(target))
    known = as_object(old.get("mcpServers"))
    fresh: dict[str, Any] = {}
    left: list[tuple[str, str]] = []
    for name, server in servers.items():
        problem = _server_problem(as_object(server)) or (f"{target} has one of that name" if name in known else "")
        if problem:
            left.append((name, problem))
        else:
            fresh[name] = server
    if fresh:
        _write_json(target, {**old, "mcpServers": {**known, **fresh}})
    return tuple((name, str(target)) for name in fresh), tuple(left)


def import_jobs(jobs: list[Any], target: Path) -> tuple[Pairs, Pairs]:
    """Add scheduled jobs to a `cron.json`; one whose id is there already stays as it is.

    Returns:
        What was taken and where to, what was left and why.

    Raises:
        ConfigError: the target is damaged or cannot be written.
    """
    old = as_list(_present(target))
    known = {as_object(job).get("id") for job in old}
    fresh: dict[str, Any] = {}
    left: list[tuple[str, str]] = []
    for number, job in enumerate(jobs, 1):
        missing = _missing(as_object(job))
        if missing:
            left.append((f"job {number}", f"it has no {' and no '.join(missing)}"))
        elif job["id"] in known or job["id"] in fresh:
            left.append((job["id"], f"{target} has one of that id"))
        else:
            fresh[job["id"]] = job
    if fresh:
        _write_json(target, [*old, *fresh.values()])
    return tuple((name, str(target)) for name in fresh), tuple(left)


def parse_json(path: Path, content: bytes) -> Any:
    """The document in a file's content.

    Raises:
        ConfigError: it is no JSON.
    """
    try:
        return msgspec.json.decode(content.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(
            f"{path} is not valid JSON: {_fault(content, error)}", fix="correct it, then try again"
        ) from error


def _fault(content: bytes, error: Exception) -> str:
    """Describe what is wrong with a JSON text, with the line if the parser knows it."""
    fault = json_fault(content)
    return f"line {fault.lineno}, column {fault.colno}: {fault.msg}" if fault is not None else str(error)


def as_object(value: Any) -> dict[str, Any]:
    """The value if it is a JSON object, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """The value if it is a JSON list, else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def _server_problem(server: dict[str, Any]) -> str:
    """Why an entry is no MCP server; empty if it is one."""
    if not isinstance(server.get("command"), str) and not isinstance(server.get("url"), str):
        return "it has neither a command nor a url"
    args: Any = server.get("args", [])
    if not isinstance(args, list) or not all(isinstance(arg, str) for arg in as_list(args)):
        return "its args are not a list of texts"
    env: Any = server.get("env", {})
    if not isinstance(env, dict) or not all(isinstance(text, str) for text in as_object(env).values()):
        return "its env is not an object of texts"
    return ""


def _missing(job: dict[str, Any]) -> list[str]:
    return [key for key in ("id", "schedule", "prompt") if not isinstance(job.get(key), str) or not job[key]]


def _present(target: Path) -> Any:
    """What the target holds already, or None."""
    if os.path.islink(target.parent):
        raise ConfigError(f"{target.parent} is a link; nothing is written through it", fix=f"rm {target.parent}")
    content = read_small(target)
    return None if content is None else parse_json(target, content)


def _write_json(target: Path, document: Any) -> None:
    write_private(target, msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
