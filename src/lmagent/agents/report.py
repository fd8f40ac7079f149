"""Report: how a sub-agent ends. It reports, and its turn is over; without a report it is asked for one, twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from lmagent.agents.nursery import TOOLS, Bounds
from lmagent.core.errors import ToolError
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.core.work import Brief, ChildResult, ChildStatus
from lmagent.core.workevents import ResultReported
from lmagent.engine.review import Again, End, Fence
from lmagent.engine.session import Session
from lmagent.engine.state import SessionState

if TYPE_CHECKING:
    from lmagent.agents.shares import Shares
    from lmagent.engine.endings import Ending  # its patterns take 2 ms

NUDGES = 2
NUDGE = "[You are a sub-agent and have not reported. Call use_tool with report_result now; say in it what you found.]"
TOLD = "deliverable"
"""What a session has been warned of when its report was sent back once."""


class ReportArgs(Struct, frozen=True):
    """Arguments of report_result."""

    status: ChildStatus
    summary: str
    artifacts: tuple[str, ...] = ()
    data: Any = None
    error: str = ""


def report_tool(session_of: Callable[[str], Session]) -> Tool:
    """The tool."""

    async def run(arguments: ReportArgs, context: ToolContext) -> ToolOutput:
        child = session_of(context.session)
        if child.above is None:
            raise ToolError("Nobody waits for a report: this session works for no other. Give your answer as text.")
        brief = brief_of(child)
        if reported_now(child) is None and brief is not None:
            await child.record(ResultReported(result=_judged(child, brief, arguments)), sync=True)
        return ToolOutput("Reported.")

    return Tool(
        name="report_result",
        description="Report the result of your brief and end.",
        arguments=ReportArgs,
        effect="read",
        run=run,
        replay_safe=True,
        deferred=True,
        summary=lambda arguments: f"report_result {arguments.status}",
    )


def reported_now(child: Session) -> ChildResult | None:
    """What a sub-agent has reported in this turn; a person's words behind a report are heard in another one."""
    work = child.state.work
    return work.reported if work.reported_in == child.state.turn else None


def brief_of(child: Session) -> Brief | None:
    """What a sub-agent at work was told, as its parent has it on record."""
    if child.above is None:
        return None
    begun = child.above.state.work.children.values()
    return next((started.brief for started in begun if started.child == child.state.session), None)


def _judged(child: Session, brief: Brief, arguments: ReportArgs) -> ChildResult:
    """The report, checked against the disk.

    Raises:
        ToolError: it is not what was ordered, and can still be; said once.
    """
    from lmagent.agents import deliver  # most sessions have no sub-agent

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


class ReportReview:
    """Ends a sub-agent's turn with its report, or when nothing is left of what it shares; asks for a missing report."""

    def __init__(self, shares: Callable[[], Shares]) -> None:
        self._shares = shares

    async def after_calls(self, session: Session) -> End | None:
        """See `lmagent.engine.review.Review`."""
        if session.above is None:
            return None
        if (reported := reported_now(session)) is not None:
            return End("done", answer=reported.summary)
        if reason := self._shares().over(session.above):
            return End("limit", "shared", reason)
        return None

    async def at_end(self, session: Session, ending: Ending, answer: str) -> End | Again | None:
        """See `lmagent.engine.review.Review`."""
        if session.above is None:
            return None
        if (reported := reported_now(session)) is not None:
            return End("done", answer=reported.summary)
        if ending.kind != "done":
            return None
        return Again("report", NUDGE, NUDGES, End("done", "no_report", answer=answer))


def fence(bounds: Bounds) -> Fence:
    """Who may use the tools of sub-agents."""

    def judge(state: SessionState, tool: Tool) -> str:
        parent = state.work.parent
        if tool.name == "report_result" and parent is None:
            return "only sub-agents report. Give your answer as text."
        if tool.name in ("delegate", "decompose") and parent is not None and parent.depth >= bounds.depth:
            return f"sub-agents may be nested {bounds.depth} deep, and you are at that depth. Do the work yourself."
        return ""

    return judge


def hidden(state: SessionState, bounds: Bounds) -> set[str]:
    """Tools of sub-agents that a session is not told of. One that inherited its parent's catalogue keeps to it."""
    parent, note = state.work.parent, state.notes.get("tools")
    if parent is None:
        return {"report_result"}
    if note is not None:
        return {name for name in TOOLS if f"\n- {name}" not in note}
    return {"delegate", "decompose"} if parent.depth >= bounds.depth else set()
