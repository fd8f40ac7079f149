"""Project: the check that a project has of its own, and whether anything could have checked what was changed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from lmagent.engine.evidence.disk import beginning
from lmagent.engine.evidence.table import CODE

_TARGET = re.compile(r"^(check|tests?|verify)\s*:(?!=)", re.MULTILINE)

_MORE_CODE = (".sh", ".bash", ".pl", ".pm", ".lua", ".r", ".R", ".jl", ".dart", ".zig", ".hs", ".clj", ".sql", ".ps1")
"""Suffixes of code for which no runner is known."""


def is_code(paths: Iterable[str]) -> bool:
    """Whether code is among these paths."""
    return any(path.endswith((*CODE, *_MORE_CODE)) for path in paths)


def own_checks(workspace: Path) -> tuple[str, ...]:
    """Commands with which a project checks itself, as far as its files tell; the most likely one first."""
    makefile = beginning(workspace / "Makefile") or beginning(workspace / "makefile")
    targets = _TARGET.findall(makefile)
    found = [f"make {min(targets, key=('check', 'test', 'tests', 'verify').index)}"] if targets else []
    script = _script(beginning(workspace / "package.json"))
    if script and "no test specified" not in script:
        found.append("npm test")
    configured = "[tool.pytest" in beginning(workspace / "pyproject.toml") or "[tool:pytest]" in beginning(
        workspace / "setup.cfg"
    )
    if configured or any((workspace / name).exists() for name in ("pytest.ini", "conftest.py", "tests/conftest.py")):
        found.append("python3 -m pytest")
    if (workspace / "Cargo.toml").exists():
        found.append("cargo test")
    if (workspace / "go.mod").exists():
        found.append("go test ./...")
    return tuple(found)


def _script(text: str) -> str:
    """The test script of a package.json."""
    with suppress(ValueError, RecursionError):
        package: Any = json.loads(text)
        scripts: Any = package.get("scripts") if isinstance(package, dict) else None  # type: ignore[reportUnknownMemberType]
        script: Any = scripts.get("test") if isinstance(scripts, dict) else None  # type: ignore[reportUnknownMemberType]
        return script if isinstance(script, str) else ""
    return ""
