"""The tools of skills: `skill` reads a text skill, `promote_skill` proposes a function, each Python skill is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from lmagent.core.sandbox import GetSandbox
from lmagent.core.tool import Tool, ToolContext, ToolOutput

if TYPE_CHECKING:
    from lmagent.skills.shelf import Shelf, Skill


class Confinement(Struct, frozen=True):
    """Where skills run, and for how many seconds at most."""

    get: GetSandbox
    timeout: float = 60.0


class UseSkill(Struct, frozen=True):
    name: str
    file: Annotated[str, Meta(description="another file of the skill")] = ""


class Promote(Struct, frozen=True):
    file_path: str
    function_name: str
    tool_name: str = ""
    trial: dict[str, Any] | None = None


def text_skill_tool(shelf: Callable[[], Shelf]) -> Tool:
    async def run(arguments: UseSkill, context: ToolContext) -> ToolOutput:
        from lmagent.skills import calls

        return await calls.show(shelf(), arguments, context)

    return Tool(
        name="skill",
        description="Read the instructions of a skill listed under <skills>.",
        arguments=UseSkill,
        effect="read",
        run=run,
        deferred=True,
        renames={"skill": "name", "skill_name": "name", "path": "file"},
    )


def promote_tool(shelf: Callable[[], Shelf], sandbox: Confinement) -> Tool:
    async def run(arguments: Promote, context: ToolContext) -> ToolOutput:
        from lmagent.skills import calls

        return await calls.promote(shelf(), sandbox, arguments, context)

    return Tool(
        name="promote_skill",
        description="Propose a tested Python function as a tool; trial: arguments that work.",
        arguments=Promote,
        effect="exec",
        run=run,
        deferred=True,
        unlisted=("tool_name",),
        summary=lambda arguments: f"promote_skill {arguments.function_name} of {arguments.file_path}",
        targets=lambda arguments: (arguments.file_path,),
    )


def python_skill_tools(shelf: Callable[[], Shelf], sandbox: Confinement, skills: Iterable[Skill]) -> Iterator[Tool]:
    for skill in skills:
        if skill.manifest is not None:
            yield _python_tool(shelf, sandbox, skill)


def _python_tool(shelf: Callable[[], Shelf], sandbox: Confinement, skill: Skill) -> Tool:
    manifest = skill.manifest
    assert manifest is not None

    async def run(arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        from lmagent.skills import calls

        return await calls.use(shelf(), sandbox, skill.name, arguments)

    return Tool(
        name=manifest.tool,
        description=manifest.description,
        arguments=manifest.schema,
        effect="exec",
        run=run,
        deferred=True,
        summary=lambda arguments: f"{manifest.tool} {arguments}"[:120],
    )
