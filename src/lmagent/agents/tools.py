"""Tools: what delegate and decompose do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import anyio

from lmagent.agents.childhost import ChildHost
from lmagent.agents.feature import DecomposeArgs, DelegateArgs
from lmagent.agents.orders import Order, order_of, orders_of
from lmagent.agents.run import ChildRunner, outcome
from lmagent.core.errors import ToolError, ungrouped
from lmagent.core.tool import ToolContext, ToolOutput
from lmagent.core.work import ChildResult
from lmagent.engine.session import Session

FAILED = ("error", "blocked")
"""Results with which a task counts as failed: what depends on it is skipped."""


async def delegate(host: ChildHost, runner: ChildRunner, arguments: DelegateArgs, context: ToolContext) -> ToolOutput:
    """Run one sub-agent for one task. Raises ToolError if the order cannot be carried out, or the sub-agent failed."""
    parent = host.session(context.session)
    order = order_of(arguments, context.workspace)
    result = await runner.run(parent, context.call, order, dict)
    data: dict[str, object] = {
        "agent": result.agent_id,
        "status": result.status,
        "artifacts": list(result.artifacts),
    }
    if result.status == "error":
        raise ToolError(outcome(result), data=data)
    return ToolOutput(outcome(result), data)


async def decompose(host: ChildHost, runner: ChildRunner, arguments: DecomposeArgs, context: ToolContext) -> ToolOutput:
    """Run several sub-agents, in the order of their dependencies.

    Raises ToolError if the manifest cannot be carried out, or every task failed or was skipped.
    """
    parent = host.session(context.session)
    orders = orders_of(arguments.manifest, context.workspace)
    results = await _all(runner, parent, context.call, orders)
    return _told(orders, results)


async def _all(
    runner: ChildRunner, parent: Session, call: str, orders: Sequence[Order]
) -> dict[str, ChildResult | None]:
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
