"""Translates arguments that models know from the tools of other agents into those of ours.

A model writes the arguments that it was trained with. Other names are in each tool's `renames`, defaults of ours in
`implied`; this module handles the rest. Arguments that are unknown here stay, and are refused by their name.
"""

from __future__ import annotations

from typing import Any, cast


def read(arguments: dict[str, Any]) -> dict[str, Any]:
    """Accept a last line instead of a number of lines, and both lines in a list."""
    ours = dict(arguments)
    pair = next((ours[key] for key in ("view_range", "line_range", "range") if isinstance(ours.get(key), list)), None)
    if pair is not None and len(cast("list[Any]", pair)) == 2 and "offset" not in ours:
        ours["offset"], ours["end_line"] = pair
        for key in ("view_range", "line_range", "range"):
            ours.pop(key, None)
    named = next((key for key in ("end_line", "end", "last_line", "to_line", "line_end") if key in ours), None)
    if named is None or "limit" in ours:
        return ours
    first, last = _whole(ours.get("offset", 1)), _whole(ours[named])
    if first is not None and last == -1:
        del ours[named]  # to the end, a page at a time
    elif first is not None and last is not None and last >= first > 0:
        ours["limit"] = last - first + 1
        del ours[named]
    return ours


def write(arguments: dict[str, Any]) -> dict[str, Any]:
    """Accept a flag for appending."""
    ours = dict(arguments)
    if ours.get("append") in (True, "true") and "mode" not in ours:
        ours["mode"] = "append"
        del ours["append"]
    return ours


def glob(arguments: dict[str, Any]) -> dict[str, Any]:
    """Accept a directory to look in."""
    ours = dict(arguments)
    folder = next((key for key in ("path", "directory", "dir", "dir_path", "cwd", "root") if key in ours), None)
    where, pattern = ours.get(folder or ""), ours.get("pattern")
    if folder is None or not isinstance(where, str) or not isinstance(pattern, str) or pattern.startswith("/"):
        return ours
    if not any(mark in where for mark in "*?[{"):
        inside = where.rstrip("/") if where != "/" else where
        ours["pattern"] = pattern if inside in ("", ".", "./") else f"{inside.removesuffix('/')}/{pattern}"
        del ours[folder]
    return ours


def ls(arguments: dict[str, Any]) -> dict[str, Any]:
    """Accept "all levels": as many as a page shows."""
    ours = dict(arguments)
    if ours.get("recursive") in (True, "true"):
        from lmagent.tools.listing import LEVELS

        ours.setdefault("depth", LEVELS)
        del ours["recursive"]
    return ours


def grep(arguments: dict[str, Any]) -> dict[str, Any]:
    """Accept a flag for case sensitivity."""
    ours = dict(arguments)
    loose = next((key for key in ("_i", "i", "ignore_case", "case_insensitive") if ours.get(key) is True), None)
    if ours.get("case_sensitive") is False:
        loose = loose or "case_sensitive"
    pattern = ours.get("pattern")
    if loose is None or not isinstance(pattern, str):
        return ours
    import re

    ours["pattern"] = f"(?i){pattern if ours.get('regex') in (True, 'true') else re.escape(pattern)}"
    ours["regex"] = True
    del ours[loose]
    return ours


def shell(arguments: dict[str, Any]) -> dict[str, Any]:
    """Accept a working folder, by a `cd` before the command, and a memory limit, which the command's shell sets."""
    ours = dict(arguments)
    memory = _whole(ours.get("max_memory_mb"))  # more than the sandbox allows has no effect
    if memory is not None and memory > 0 and isinstance(ours.get("command"), str):
        ours["command"] = f"ulimit -Sv {memory << 10} 2>/dev/null\n{ours['command']}"
        del ours["max_memory_mb"]
    folder = next((key for key in ("cwd", "workdir", "working_directory", "directory", "dir") if key in ours), None)
    command, where = ours.get("command"), ours.get(folder or "")
    if folder is None or not isinstance(command, str) or not isinstance(where, str) or not where.strip():
        return ours
    import shlex

    there = f"cd {shlex.quote(where)}"
    ours["command"] = f"{there} || exit 1\n{command}" if "\n" in command.strip() else f"{there} && {command}"
    del ours[folder]
    return ours


def _whole(value: Any) -> int | None:
    try:
        return None if isinstance(value, bool) else int(value)
    except (TypeError, ValueError):
        return None
