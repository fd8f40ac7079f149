"""Report: how a sub-agent ends. Its report ends its turn; a sub-agent without a report is asked for one, twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lmagent.agents import deliver
from lmagent.agents.feature import ReportArgs
from lmagent.core.errors import ToolError
from lmagent.core.events import ResultReported
from lmagent.core.tool import ToolOutput
from lmagent.core.work import Brief, ChildResult
from lmagent.engine.review import Again, End
from lmagent.engine.session import Session

if TYPE_CHECKING:
    from lmagent.agents.shares import ChildShares
    from lmagent.engine.endings import Ending  # its patterns take 2 ms

NUDGES = 2
NUDGE = "[You are a sub-agent and have not reported. Call use_tool with report_result now; say in it what you found.]"
TOLD = "deliverable"
"""The name under which a session remembers that its report was sent back once."""


async def report(child: Session, arguments: ReportArgs) -> ToolOutput:
    """Record the report of a sub-agent, once a turn.

    Raises ToolError if no session waits for one, or it differs from the order and the sub-agent can still correct it.
    """
    if child.above is None:
        raise ToolError("No session waits for a report: this one works for no other. Give your answer as text.")
    brief = brief_of(child)
    if reported_now(child) is None and brief is not None:
        await child.record(ResultReported(result=_judged(child, brief, arguments)), sync=True)
    return ToolOutput("Reported.")


def reported_now(child: Session) -> ChildResult | None:
    """Return the report of a sub-agent in this turn; a user's message after the report starts another turn."""
    work = child.state.work
    return work.reported if work.reported_in == child.state.turn else None


def brief_of(child: Session) -> Brief | None:
    if child.above is None:
        return None
    begun = child.above.state.work.children.values()
    return next((started.brief for started in begun if started.child == child.state.session), None)


def _judged(child: Session, brief: Brief, arguments: ReportArgs) -> ChildResult:
    """Check a report against the disk.

    Raises ToolError: it differs from the order and can still be corrected; raised once.
    """
    state = child.state
    workspace, touched = child.wiring.workspace, deliver.touched_by(child)
    result = ChildResult(
        agent_id=state.session,
        status=arguments.status,
        summary=arguments.summary,
        artifacts=(*deliver.named(brief.deliverable), *arguments.artifacts),
        data=arguments.data,
        error=arguments.error,
        iterations=state.steps_total,
        created_at=child.wiring.clock.now(),
    )
    found = deliver.faults(workspace, brief.deliverable, result, touched) if result.status == "ok" else []
    if found and TOLD not in child.warned:
        child.warned.add(TOLD)
        raise ToolError(f"Not reported: {'; '.join(found)}. Set that right, or report partial with the reason.")
    if found:
        result = msgspec.structs.replace(result, status="partial", error=_joined(result.error, *found))
    return deliver.kept(workspace, result, touched)


def _joined(*reasons: str) -> str:
    return "; ".join(reason for reason in reasons if reason)


def after_calls(child: Session, parent: Session, shares: ChildShares) -> End | None:
    """End the turn after the report, or when the budget that the sub-agent shares with others is used up."""
    if (reported := reported_now(child)) is not None:
        return End("done", answer=reported.summary)
    if reason := shares.over(parent):
        return End("limit", "shared", reason)
    return None


def at_end(child: Session, ending: Ending, answer: str) -> End | Again | None:
    if (reported := reported_now(child)) is not None:
        return End("done", answer=reported.summary)
    if ending.kind != "done":
        return None
    return Again("report", NUDGE, NUDGES, End("done", "no_report", answer=answer))
