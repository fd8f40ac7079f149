"""Config: the files that name hooks, in Claude Code's form, and which of them may run.

    {"hooks": {"PreToolUse": [{"matcher": "Edit|Write", "hooks": [{"type": "command", "command": "…"}]}]}}

A workspace's file counts only with the content that the user trusted. The files are read once, at the start: a model
that changes one of them switches no hook off before the next start.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from shlex import quote
from typing import Any, Literal, cast

from msgspec import Struct

from lmagent.config.files import read_small
from lmagent.config.trust import HOOK_FILES, is_trusted, trusts
from lmagent.core.errors import ConfigError

EVENTS = (
    *("PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop", "SubagentStop"),
    *("SessionStart", "SessionEnd", "PreCompact", "Notification"),
)

USUAL, LONGEST = 60.0, 600.0
"""Seconds that a hook may take, if its entry names no `timeout`, and at most."""

MOST_REPEATS = 4
"""Repeated characters of a matcher: a pattern with many, or with repeated groups, can take hours for one name."""

Scope = Literal["user", "workspace"]
State = Literal["used", "untrusted", "changed", "broken", "off"]


class Hook(Struct, frozen=True):
    """A configured command.

    Attributes:
        matcher: the tools, or the sources of the event, that it is for; empty for all.
        scope: whose file names it. Only the user's own can leave the sandbox, or allow a call without a question.
        sandbox: it runs in the workspace's sandbox.
    """

    event: str
    command: str
    file: Path
    scope: Scope
    matcher: str = ""
    timeout: float = USUAL
    sandbox: bool = True


class HookFile(Struct, frozen=True):
    """A file that names hooks, and why they do not run unless its state is `used`.

    Attributes:
        fix: what to type next.
        left: entries that this version does not run, in words.
    """

    path: Path
    scope: Scope
    state: State
    hooks: tuple[Hook, ...] = ()
    reason: str = ""
    fix: str = ""
    left: tuple[str, ...] = ()


class _Fault(Exception):
    """An entry that cannot be understood; `near` is a key on its line or above it."""

    def __init__(self, text: str, near: str) -> None:
        super().__init__(text)
        self.near = near


def read_hooks(workspace: Path, data_dir: Path, own: Sequence[Path]) -> tuple[HookFile, ...]:
    """Return the files with hooks: the user's `own`, then the workspace's. Files without hooks are left out."""
    found = [_read(path, "user", workspace, data_dir) for path in own]
    found += [_read(workspace / name, "workspace", workspace, data_dir) for name in HOOK_FILES]
    return tuple(file for file in found if file is not None)


_NAMES = re.compile(r"[\w|-]+")
_REPEATS = re.compile(r"[*+{]|(?<!\()\?")


def matches(matcher: str, names: Sequence[str]) -> bool:
    """Return whether a matcher is for one of the names: all if it is empty, names with `|` between, or a pattern."""
    if matcher in ("", "*"):
        return True
    if _NAMES.fullmatch(matcher):
        return any(name in matcher.split("|") for name in names)
    return any(_pattern(matcher).search(name) is not None for name in names)


@lru_cache(maxsize=64)
def _pattern(matcher: str) -> re.Pattern[str]:
    return re.compile(matcher)


def _read(path: Path, scope: Scope, workspace: Path, data_dir: Path) -> HookFile | None:
    try:
        content = read_small(path)
    except ConfigError as failure:
        return HookFile(path, scope, "broken", reason=failure.message, fix=failure.fix)
    if content is None:
        return None
    left = list[str]()
    try:
        text = content.decode("utf-8-sig")
        document: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = f"line {error.lineno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else str(error)
        return HookFile(path, scope, "broken", reason=f"{path}, {where}: it is not valid JSON", fix="correct it")
    try:
        hooks = tuple(_entries(document, path, scope, left))
    except _Fault as fault:
        line = text.count("\n", 0, max(0, text.find(f'"{fault.near}"'))) + 1
        return HookFile(path, scope, "broken", reason=f"{path}, line {line}: {fault}", fix="see docs/hooks.md")
    if not hooks and not left:
        return None
    if cast("dict[str, Any]", document).get("disableAllHooks") is True:
        return HookFile(path, scope, "off", hooks, "disableAllHooks is set in it", "take that line out", tuple(left))
    if scope == "workspace" and not trusts(data_dir, workspace, path, content):
        changed = is_trusted(data_dir, workspace)
        why = "it has changed since you trusted the folder" if changed else "you do not trust the folder"
        fix = f"read it, and if you agree with it type: lmagent config trust {quote(str(workspace))}"
        return HookFile(path, scope, "changed" if changed else "untrusted", hooks, why, fix, tuple(left))
    return HookFile(path, scope, "used", hooks, left=tuple(left))


def _entries(document: Any, path: Path, scope: Scope, left: list[str]) -> Iterator[Hook]:
    if not isinstance(document, dict):
        raise _Fault("it must hold a JSON object", "")
    events = cast("dict[str, Any]", document).get("hooks", {})
    if not isinstance(events, dict):
        raise _Fault("`hooks` must be an object: an event, and its list", "hooks")
    for event, groups in cast("dict[str, Any]", events).items():
        if event not in EVENTS:
            left.append(f"{event}: there is no such event here")
            continue
        if not isinstance(groups, list):
            raise _Fault(f"`{event}` must be a list", event)
        for group in cast("list[Any]", groups):
            yield from _group(event, group, path, scope, left)


def _check(matcher: str, event: str) -> None:
    """Raise _Fault for a pattern that is not valid, or that may take long: names of tools come from servers too."""
    try:
        re.compile(matcher if matcher != "*" else "")
    except (re.error, RecursionError, OverflowError) as error:
        raise _Fault(f"the matcher {matcher[:100]!r} is no valid pattern: {error}", event) from None
    if re.search(r"\)[*+{]", matcher) or len(_REPEATS.findall(matcher)) > MOST_REPEATS:
        what = f"the matcher {matcher[:100]!r} repeats a group, or more than {MOST_REPEATS} characters"
        raise _Fault(f"{what}: write it simpler", event)


def _group(event: str, group: Any, path: Path, scope: Scope, left: list[str]) -> Iterator[Hook]:
    entry = cast("dict[str, Any]", group) if isinstance(group, dict) else {}
    matcher, commands = entry.get("matcher") or "", entry.get("hooks")
    if not isinstance(commands, list) or not isinstance(matcher, str):
        raise _Fault(f'an entry of `{event}` must be {{"matcher": "…", "hooks": […]}}', event)
    _check(matcher, event)
    for each in cast("list[Any]", commands):
        known = cast("dict[str, Any]", each) if isinstance(each, dict) else {}
        kind, command, timeout = known.get("type", "command"), known.get("command"), known.get("timeout", USUAL)
        if kind != "command":
            left.append(f"{event}: a hook of type {kind!r}")
            continue
        if not isinstance(command, str) or not command.strip() or "\0" in command:
            raise _Fault(f"a hook of `{event}` needs a `command`", event)
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
            raise _Fault(f"`timeout` of a hook of `{event}` must be a number of seconds", event)
        # A workspace's file cannot ask to leave the sandbox.
        sandbox = scope == "workspace" or known.get("sandbox") is not False
        yield Hook(event, command, path, scope, matcher, min(float(timeout), LONGEST), sandbox)
