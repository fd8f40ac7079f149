"""What a person says to a plan, at a terminal; and the plan in their own editor."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from pathlib import Path

import anyio

from lmagent.core.commands import DecidePlan
from lmagent.core.errors import ConfigError
from lmagent.core.work import Plan
from lmagent.planning.plans import Unusable, plan_json, read_plan


async def decision(line: str, plan: Plan, *, by: str) -> DecidePlan | None:
    """What a line means for a plan that waits: y, n, e for the editor, or words for the model; None decides nothing.

    Raises:
        ConfigError: what came out of the editor cannot be followed.
    """
    match line.lower():
        case "":
            return None
        case "y" | "yes":
            return DecidePlan(decision="approved", by=by)
        case "n" | "no":
            return DecidePlan(decision="rejected", by=by)
        case "e" | "edit":
            changed = await edited(plan)
            return None if changed is None else DecidePlan(decision="approved", plan=changed, by=by)
        case _:
            return DecidePlan(decision="revise", feedback=line, by=by)


async def edited(plan: Plan) -> Plan | None:
    """The plan as a person has changed it; None where they changed nothing, or left the file empty.

    Raises:
        ConfigError: there is no terminal or no editor, or what they wrote is no plan; where it is kept is told.
    """
    if not sys.stdin.isatty():
        raise ConfigError("there is no terminal for an editor", fix="lmagent plan approve ID --plan FILE")
    before = plan_json(plan)
    try:
        with tempfile.NamedTemporaryFile("w", suffix=".json", prefix="plan-", delete=False, encoding="utf-8") as file:
            file.write(before)
        path = Path(file.name)
        await _edit(path)
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    except OSError as trouble:
        fix = "/plan approve takes the plan as it is"
        raise ConfigError(f"the plan cannot be put before the editor: {trouble.strerror}", fix=fix) from None
    if not text.strip() or text == before:
        path.unlink(missing_ok=True)
        return None
    found = read_plan(text)
    if isinstance(found, Unusable):
        raise ConfigError(f"the plan cannot be followed: {found.words}", fix=f"it is kept in {path}")
    path.unlink(missing_ok=True)
    return found


async def _edit(path: Path) -> None:
    named = os.environ.get("VISUAL", "").strip() or os.environ.get("EDITOR", "").strip() or "vi"
    try:
        command = shlex.split(named)
    except ValueError as wrong:
        raise ConfigError(f"EDITOR is no command: {wrong}", fix="set it to the name of your editor") from None
    try:
        done = await anyio.run_process([*command, str(path)], stdin=None, stdout=None, stderr=None, check=False)
    except OSError as missing:
        fix = "set EDITOR to the name of your editor"
        raise ConfigError(f"the editor {command[0]} cannot be started: {missing.strerror}", fix=fix) from None
    if done.returncode:
        raise ConfigError(f"the editor ended with {done.returncode}", fix=f"the plan is in {path}")
