"""Skills: listed, read, tried, allowed and stopped."""

from __future__ import annotations

from typing import Annotated

from anyio import to_thread
from msgspec import Meta, Struct
from msgspec.structs import asdict

from lmagent.app.skilling import enable, offer, skills_of
from lmagent.core.errors import ConfigError, StoreError
from lmagent.gateway.http.errors import Refusal, refusing
from lmagent.gateway.http.route import Call, Routes
from lmagent.skills import run
from lmagent.skills.feature import Skills
from lmagent.skills.shelf import RunRecord, Shelf, Skill, Trial
from lmagent.skills.show import USES, SkillRow, skill_row

ROUTES = Routes()


class SkillList(Struct, frozen=True):
    """The skills by name."""

    skills: tuple[SkillRow, ...]


class SkillDetails(SkillRow, frozen=True, kw_only=True):
    """A skill with its content, and for a Python skill its trial and its last runs, newest first.

    `digest` covers all its files; `enable` takes it, and so allows exactly the content that the user has read.
    """

    content: str
    digest: str
    source: str = ""
    function: str = ""
    trial: Trial | None = None
    runs: tuple[RunRecord, ...] = ()


class SkillAllowed(Struct, frozen=True, forbid_unknown_fields=True):
    """The digest of the content that the user has read; empty allows the present content."""

    digest: Annotated[str, Meta(max_length=64)] = ""


class SkillTried(Struct, frozen=True):
    """The result of a trial, and the skill afterwards. It is enabled only if `ok`."""

    ok: bool
    text: str
    seconds: float
    skill: SkillRow


@ROUTES.get("/api/skills", "Skills with their states")
def list_skills(call: Call) -> SkillList:
    shelf = _skills(call).shelf
    return SkillList(tuple(skill_row(shelf, skill) for skill in shelf.all()))


@ROUTES.get("/api/skills/{name}", "A skill with its text or code")
def show_skill(call: Call) -> SkillDetails:
    shelf, skill = _found(call)
    row, manifest = asdict(skill_row(shelf, skill)), skill.manifest
    if manifest is None:
        return SkillDetails(**row, digest=skill.digest, content=skill.text.body if skill.text is not None else "")
    return SkillDetails(
        **row,
        digest=skill.digest,
        content=skill.code,
        source=manifest.source,
        function=manifest.function,
        trial=manifest.trial,
        runs=tuple(reversed(shelf.runs(skill)[-USES:])),
    )


@ROUTES.post("/api/skills/{name}/test", "Run the trial of a skill")
async def test_skill(call: Call) -> SkillTried:
    """Run the recorded call of a Python skill in the sandbox. A text skill passes if it can be read."""
    shelf, skill = await to_thread.run_sync(_found, call)
    return await _tried(call, await run.test(shelf, skill, _skills(call).sandbox))


@ROUTES.post("/api/skills/{name}/enable", "Allow a skill as it is now")
async def enable_skill(call: Call, body: SkillAllowed) -> SkillTried:
    """Allow the content of a skill, if its trial passes. Open sessions get its tool at once."""
    _, skill = await to_thread.run_sync(_found, call)
    if body.digest not in ("", skill.digest):
        raise Refusal(409, "changed", f"{skill.name} has changed since you read it", fix="read it again")
    with refusing(StoreError, 409, "broken"), refusing(ConfigError, 409, "broken"):
        result = await enable(_skills(call), skill)
    if result.ok:
        offer(call.gateway.host, (await to_thread.run_sync(_found, call))[1])
    return await _tried(call, result)


@ROUTES.post("/api/skills/{name}/disable", "Stop using a skill")
def disable_skill(call: Call) -> SkillRow:
    shelf, skill = _found(call)
    shelf.disable(skill)
    return skill_row(*_found(call))


@ROUTES.post("/api/skills/{name}/rollback", "Bring back the version of a skill before")
def roll_skill_back(call: Call) -> SkillRow:
    shelf, skill = _found(call)
    with refusing(ConfigError, 409, "no_earlier_version"), refusing(StoreError, 409, "broken"):
        return skill_row(shelf, shelf.rollback(skill.name))


def _skills(call: Call) -> Skills:
    return skills_of(call.gateway.host.registry)


def _found(call: Call) -> tuple[Shelf, Skill]:
    """Return the skill that the path names, and its shelf."""
    shelf = _skills(call).shelf
    with refusing(ConfigError, 404, "not_found"):
        return shelf, shelf.find(call.path["name"])


async def _tried(call: Call, result: run.SkillResult) -> SkillTried:
    row = await to_thread.run_sync(lambda: skill_row(*_found(call)))
    return SkillTried(result.ok, result.text, result.seconds, row)
