"""Calls: what the tools of skills do."""

from __future__ import annotations

from typing import Any

import anyio.to_thread

from lmagent.core.errors import ConfigError, LmagentError, ToolError
from lmagent.core.tool import ToolContext, ToolOutput
from lmagent.skills import run
from lmagent.skills.python import function_in
from lmagent.skills.shelf import LARGEST, Manifest, Shelf, Skill, Trial
from lmagent.skills.tools import Confinement, Promote, UseSkill
from lmagent.tools.beneath import Beneath
from lmagent.tools.paths import lexical
from lmagent.tools.plain import NotPlain, read_plain
from lmagent.tools.sanitize import is_hiding

RESULT = 500  # characters of a trial's result that are recorded


async def show(shelf: Shelf, arguments: UseSkill, context: ToolContext) -> ToolOutput:
    """Return the text of a skill, or of one of its files."""
    skill = await anyio.to_thread.run_sync(_enabled, shelf, arguments.name)
    if skill.text is None:
        raise ToolError(f"{skill.name} is a tool: call it through use_tool.")
    if not arguments.file:
        files = sorted(path.relative_to(skill.folder).as_posix() for path in skill.folder.rglob("*") if path.is_file())
        more = f"\n\nIts other files: {', '.join(files)}" if len(files) > 1 else ""
        place = skill.folder.relative_to(context.workspace) if skill.folder.is_relative_to(context.workspace) else ""
        where = f"\nThe skill is in {place}." if place and not str(place).startswith(".lmagent") else ""
        return ToolOutput(f"{skill.text.body}{more}{where}")
    parts = tuple(part for part in lexical(arguments.file).split("/") if part)
    if not parts or ".." in parts:
        raise ToolError(f"{arguments.file!r} is not in the skill {skill.name}.")
    try:
        plain = read_plain(skill.folder, parts, LARGEST)
    except NotPlain as what:
        raise ToolError(f"{arguments.file} is {what}.") from None
    if plain is None:
        raise ToolError(f"The skill {skill.name} has no file {arguments.file!r}.")
    return ToolOutput(plain.text)


async def use(shelf: Shelf, sandbox: Confinement, name: str, arguments: dict[str, Any]) -> ToolOutput:
    """Call a Python skill, if it is still the one that the user enabled."""
    skill = await anyio.to_thread.run_sync(_enabled, shelf, name)
    result = await run.use(shelf, skill, sandbox, arguments)
    if not result.ok:
        raise ToolError(f"{name}: {result.text}")
    return ToolOutput(result.text)


def _enabled(shelf: Shelf, name: str) -> Skill:
    try:
        skill = shelf.find(name)
    except LmagentError as failure:
        raise ToolError(f"{failure.message}.") from None
    if skill.state != "enabled":
        raise ToolError(f"The skill {name} is {skill.state}; the user has to enable it: /skills enable {name}")
    return skill


async def promote(shelf: Shelf, sandbox: Confinement, arguments: Promote, context: ToolContext) -> ToolOutput:
    """Check a function, try it in the sandbox, and keep it as a proposal for the user."""
    name = arguments.tool_name or arguments.function_name
    with Beneath(context.workspace) as files:
        code = files.load(arguments.file_path, LARGEST).data.decode("utf-8", "replace")
    try:
        return ToolOutput(
            await proposed(shelf, sandbox, code, arguments.file_path, arguments.function_name, name, arguments.trial)
        )
    except LmagentError as failure:
        raise ToolError(f"{failure.message}. {failure.fix}".strip()) from None


async def proposed(
    shelf: Shelf, sandbox: Confinement, code: str, file: str, function: str, tool: str, trial: dict[str, Any] | None
) -> str:
    """Keep a function as a proposal, after its trial; return what happened. Raise ConfigError if it cannot be one."""
    shelf.require_free(tool)
    if is_hiding(code):
        raise ConfigError(f"{file} has hidden characters", fix="remove them")
    found = function_in(code, function, file)
    tried = trial if trial is not None else next(iter(found.examples), None)
    if tried is None and found.schema["required"]:
        fix = f"give trial: arguments of one call that works, or add `>>> {function}(…)` to its docstring"
        raise ConfigError(f"{function} has never been tried", fix=fix)
    result = await run.call(sandbox, code, function, file, tried or {})
    if not result.ok:
        raise ConfigError(f"the trial of {function} failed: {result.text}", fix="mend it and propose it again")
    manifest = Manifest(
        tool, function, found.description, found.schema, 1, Trial(tried or {}, result.text[:RESULT]), file
    )
    skill = await anyio.to_thread.run_sync(shelf.propose, manifest, code)
    version = skill.manifest.version if skill.manifest is not None else 0
    return (
        f"{tool} (version {version}) passed its trial in {result.seconds:.1f} s: {result.text[:RESULT]}\n"
        f"It waits for the user: /skills enable {tool}"
    )
