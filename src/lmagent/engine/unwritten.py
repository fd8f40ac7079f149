"""Unwritten: turns whose writes and edits all failed, so that a claim to be done cannot be true."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmagent.engine.review import Again, End

if TYPE_CHECKING:
    from lmagent.engine.session import Session

QUESTION = (
    "Every write and edit of this turn failed, and no file was changed. Look at the last error and try again; "
    "if it cannot be done, write BLOCKED: and the reason."
)


def doubt(session: Session, answer: str) -> Again | None:
    """Ask once about a final answer after nothing but failed writes; the turn then ends as incomplete."""
    tried = session.state.evidence.tried
    if (
        session.state.work.mode == "plan"
        or not tried.failed
        or tried.changed
        or tried.answered
        or session.state.unattended_denials
    ):
        return None  # nothing failed, something changed, or the end of the turn says why not

    def has(names: set[str], *effects: str) -> bool:
        found = (session.wiring.toolbox.get(name) for name in names)
        return any(tool is not None and tool.effect in effects for tool in found)

    # Without undo the changes of commands are not seen.
    writing = ("write",) if session.wiring.snapshots is not None else ("write", "exec")
    if not has(tried.failed, "write") or has(tried.worked, *writing):
        return None
    reason = "incomplete: every write and edit of the turn failed, and no file was changed"
    typed = "see the errors above, and continue with --continue"
    return Again("unwritten", QUESTION, 1, End("error", "incomplete", reason, answer, terminal=typed))
