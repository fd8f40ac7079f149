"""Exports: what variables of earlier commands say against a check."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lmagent.engine.evidence.line import HARMLESS, is_harmless
from lmagent.engine.evidence.places import named
from lmagent.engine.shellline.variables import is_dangerous

_DECIDING = re.compile(r"TEST|CHECK|LINT|ARGS|SKIP|ONLY|TARGET|PYTHON|NODE|MAKE", re.IGNORECASE)
_SAFE_PATH = re.compile(r"/(?:usr|bin|sbin|opt|nix|snap)(?:/.*)?")
_OWN_PATH = re.compile(r"(?:(?:\.?venv|env)(?:/(?:bin|Scripts))?|node_modules/\.bin)")


def unknown(exports: Mapping[str, str]) -> str:
    """Variables of earlier commands of which nobody knows what they decide."""
    known = (*HARMLESS, "PATH", "VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT")
    names = [name for name, value in exports.items() if name not in known and not is_harmless(f"{name}={value}")]
    return f"{named(names)} {'was' if len(names) == 1 else 'were'} set before" if names else ""


def deciding(exports: dict[str, str], workspace: str) -> str:
    """Variables of earlier commands that may decide what a check does."""
    for name, value in exports.items():
        if is_harmless(f"{name}={value}"):
            continue
        if name == "PATH":
            good = all(_SAFE_PATH.fullmatch(entry) or _is_own(entry, workspace) for entry in str(value).split(":"))
        elif name.startswith("VIRTUAL_ENV"):
            good = _is_own(str(value), workspace) or name.endswith("PROMPT")
        else:
            good = not is_dangerous(name) and _DECIDING.search(name) is None
        if not good:
            undo = "" if name == "PATH" else f" (unset {name})"
            return f"{name} was set before, which may decide what it does{undo}"
    return ""


def _is_own(path: str, workspace: str) -> bool:
    """Whether it is where a project keeps its own programs: what changes there is seen."""
    roots = (f"{workspace}/", "/workspace/")
    return any(path.startswith(root) and _OWN_PATH.fullmatch(path.removeprefix(root)) for root in roots)
