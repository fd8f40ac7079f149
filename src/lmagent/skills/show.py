"""Texts about skills, for the user."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from lmagent.core.plurals import plural
from lmagent.skills.shelf import FILE, Shelf, Skill

USES = 10  # uses that are shown


def skill_line(skill: Skill) -> str:
    version = f" v{skill.manifest.version}" if skill.manifest is not None else ""
    return f"{skill.state:<9} {skill.name}{version}: {skill.reason or skill.description}"


def skill_row(shelf: Shelf, skill: Skill) -> dict[str, Any]:
    """Return a skill for JSON: its facts, its uses and the last result."""
    runs = [run for run in shelf.runs(skill) if not run.trial]
    return {
        "name": skill.name,
        "kind": "python" if skill.manifest is not None else "text",
        "state": skill.state,
        "description": skill.description,
        "reason": skill.reason,
        "folder": str(skill.folder),
        "version": skill.manifest.version if skill.manifest is not None else 0,
        "uses": len(runs),
        "last": {"at": runs[-1].at, "ok": runs[-1].ok, "result": runs[-1].result} if runs else None,
    }


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
