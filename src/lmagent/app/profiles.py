"""Profiles: how much of a small window the fixed part of the prompt may take.

A session keeps its first profile, since the fixed part never changes. The tools that a small profile leaves out of the
tool block are in the catalogue, and `use_tool` calls them.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from lmagent.core.agent import Window

_CORE = ("read", "write", "edit", "grep", "ls", "shell")
_IN_SHELL = frozenset({"mkdir", "get_time", "git_status", "git_diff", "git_add", "git_branch"})
"""Tools that do the same as a well-known command. Only `git_commit` does more: it has an author."""
_RARE = _IN_SHELL | {"git_commit", "delegate", "decompose"}


class Profile(Struct, frozen=True):
    """The contents of the fixed part.

    Attributes:
        below: tokens of the window up to which it is chosen; 0 for all.
        block: tools whose schemas are always sent; None for all that are not deferred.
        hidden: tools that the catalogue leaves out; they can still be called.
    """

    name: str
    below: int
    system: str = "system.md"
    block: tuple[str, ...] | None = None
    hidden: frozenset[str] = _IN_SHELL
    instructions: int = 8000


PROFILES = (
    Profile("4k", 6_000, "system-small.md", _CORE, _RARE, instructions=1000),
    Profile("8k", 12_000, "system-small.md", _CORE, _RARE, instructions=2000),
    Profile("16k", 24_000, instructions=4000),
    Profile("32k", 0),
)
"""The smallest windows in use are 4,096 tokens; from 32k on there is room for everything."""


def profile_for(window: Window) -> Profile:
    return next(profile for profile in PROFILES if not profile.below or window.tokens < profile.below)


def system_text(profile: Profile = PROFILES[-1]) -> str:
    return Path(__file__).with_name(profile.system).read_text(encoding="utf-8").strip()
