"""Skilling: the skills of a workspace for the user: tried in its sandbox, enabled, and taken from files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
from msgspec import Struct

from lmagent.app.host import Host
from lmagent.app.options import HostOptions, load_settings
from lmagent.app.registry import Registry
from lmagent.app.wiring import features, registry_of, skill_confinement, skill_places
from lmagent.config.workspace import open_workspace
from lmagent.core.errors import ConfigError, LmagentError
from lmagent.skills.calls import proposed
from lmagent.skills.python import functions_in
from lmagent.skills.run import SkillResult, test
from lmagent.skills.shelf import LARGEST, Shelf, Skill
from lmagent.skills.tools import python_skill_tools

T = TypeVar("T")


class SkillTools(Struct, frozen=True):
    """The shelf of a workspace, and the registry that has its sandbox and the names of all tools."""

    registry: Registry
    shelf: Shelf

    def test(self, name: str) -> SkillResult:
        return anyio.run(
            self._closing, partial(test, self.shelf, self.shelf.find(name), skill_confinement(self.registry))
        )

    def enable(self, name: str) -> SkillResult:
        """Enable a skill that passes its trial; return the trial's result."""
        return anyio.run(self._closing, partial(enable, self.shelf, self.shelf.find(name), self.registry))

    def take(self, path: Path) -> Iterator[tuple[str, str, bool]]:
        """Propose the functions of a file or folder; yield each name, what happened, and whether it was taken."""
        files = sorted(path.glob("*.py")) if path.is_dir() else [path]
        if not files:
            raise ConfigError(f"{path} holds no Python files", fix="name a folder of skills, or one file")
        for file in files:
            code = file.read_text(encoding="utf-8", errors="replace")[:LARGEST]
            try:
                names = functions_in(code, str(file))
            except ConfigError as wrong:
                yield file.name, str(wrong), False
                continue
            for name in names:
                try:
                    text = anyio.run(self._closing, partial(self._propose, code, file, name))
                except LmagentError as wrong:
                    yield name, str(wrong), False
                else:
                    yield name, text, True

    async def _propose(self, code: str, file: Path, name: str) -> str:
        python = {skill.name for skill in self.shelf.all() if skill.manifest is not None}
        if name not in python and name_is_taken(self.registry, name):
            raise ConfigError(f"{name!r} is the name of another tool", fix="rename the function")
        return await proposed(self.shelf, skill_confinement(self.registry), code, str(file), name, name, None)

    async def _closing(self, do: Callable[[], Awaitable[T]]) -> T:
        try:
            return await do()
        finally:
            await self.registry.confined.aclose()


def open_skills(workspace: Path | None) -> SkillTools:
    loaded = load_settings(HostOptions(workspace))
    registry = registry_of(open_workspace(loaded.workspace).path, loaded.settings)
    features(registry)
    return SkillTools(registry, Shelf(skill_places(registry.workspace, loaded.settings, registry.clock)))


def name_is_taken(registry: Registry, name: str) -> bool:
    return any(name in (tool.name, *tool.aliases) for tool in registry.tools.values())


async def enable(shelf: Shelf, skill: Skill, registry: Registry) -> SkillResult:
    """Enable a skill with the content that it was found with, if it passes its trial; return the trial's result."""
    result = await test(shelf, skill, skill_confinement(registry))
    if result.ok:
        shelf.enable(skill)
    return result


def offer(host: Host, shelf: Shelf, skill: Skill) -> bool:
    """Offer the tool of an enabled Python skill at once; the catalogue grows at the tail of each session. Return
    whether open sessions get the skill: text skills are listed in new ones."""
    if skill.manifest is None:
        return False
    if host.toolbox.get(skill.name) is None:
        for tool in python_skill_tools(lambda: shelf, skill_confinement(host.registry), [skill]):
            host.toolbox.add(tool)
    return True
