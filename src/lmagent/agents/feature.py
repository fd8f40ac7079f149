"""Feature: what sub-agents bring to a program. Cheap to build; everything else is imported when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.core.work import ChildStatus, DeliverableType
from lmagent.engine.review import Again, End, Fence, Review
from lmagent.engine.session import Session
from lmagent.engine.state import SessionState

if TYPE_CHECKING:
    from lmagent.agents.childhost import ChildHost
    from lmagent.agents.run import ChildRunner
    from lmagent.engine.endings import Ending

BEGINNING = ("delegate", "decompose")
"""The tools that start a sub-agent."""

LISTED, DESCRIBED = 12, 80
"""How many agents the description lists, and characters for each."""

TOOLS = (*BEGINNING, "report_result")
"""The tools of sub-agents; only a sub-agent has the last one."""


class AgentBounds(Struct, frozen=True):
    """Limits of sub-agents."""

    depth: int = 3  # how deep they may be nested
    steps: int = 25  # model calls of one sub-agent, before its depth is subtracted
    data: int = 8000  # characters of the parent's findings for one that does not inherit


class DelegateArgs(Struct, frozen=True):
    objective: str
    deliverable_type: DeliverableType = "report"
    deliverable_description: str = ""
    deliverable_path: str = ""
    deliverable_format: str = ""
    constraints: tuple[str, ...] = ()
    data_hint: str = ""
    agent: str = ""


class DecomposeArgs(Struct, frozen=True):
    manifest: Any


class ReportArgs(Struct, frozen=True):
    status: ChildStatus
    summary: str
    artifacts: tuple[str, ...] = ()
    data: Any = None
    error: str = ""


def delegation_tools(
    host: ChildHost, runner: Callable[[], ChildRunner], agents: Mapping[str, str] | None = None
) -> Iterator[Tool]:
    """Yield the tools delegate (one sub-agent for one task) and decompose (several).

    The gate takes both for reading tools: they do no harm themselves, and the calls of the sub-agent pass the gate too.
    `agents`: descriptions of the agents that a task can be given to, by their names.
    """

    async def delegate(arguments: DelegateArgs, context: ToolContext) -> ToolOutput:
        from lmagent.agents import run

        return await run.delegate(host, runner(), arguments, context)

    async def decompose(arguments: DecomposeArgs, context: ToolContext) -> ToolOutput:
        from lmagent.agents import run

        return await run.decompose(host, runner(), arguments, context)

    yield Tool(
        name="delegate",
        description="Give a task to a sub-agent; returns its report. deliverable_type: report, file, files or data."
        + _named(agents or {}),
        arguments=DelegateArgs,
        effect="read",
        run=delegate,
        replay_safe=True,
        deferred=True,
        unlisted=("deliverable_format", "data_hint", *(() if agents else ("agent",))),
        aliases=("task",),
        renames={
            "instructions": "objective",
            "file_path": "deliverable_path",
            "task_type": "deliverable_description",
            "subagent_type": "agent",
            "agent_name": "agent",
        },
        summary=lambda arguments: f"delegate: {arguments.objective}".replace("\n", " ")[:120],
    )
    yield Tool(
        name="decompose",
        description="Run sub-agents in dependency order. manifest: "
        "[{task_id, objective, deliverable: {type, description, path}, constraints, depends_on: [task_id]}]",
        arguments=DecomposeArgs,
        effect="read",
        run=decompose,
        replay_safe=True,
        deferred=True,
        renames={"manifest_json": "manifest", "tasks": "manifest"},
        summary=lambda arguments: "decompose",
    )


def _named(agents: Mapping[str, str]) -> str:
    """Return the part of the description that lists the agents; each is paid for in every prompt."""
    if not agents:
        return ""
    listed = "; ".join(f"{name}: {what[:DESCRIBED]}" for name, what in list(agents.items())[:LISTED])
    return f" agent: {listed}."


def report_tool(host: ChildHost) -> Tool:
    async def run(arguments: ReportArgs, context: ToolContext) -> ToolOutput:
        from lmagent.agents.report import report

        return await report(host.session(context.session), arguments)

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
    """Ends a sub-agent's turn with its report, or when its shared budget is used up; asks for a missing report."""

    async def after_calls(self, session: Session) -> End | None:
        if session.above is None:
            return None
        from lmagent.agents.report import after_calls

        return after_calls(session, session.above)

    async def at_end(self, session: Session, ending: Ending, answer: str) -> End | Again | None:
        if session.above is None:
            return None
        from lmagent.agents.report import at_end

        return at_end(session, ending, answer)


def fence(bounds: AgentBounds) -> Fence:
    def judge(state: SessionState, tool: Tool) -> str:
        parent = state.work.parent
        if tool.name == "report_result" and parent is None:
            return "only sub-agents report. Give your answer as text."
        if tool.name in BEGINNING and parent is not None and parent.depth >= bounds.depth:
            return f"sub-agents may be nested {bounds.depth} deep, and you are at that depth. Do the work yourself."
        return ""

    return judge


def hidden(state: SessionState, bounds: AgentBounds) -> set[str]:
    """Return the tools of sub-agents that a session does not see; one that inherited its parent's catalogue keeps them
    all."""
    parent, note = state.work.parent, state.notes.get("tools")
    if parent is None:
        return {"report_result"}
    if note is not None:
        return {name for name in TOOLS if f"\n- {name}(" not in note and f"\n- {name}:" not in note}
    return set(BEGINNING) if parent.depth >= bounds.depth else set()
