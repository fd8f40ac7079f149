"""Editing: the user's answer to a plan, at a terminal; and the plan in the user's editor."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import anyio

from lmagent.core.commands import DecidePlan
from lmagent.core.errors import ConfigError
from lmagent.core.work import Plan
from lmagent.engine.session import Session
from lmagent.planning.plans import Unusable, plan_json
from lmagent.planning.proposing import usable
from lmagent.store.files import make_private

DECIDED = {"approved": "approved; the work begins", "rejected": "rejected", "revise": "the model plans anew"}
UNDECIDED = "nothing was changed; the plan still waits"


async def decision(line: str, session: Session, *, by: str) -> DecidePlan | None:
    """Return the decision in a line: y, n, e for the editor, or an answer to the model; None for no decision."""
    match line.lower():
        case "":
            return None
        case "y" | "yes":
            return DecidePlan(decision="approved", by=by)
        case "n" | "no":
            return DecidePlan(decision="rejected", by=by)
        case "e" | "edit":
            changed = await edited(session)
            return None if changed is None else DecidePlan(decision="approved", plan=changed, by=by)
        case _:
            return DecidePlan(decision="revise", feedback=line, by=by)


async def edited(session: Session) -> Plan | None:
    """Return the waiting plan as edited by the user; None if it is unchanged or empty.

    A plan that cannot be followed stays in its file, and the editor shows it the next time.
    """
    proposal = session.state.work.proposal
    if proposal is None:
        raise ConfigError("there is no plan that waits", fix="/plan TASK makes one")
    if not sys.stdin.isatty():
        raise ConfigError("there is no terminal for an editor", terminal="lmagent plan approve ID --plan FILE")
    proposed = plan_json(proposal.plan)
    try:
        path = _draft(session, proposal.id)
        if not path.exists():
            path.write_text(proposed, encoding="utf-8")
        await edit_file(path)
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    except OSError as trouble:
        fix = "set EDITOR to the name of your editor; /plan approve takes the plan as it is"
        raise ConfigError(f"the plan cannot be edited: {trouble}", fix=fix) from None
    if text.strip() and text != proposed:
        found = usable(session, text)
        if isinstance(found, Unusable):
            fix = f"nothing was decided; your text is kept in {path}, edit it again with e or /plan edit"
            raise ConfigError(f"the plan cannot be followed: {found.words}", fix=fix)
    else:
        found = None
    path.unlink(missing_ok=True)
    return found


def _draft(session: Session, proposal: str) -> Path:
    """Return the file in which a plan is edited; files of the session's earlier plans are removed."""
    folder, id = session.wiring.workspace / ".lmagent" / "plans", session.state.session
    make_private(folder)
    path = folder / f"{id}-{proposal}.json"
    for old in folder.glob(f"{id}-*.json"):
        if old != path:
            old.unlink(missing_ok=True)
    return path


async def edit_file(path: Path) -> None:
    named = os.environ.get("VISUAL", "").strip() or os.environ.get("EDITOR", "").strip() or "vi"
    try:
        command = shlex.split(named)
    except ValueError as wrong:
        raise ConfigError(f"EDITOR is no command: {wrong}", fix="set it to the name of your editor") from None
    done = await anyio.run_process([*command, str(path)], stdin=None, stdout=None, stderr=None, check=False)
    if done.returncode:
        raise ConfigError(f"the editor ended with {done.returncode}", fix=f"the plan is in {path}")
