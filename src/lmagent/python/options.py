"""Options: what a program gives to `Agent(…)`, checked at once and under the names that the program used."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lmagent.config.names import FIELD_OF, closest
from lmagent.config.paths import home_dir
from lmagent.config.settings import BY_NAME
from lmagent.core.errors import ConfigError

NO_TOOLS = ("nothing",)
"""Names no tool: the list of allowed tools that allows none."""


def flags_of(named: Mapping[str, tuple[str, Any]], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a program gives: by arguments of their own, and by name.

    Args:
        named: the setting and the value of each argument; None and an empty text were not given.
        settings: rows of docs/configuration.md.

    Raises ConfigError: a name is unknown, or a value not allowed.
    """
    flags: dict[str, Any] = {}
    for argument, (name, value) in named.items():
        if value is not None and value != "":
            flags[name] = _checked(argument, name, value)
            if name in settings:
                raise ConfigError(f"{argument}= and settings[{name!r}] set the same", fix="leave one of them out")
    for name, value in settings.items():
        if name not in BY_NAME:
            meant = FIELD_OF.get(name.upper()) or closest(name.lower(), BY_NAME)
            fix = f"did you mean {meant!r}?" if meant else "docs/configuration.md lists them"
            raise ConfigError(f"settings={{…}}: there is no setting {name!r}", fix=fix)
        if name == "workspace":
            raise ConfigError("settings={…}: the workspace is an argument of its own", fix="Agent(workspace=…)")
        flags[name] = _checked(f"settings[{name!r}]", name, value)
    return flags


def _checked(argument: str, name: str, value: Any) -> Any:
    setting = BY_NAME[name]
    if setting.optional and value is None:
        return "none"  # a flag that is None counts as not given
    try:
        setting.read(value, Path.cwd(), home_dir(os.environ), text=isinstance(value, str))
    except ValueError as wrong:
        raise ConfigError(f"{argument} {wrong}", fix="correct it, or leave it out") from None
    return value


def allow(flags: dict[str, Any], own: Sequence[str], asking: Sequence[str], builtin: Sequence[str] | None) -> None:
    """Add the rules for a program's tools: giving a tool to the agent allows its calls, unless it asks.

    `builtin`: the only tools of lmagent that are offered; None for all.
    """
    for name, tools in (("permission_allow", own), ("permission_ask", asking)):
        given = flags.get(name, ())
        if tools:
            flags[name] = (*([given] if isinstance(given, str) else given), *tools)
    if builtin is not None:
        if "tools_allow" in flags:
            raise ConfigError("builtin_tools= and settings['tools_allow'] set the same", fix="leave one of them out")
        flags["tools_allow"] = tuple(builtin) or NO_TOOLS


def absolute(path: str | os.PathLike[str] | None) -> Path | None:
    """Return a path of the program, which may change its current folder later."""
    return None if path is None else Path(os.path.abspath(os.path.expanduser(path)))
