"""Feature: what sub-agents bring to a program. Cheap to put together; the rest is imported when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.core.work import ChildStatus, DeliverableType
from lmagent.engine.review import Again, End, Fence, Review
from lmagent.engine.session import Session
from lmagent.engine.state import SessionState

if TYPE_CHECKING:
    from lmagent.agents.nursery import Nursery
    from lmagent.agents.run import Runner
    from lmagent.agents.shares import Shares
    from lmagent.engine.endings import Ending

BEGINNING = ("delegate", "decompose")
"""The tools that begin a sub-agent."""

TOOLS = (*BEGINNING, "report_result")
"""The tools of sub-agents; the last is theirs."""


class Bounds(Struct, frozen=True):
    """How far sub-agents may go.

    Attributes:
        depth: how deep they may be nested (`AGENT_MAX_DEPTH`).
        steps: model calls of one, before its depth is taken off (`MAX_SUB_AGENT_ITERATIONS`).
        data: characters of the parent's findings for one that begins afresh (`BRIEF_DATA_BUDGET`).
    """

    depth: int = 3
    steps: int = 25
    data: int = 8000


class DelegateArgs(Struct, frozen=True):
    """Arguments of delegate."""

    objective: str
    deliverable_type: DeliverableType = "report"
    deliverable_description: str = ""
    deliverable_path: str = ""
    deliverable_format: str = ""
    constraints: tuple[str, ...] = ()
    data_hint: str = ""


class DecomposeArgs(Struct, frozen=True):
    """Arguments of decompose."""

    manifest: Any


class ReportArgs(Struct, frozen=True):
    """Arguments of report_result."""

    status: ChildStatus
    summary: str
    artifacts: tuple[str, ...] = ()
    data: Any = None
    error: str = ""


def delegation_tools(nursery: Nursery, runner: Callable[[], Runner]) -> Iterator[Tool]:
    """delegate: one sub-agent for one task. decompose: several, in the order of their dependencies.

    They are reading tools to the gate: they harm nothing themselves, and what the sub-agent does is asked for there.
    """

    async def delegate(arguments: DelegateArgs, context: ToolContext) -> ToolOutput:
        from lmagent.agents import tools

        return await tools.delegate(nursery, runner(), arguments, context)

    async def decompose(arguments: DecomposeArgs, context: ToolContext) -> ToolOutput:
        from lmagent.agents import tools

        return await tools.decompose(nursery, runner(), arguments, context)

    yield Tool(
        name="delegate",
        description="Give a task to a sub-agent; returns its report. deliverable_type: report, file, files or data.",
        arguments=DelegateArgs,
        effect="read",
        run=delegate,
        replay_safe=True,
        deferred=True,
        aliases=("task",),
        renames={"instructions": "objective", "file_path": "deliverable_path", "task_type": "deliverable_description"},
        summary=lambda arguments: f"delegate: {arguments.objective}".replace("\n", " ")[:120],
    )
    yield Tool(
        name="decompose",
        description="Run up to 8 sub-agents in dependency order. manifest: "
        "[{task_id, objective, deliverable: {type, description, path}, constraints, depends_on: [task_id]}]",
        arguments=DecomposeArgs,
        effect="read",
        run=decompose,
        replay_safe=True,
        deferred=True,
        renames={"manifest_json": "manifest", "tasks": "manifest"},
        summary=lambda arguments: "decompose",
    )


def report_tool(nursery: Nursery) -> Tool:
    """report_result: how a sub-agent ends."""

    async def run(arguments: ReportArgs, context: ToolContext) -> ToolOutput:
        from lmagent.agents.report import report

        return await report(nursery.session(context.session), arguments)

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


class ReportReview(Review):
    """Ends a sub-agent's turn with its report, or when nothing is left of what it shares; asks for a missing report."""

    def __init__(self, shares: Callable[[], Shares]) -> None:
        self._shares = shares

    async def after_calls(self, session: Session) -> End | None:
        """See `lmagent.engine.review.Review`."""
        if session.above is None:
            return None
        from lmagent.agents.report import after_calls

        return after_calls(session, session.above, self._shares())

    async def at_end(self, session: Session, ending: Ending, answer: str) -> End | Again | None:
        """See `lmagent.engine.review.Review`."""
        if session.above is None:
            return None
        from lmagent.agents.report import at_end

        return at_end(session, ending, answer)


def fence(bounds: Bounds) -> Fence:
    """Who may use the tools of sub-agents."""

    def judge(state: SessionState, tool: Tool) -> str:
        parent = state.work.parent
        if tool.name == "report_result" and parent is None:
            return "only sub-agents report. Give your answer as text."
        if tool.name in BEGINNING and parent is not None and parent.depth >= bounds.depth:
            return f"sub-agents may be nested {bounds.depth} deep, and you are at that depth. Do the work yourself."
        return ""

    return judge


def hidden(state: SessionState, bounds: Bounds) -> set[str]:
    """Tools of sub-agents that a session is not told of. One that inherited its parent's catalogue keeps to it."""
    parent, note = state.work.parent, state.notes.get("tools")
    if parent is None:
        return {"report_result"}
    if note is not None:
        return {name for name in TOOLS if f"\n- {name}(" not in note and f"\n- {name}:" not in note}
    return set(BEGINNING) if parent.depth >= bounds.depth else set()
