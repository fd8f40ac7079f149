"""Tools: delegate and decompose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import anyio

from lmagent.agents.nursery import Nursery
from lmagent.agents.orders import DecomposeArgs, DelegateArgs
from lmagent.core.errors import ToolError, ungrouped
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.core.work import ChildResult

if TYPE_CHECKING:
    from lmagent.agents.orders import Order
    from lmagent.agents.run import Runner
    from lmagent.engine.session import Session

FAILED = ("error", "blocked")
"""Results with which a task counts as failed: what depends on it is skipped."""


def delegate_tool(nursery: Nursery, runner: Callable[[], Runner]) -> Tool:
    """delegate: one sub-agent for one task.

    It is a reading tool to the gate: it harms nothing itself, and what the sub-agent does is asked for there.
    """

    async def run(arguments: DelegateArgs, context: ToolContext) -> ToolOutput:
        from lmagent.agents.orders import order_of
        from lmagent.agents.run import outcome

        parent = nursery.session(context.session)
        order = order_of(arguments, context.workspace)
        result = await runner().run(parent, context.call, order, dict)
        data: dict[str, object] = {
            "agent": result.agent_id,
            "status": result.status,
            "artifacts": list(result.artifacts),
        }
        if result.status == "error":
            raise ToolError(outcome(result), data=data)
        return ToolOutput(outcome(result), data)

    return Tool(
        name="delegate",
        description="Give a task to a sub-agent with a context of its own; returns its result.",
        arguments=DelegateArgs,
        effect="read",
        run=run,
        replay_safe=True,
        deferred=True,
        aliases=("task",),
        renames={"instructions": "objective", "file_path": "deliverable_path", "task_type": "deliverable_description"},
        summary=lambda arguments: f"delegate: {arguments.objective}".replace("\n", " ")[:120],
    )


def decompose_tool(nursery: Nursery, runner: Callable[[], Runner]) -> Tool:
    """decompose: several sub-agents, in the order of their dependencies."""

    async def run(arguments: DecomposeArgs, context: ToolContext) -> ToolOutput:
        from lmagent.agents.orders import orders_of

        parent = nursery.session(context.session)
        orders = orders_of(arguments.manifest, context.workspace)
        results = await _all(runner(), parent, context.call, orders)
        return _told(orders, results)

    return Tool(
        name="decompose",
        description="Run up to 8 sub-agents in dependency order. manifest: "
        "[{task_id, objective, deliverable: {type, description, path}, constraints, depends_on: [task_id]}]",
        arguments=DecomposeArgs,
        effect="read",
        run=run,
        replay_safe=True,
        deferred=True,
        renames={"manifest_json": "manifest", "tasks": "manifest"},
        summary=lambda arguments: "decompose",
    )


async def _all(runner: Runner, parent: Session, call: str, orders: Sequence[Order]) -> dict[str, ChildResult | None]:
    """The result of each task; None for one that was skipped."""
    results: dict[str, ChildResult | None] = {}
    over = {order.task: anyio.Event() for order in orders}

    async def one(order: Order) -> None:
        for name in order.depends_on:
            await over[name].wait()
        needed = {name: result for name in order.depends_on if (result := results[name]) is not None}
        if len(needed) < len(set(order.depends_on)) or any(result.status in FAILED for result in needed.values()):
            results[order.task] = None
        else:
            results[order.task] = await runner.run(parent, call, order, lambda: needed)
        over[order.task].set()

    with ungrouped():
        async with anyio.create_task_group() as tasks:
            for order in orders:
                tasks.start_soon(one, order)
    return results


def _told(orders: Sequence[Order], results: Mapping[str, ChildResult | None]) -> ToolOutput:
    from lmagent.agents.run import outcome

    parts: list[str] = []
    statuses: dict[str, str] = {}
    for order in orders:
        result = results[order.task]
        if result is None:
            failed = [name for name in order.depends_on if (it := results[name]) is None or it.status in FAILED]
            parts.append(f"{order.task}: skipped, since it needs {', '.join(failed)}")
            statuses[order.task] = "skipped"
        else:
            parts.append(outcome(result, order.task))
            statuses[order.task] = result.status
    data: dict[str, object] = {"tasks": statuses}
    if all(status in (*FAILED, "skipped") for status in statuses.values()):
        raise ToolError("\n\n".join(parts), data=data)
    return ToolOutput("\n\n".join(parts), data)
