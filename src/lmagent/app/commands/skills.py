"""The slash command /skills."""

from __future__ import annotations

from collections.abc import Iterator

from lmagent.app.registry import SlashCommand
from lmagent.app.skilling import enable, offer, skills_of
from lmagent.app.slash import FACTS, SlashContext, SlashResult
from lmagent.core.errors import ConfigError
from lmagent.skills import run
from lmagent.skills.show import enabled_text, skill_line, skill_text, trial_text

USAGE = "[show|test|enable|disable|rollback NAME]"
VERBS = ("show", "test", "enable", "disable", "rollback")


def commands() -> Iterator[SlashCommand]:
    yield SlashCommand("skills", USAGE, "list the skills, or show, test, allow or stop one", _skills, FACTS)


async def _skills(context: SlashContext, line: str) -> SlashResult:
    skills = skills_of(context.host.registry)
    shelf = skills.shelf
    words = line.split()
    if not words:
        return SlashResult("\n".join(map(skill_line, shelf.all())) or "there are no skills yet: docs/skills.md")
    if len(words) != 2 or words[0] not in VERBS:
        raise ConfigError(f"/skills does not know {line!r}", fix=f"/skills {USAGE}")
    verb, name = words
    skill = shelf.find(name)
    if verb == "show":
        return SlashResult(skill_text(shelf, skill))
    if verb == "disable":
        shelf.disable(skill)
        return SlashResult(f"{name} is disabled")
    if verb == "rollback":
        return SlashResult(skill_line(shelf.rollback(name)))
    if verb == "test":
        result = await run.test(shelf, skill, skills.sandbox)
        return SlashResult(trial_text(result))
    result = await enable(skills, skill)
    at_once = not result.ok or offer(context.host, shelf.find(name))
    return SlashResult(enabled_text(name, result) + ("" if at_once else "; new sessions list it"))
