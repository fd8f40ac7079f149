"""Question: questions to the user on a terminal, and the decision that an answer means."""

from __future__ import annotations

from lmagent.core.commands import Approve
from lmagent.core.lines import grant_in_a_line
from lmagent.tools.sanitize import visible

PLAN = "Approve the plan? y yes · e edit · n no · or say what should be otherwise: "


def approval(what: str, grant: str) -> str:
    """Ask whether a call may be carried out; `grant` are the rules of "always", if there are any."""
    always = f" · a always ({visible(grant_in_a_line(grant))})" if grant else ""
    return f"Allow {what}? y yes · n no{always} · or say why not: "


def decision(approval: str, grant: str, answer: str, by: str) -> Approve:
    """Return the decision: anything but a clear yes is a no, and other text goes to the model."""
    word = answer.strip().lower()
    always = word in ("a", "always") and bool(grant)
    feedback = "" if word in ("", "y", "yes", "n", "no", "a", "always") else answer.strip()
    scope = "session" if always else "once"
    return Approve(approval=approval, approved=always or word in ("y", "yes"), scope=scope, feedback=feedback, by=by)
