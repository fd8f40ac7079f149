"""Skilling: the skills of a workspace for the user: tried in its sandbox, enabled, and taken from files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TypeVar

import anyio
from msgspec import Struct

from lmagent.app.host import Host
from lmagent.app.options import HostOptions, load_settings
from lmagent.app.registry import Registry
from lmagent.app.wiring import open_registry
from lmagent.core.errors import ConfigError, LmagentError
from lmagent.skills.calls import proposed
from lmagent.skills.feature import Skills
from lmagent.skills.python import functions_in
from lmagent.skills.run import SkillResult, test
from lmagent.skills.shelf import LARGEST, Shelf, Skill
from lmagent.skills.tools import python_skill_tools

T = TypeVar("T")


class SkillTools(Struct, frozen=True):
    """The skills of a workspace, for programs that end after one call."""

    registry: Registry

    @property
    def shelf(self) -> Shelf:
        return skills_of(self.registry).shelf

    def test(self, name: str) -> SkillResult:
        return self._done(test, self.shelf, self.shelf.find(name), skills_of(self.registry).sandbox)

    def enable(self, name: str) -> SkillResult:
        """Enable a skill that passes its trial; return the trial's result."""
        return self._done(enable, skills_of(self.registry), self.shelf.find(name))

    def take(self, path: Path, say: Callable[[str, str], None]) -> int:
        """Propose the functions of a file or folder; `say` receives each name with what happened. Return how many
        functions are proposals."""
        files = sorted(path.glob("*.py")) if path.is_dir() else [path]
        if not files:
            raise ConfigError(f"{path} holds no Python files", fix="name a folder of skills, or one file")
        return self._done(take, skills_of(self.registry), files, say)

    def _done(self, do: Callable[..., Awaitable[T]], *arguments: object) -> T:
        async def closing() -> T:
            try:
                return await do(*arguments)
            finally:
                await self.registry.confined.aclose()

        return anyio.run(closing)


def open_skills(workspace: Path | None) -> SkillTools:
    return SkillTools(open_registry(load_settings(HostOptions(workspace))))


def skills_of(registry: Registry) -> Skills:
    if registry.skills is None:
        raise ConfigError("this program has no skills")
    return registry.skills


async def take(skills: Skills, files: Iterable[Path], say: Callable[[str, str], None]) -> int:
    taken = 0
    for file in files:
        code = file.read_text(encoding="utf-8", errors="replace")[:LARGEST]
        try:
            names = functions_in(code, str(file))
        except ConfigError as wrong:
            say(file.name, str(wrong))
            continue
        for name in names:
            try:
                say(name, await proposed(skills.shelf, skills.sandbox, code, str(file), name, name, None))
                taken += 1
            except LmagentError as wrong:
                say(name, str(wrong))
    return taken


async def enable(skills: Skills, skill: Skill) -> SkillResult:
    """Enable a skill with the content that it was found with, if it passes its trial; return the trial's result."""
    result = await test(skills.shelf, skill, skills.sandbox)
    if result.ok:
        skills.shelf.enable(skill)
    return result


def offer(host: Host, skill: Skill) -> bool:
    """Offer the tool of an enabled Python skill at once; the catalogue grows at the tail of each session. Return
    whether open sessions get the skill: text skills are listed in new ones."""
    if skill.manifest is None:
        return False
    if skill.name not in {tool.name for tool in host.toolbox}:
        skills = skills_of(host.registry)
        for tool in python_skill_tools(lambda: skills.shelf, skills.sandbox, [skill]):
            host.toolbox.add(tool)
    return True
