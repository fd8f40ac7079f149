"""Feature: the tools of skills, and the note that lists them; without skills on the disk, only `promote_skill`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from lmagent.core.notes import fitting
from lmagent.core.tool import Tool
from lmagent.skills.tools import Confinement, promote_tool, python_skill_tools, text_skill_tool

if TYPE_CHECKING:
    from lmagent.skills.shelf import Shelf, Skill

FOLDERS = (Path(".lmagent", "skills"), Path(".claude", "skills"))  # in the workspace
USERS = Path(".agents", "skills")  # in the user's home folder

NOTE = "skills"
ROOM = 600  # characters of the list in a prompt
LONGEST = 120  # characters of a description there


class SkillPlaces(Struct, frozen=True):
    """Where skills are, and where the user's decisions about them.

    Attributes:
        trusted: whether the user trusts the workspace.
        taken: the names that no Python skill can have, since other tools have them.
        project: the skills of an agent project: the chosen ones of this folder are the only ones, and enabled.
    """

    workspace: Path
    home: Path
    data_dir: Path
    trusted: Callable[[], bool]
    taken: frozenset[str]
    project: Path | None = None
    chosen: frozenset[str] = frozenset()

    @property
    def roots(self) -> tuple[Path, ...]:
        if self.project is not None:
            return (self.project,)
        return (*(self.workspace / folder for folder in FOLDERS), self.home / USERS)


class Skills:
    """The skills of a program, and where they run."""

    def __init__(self, places: SkillPlaces, sandbox: Confinement) -> None:
        self._places = places
        self.sandbox = sandbox

    @cached_property
    def shelf(self) -> Shelf:
        from lmagent.skills.shelf import Shelf

        return Shelf(self._places)

    @cached_property
    def _enabled(self) -> Sequence[Skill]:
        return self.shelf.enabled() if any(root.is_dir() for root in self._places.roots) else ()

    @property
    def tools(self) -> Iterator[Tool]:
        if self._places.project is None:  # it cannot change its project
            yield promote_tool(lambda: self.shelf, self.sandbox)
        if any(skill.text is not None for skill in self._enabled):
            yield text_skill_tool(lambda: self.shelf)
        yield from python_skill_tools(lambda: self.shelf, self.sandbox, self._enabled)

    def note(self) -> str:
        """Return the list of text skills; empty without any."""
        texts = [skill for skill in self._enabled if skill.text is not None]
        rows = fitting([f"- {skill.name}: {skill.description[:LONGEST]}" for skill in texts], ROOM)
        head = "Skills; read one with the tool skill before work that it describes:"
        return "\n".join((f"<{NOTE}>", head, *rows, f"</{NOTE}>")) if rows else ""
