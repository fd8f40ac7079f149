"""Texts about skills, for the user."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct

from lmagent.core.plurals import plural
from lmagent.skills.run import SkillResult
from lmagent.skills.shelf import FILE, Shelf, Skill, State

USES = 10  # uses that are shown


class SkillUse(Struct, frozen=True):
    """The last use of a Python skill."""

    at: float
    ok: bool
    result: str


class SkillRow(Struct, frozen=True):
    """A skill. `version` is 0 for a text skill; `reason` says why it is broken; `last` is its last use."""

    name: str
    kind: Literal["python", "text"]
    state: State
    description: str
    reason: str
    folder: str
    version: int
    uses: int
    last: SkillUse | None


def skill_line(skill: Skill) -> str:
    version = f" v{skill.manifest.version}" if skill.manifest is not None else ""
    return f"{skill.state:<9} {skill.name}{version}: {skill.reason or skill.description}"


def trial_text(result: SkillResult) -> str:
    return f"{'passed' if result.ok else 'failed'} in {result.seconds:.1f} s: {result.text}"


def enabled_text(name: str, result: SkillResult) -> str:
    return f"{name} is enabled" if result.ok else f"{name} is not enabled, its trial failed: {result.text}"


def skill_row(shelf: Shelf, skill: Skill) -> SkillRow:
    runs = [run for run in shelf.runs(skill) if not run.trial]
    return SkillRow(
        name=skill.name,
        kind="python" if skill.manifest is not None else "text",
        state=skill.state,
        description=skill.description,
        reason=skill.reason,
        folder=str(skill.folder),
        version=skill.manifest.version if skill.manifest is not None else 0,
        uses=len(runs),
        last=SkillUse(runs[-1].at, runs[-1].ok, runs[-1].result) if runs else None,
    )


def skill_text(shelf: Shelf, skill: Skill) -> str:
    rows, manifest = [skill_line(skill), str(skill.folder)], skill.manifest
    if skill.text is not None:
        rows += ["", f"{FILE}:", skill.text.body]
    if manifest is not None:
        rows.append(f"from {manifest.source}, function {manifest.function}")
        rows.append(f"trial: {manifest.trial.arguments} → {manifest.trial.result}")
        rows += ["", skill.code]
        runs = shelf.runs(skill)
        rows += ["", plural(sum(not run.trial for run in runs), "use")]
        rows += [
            f"{datetime.fromtimestamp(run.at).astimezone():%Y-%m-%d %H:%M}  {'trial ' if run.trial else ''}"
            f"{'ok' if run.ok else 'failed'} in {run.seconds:.1f} s: {' '.join(run.result.split())[:100]}"
            for run in runs[-USES:]
        ]
    return "\n".join(rows)
