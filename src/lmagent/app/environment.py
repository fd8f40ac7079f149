"""Environment: one note to the model about the machine, for the whole session.

Whether a user answers approvals may change within a session, so it is a note of its own. The facts are found without
running a program: the sandbox itself is chosen when the first command needs it.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from functools import cached_property
from pathlib import Path

from lmagent.config.settings import Settings
from lmagent.sandbox.environment import base_environment, toolchains
from lmagent.tools.sanitize import one_line

# The notes differ between machines and surfaces: a replay of a recorded run ignores them.
ENVIRONMENT_NOTE = r"<(environment|approvals)>[^<]*</\1>"

_SYSTEMS = {"linux": "Linux", "darwin": "macOS", "win32": "Windows"}
_KEPT = {
    "bubblewrap": " /tmp and ~ are kept between calls.",
    "docker": " /tmp and ~ are kept between calls.",
    "landlock": " There is no /tmp: use $TMPDIR.",
}


class Environment:
    """Facts about the machine at the start of the program."""

    def __init__(self, workspace: Path, settings: Settings, env: dict[str, str]) -> None:
        self._workspace = workspace
        self._settings = settings
        self._env = env

    @cached_property
    def note(self) -> str:
        """Return the facts. They are found once, so that later changes of the machine do not change the note."""
        backend = self._backend
        where = "/workspace in commands" if backend == "docker" else ""
        git = "a git repository" if os.path.lexists(self._workspace / ".git") else "not a git repository"
        inside = ", ".join(part for part in (where, git) if part)
        system = "Linux" if backend == "docker" else _SYSTEMS.get(sys.platform, sys.platform)
        sandboxed = "not sandboxed" if backend == "off" else self._network
        return (
            f"<environment>{system}, bash{self._programs}. "
            f"Workspace: {one_line(str(self._workspace), 500)} ({inside}). "
            f"Commands: {sandboxed}, 120 s unless you give a timeout.{_KEPT.get(backend, '')}</environment>"
        )

    @property
    def _backend(self) -> str:
        """Return the configured sandbox; for auto, the first candidate."""
        wanted = self._settings.sandbox
        if wanted != "auto":
            return wanted
        found = sys.platform == "linux" and shutil.which("bwrap", path=self._env.get("PATH", os.defpath))
        return "bubblewrap" if found else "docker"

    @property
    def _network(self) -> str:
        if self._backend == "docker" and self._settings.docker_network != "none":
            return "with network"
        hosts = self._settings.sandbox_hosts
        return f"no network but {one_line(', '.join(hosts), 200)}" if hosts else "no network"

    @property
    def _programs(self) -> str:
        """Return the programs that commands find; those of an image are unknown."""
        if self._backend == "docker":
            return ""
        home = Path(self._env.get("HOME", os.sep))
        extra = [Path(entry).expanduser() for entry in self._settings.sandbox_read.split(os.pathsep) if entry]
        seen = (Path(os.sep),) if self._backend == "off" else (*toolchains(home, extra), self._workspace)
        path = base_environment(self._env, seen)["PATH"]
        found = {name: shutil.which(name, path=path) for name in ("python3", "git", "node")}
        there = [_version(name, where) for name, where in found.items() if where]
        return "".join(f", {name}" for name in (*there, *(f"no {name}" for name, where in found.items() if not where)))


def approvals_note(*, attended: bool) -> str:
    told = "The user answers approvals." if attended else "Nobody answers approvals: a call that needs one is denied."
    return f"<approvals>{told}</approvals>"


def _version(name: str, place: str) -> str:
    """Return the name with the version from the link's target, such as python3.12."""
    match = re.fullmatch(rf"{name}\.\d+", os.path.basename(os.path.realpath(place)))
    return match[0] if match else name
