"""Question: the wording of questions to the user on a terminal."""

from __future__ import annotations

from lmagent.core.lines import grant_in_a_line
from lmagent.tools.sanitize import visible

PLAN = "Approve the plan? y yes · e edit · n no · or say what should be otherwise: "


def approval(what: str, grant: str) -> str:
    """Ask whether a call may be carried out; `grant` are the rules of "always", if there are any."""
    always = f" · a always ({visible(grant_in_a_line(grant))})" if grant else ""
    return f"Allow {what}? y yes · n no{always} · or say why not: "
