"""The prompt: its fixed part by the size of the window, and the notes at its tail: the date, the instructions.

A local model reads every byte before its first word, so each sentence has to earn its place. A session keeps its first
profile, since the fixed part never changes; `use_tool` calls the tools that a small profile leaves out.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from lmagent.config.settings import Settings
from lmagent.core.agent import Window
from lmagent.core.commands import SetOptions
from lmagent.core.events import DurableEvent, OptionsChanged
from lmagent.core.ports import Clock
from lmagent.sandbox.environment import base_environment, toolchains
from lmagent.tools.sanitize import one_line

if TYPE_CHECKING:
    from lmagent.app.registry import Registry
    from lmagent.engine.session import Session

_CORE = ("read", "write", "edit", "grep", "ls", "shell")
# Tools that do the same as a well-known command. Only `git_commit` does more: it has an author.
_IN_SHELL = frozenset({"mkdir", "get_time", "git_status", "git_diff", "git_add", "git_branch"})
_RARE = _IN_SHELL | {"git_commit", "delegate", "decompose", "promote_skill", "data_view", "data_plot"}


class Profile(Struct, frozen=True):
    """The contents of the fixed part."""

    name: str
    below: int  # tokens of the window up to which it is chosen; 0 for all
    system: str = "system.md"
    block: tuple[str, ...] | None = None  # tools whose schemas are always sent; None for all that are not deferred
    hidden: frozenset[str] = _IN_SHELL  # tools that the catalogue leaves out; they can still be called
    instructions: int = 8000


# The smallest windows in use are 4,096 tokens; from 32k on there is room for everything.
PROFILES = (
    Profile("4k", 6_000, "system-small.md", _CORE, _RARE, instructions=1000),
    Profile("8k", 12_000, "system-small.md", _CORE, _RARE, instructions=2000),
    Profile("16k", 24_000, instructions=4000),
    Profile("32k", 0),
)


def profile_for(window: Window) -> Profile:
    return next(profile for profile in PROFILES if not profile.below or window.tokens < profile.below)


def system_text(profile: Profile = PROFILES[-1]) -> str:
    return Path(__file__).with_name(profile.system).read_text(encoding="utf-8").strip()


# --- notes ------------------------------------------------------------------------------------------------------------

DATE_NOTE = r"<date>Today is [^<]*</date>"  # the note differs between days: a replay of a recorded run ignores it

SESSION_NOTE = "instructions"

WITHDRAWN = "The user has withdrawn the instructions for this session."


def date_note(clock: Clock) -> Callable[[], str]:
    """Return a note source of today's date; the tool get_time gives the time of day."""

    def note() -> str:
        now = datetime.fromtimestamp(clock.now()).astimezone()
        return f"<date>Today is {now:%A, %Y-%m-%d} ({now:%Z}).</date>"

    return note


async def set_options(session: Session, command: SetOptions) -> DurableEvent | None:
    """Record the options; return None if they hold already."""
    if command.options == session.state.work.options:
        return None
    return await session.record(OptionsChanged(options=command.options, by=command.by), sync=True)


def instructions_note(registry: Registry, id: str) -> str:
    """Return the note with a session's instructions; a sub-agent has those of the session that it works for.

    It comes at the tail when it changes: the system text stays as it was sent, so nothing is read again.
    """
    session = top = registry.session(id)
    while top.above is not None:
        top = top.above
    text = top.state.work.options.instructions.strip()
    if text:
        text = f"What the user wants in this session, besides the task:\n{text}"
    elif SESSION_NOTE in session.state.notes:
        text = WITHDRAWN
    return f"<{SESSION_NOTE}>\n{text}\n</{SESSION_NOTE}>" if text else ""


# --- the machine ------------------------------------------------------------------------------------------------------

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
