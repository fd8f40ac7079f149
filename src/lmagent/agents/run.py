"""Run: what delegate and decompose do; each sub-agent from its order to its result, whatever happens on the way.

`subagent.started` is on record before anything of the sub-agent exists, and `subagent.finished` after everything that
it did. A call that is repeated after a crash finds both: a finished sub-agent does not run again, an unfinished one
resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from weakref import WeakKeyDictionary

import anyio
import msgspec

from lmagent.agents import brief as briefs
from lmagent.agents.childhost import ChildHost, PromptPlace
from lmagent.agents.feature import DecomposeArgs, DelegateArgs
from lmagent.agents.orders import Order, order_of, orders_of
from lmagent.agents.report import kept, overspent, touched_by
from lmagent.core import events as ev
from lmagent.core.commands import Continue, Submit
from lmagent.core.errors import LmagentError, StoreError, ToolError, ungrouped
from lmagent.core.ids import InputOrigin, new_session_id
from lmagent.core.live import SubagentEvent
from lmagent.core.messages import user
from lmagent.core.model import Usage
from lmagent.core.plurals import plural
from lmagent.core.tool import ToolContext, ToolOutput
from lmagent.core.work import ChildResult, ChildStatus
from lmagent.engine import recovery
from lmagent.engine.budget import steps_made
from lmagent.engine.lane import run_until_idle
from lmagent.engine.session import Session

CUT_OFF = "the program ended while it was at work"

_STATUS: dict[ev.Outcome, ChildStatus] = {
    "done": "partial",
    "blocked": "blocked",
    "question": "blocked",
    "waiting": "blocked",
    "limit": "partial",
    "interrupted": "error",
    "error": "error",
}
"""The status for each outcome of a turn without a report."""


FAILED = ("error", "blocked")
"""Results with which a task counts as failed: what depends on it is skipped."""


class ChildRunner:
    def __init__(self, host: ChildHost) -> None:
        self._host = host
        self._turns: WeakKeyDictionary[Session, anyio.Semaphore] = WeakKeyDictionary()

    async def run(
        self, parent: Session, call: str, order: Order, passed: Callable[[], Mapping[str, ChildResult]]
    ) -> ChildResult:
        """Return the result of a sub-agent: the recorded one, or the result of resuming or starting it.

        `passed` returns the results that the order depends on, once its turn has come. Raises LmagentError if the
        sub-agent could not start, or its log cannot be written.
        """
        place = await self._host.place(parent)
        async with self._turns.setdefault(parent, anyio.Semaphore(place.side_by_side)):
            work, key = parent.state.work, (call, order.task)
            if key in work.results:
                return work.results[key]
            started = work.children.get(key)
            if started is None:
                if reason := overspent(parent):
                    return ChildResult(agent_id="", status="error", summary="", error=f"not begun: {reason}")
                own = msgspec.structs.replace(place, inherits=place.inherits and not order.agent)
                started = await self._begin(parent, call, order, own, passed())
            try:
                child = await self._host.open(parent, started)
            except LmagentError as trouble:
                return await self._unopened(parent, started, trouble)
            return await self._attend(parent, started, child)

    async def _begin(
        self, parent: Session, call: str, order: Order, place: PromptPlace, passed: Mapping[str, ChildResult]
    ) -> ev.SubagentStarted:
        id = new_session_id(parent.wiring.clock.now())
        text = briefs.passed_on(parent, passed)
        brief = briefs.brief_of(parent, id, order, self._host.bounds, place, text)
        event = ev.SubagentStarted(call_id=call, child=id, task=order.task, brief=brief)
        stored = await parent.record(event, sync=True)
        assert isinstance(stored, ev.SubagentStarted)
        return stored

    async def _attend(self, parent: Session, started: ev.SubagentStarted, child: Session) -> ChildResult:
        """Let it work, forward its events to the watchers of its parent, and see that it ends."""

        def forward(event: ev.Event) -> None:
            parent.emit_live(SubagentEvent(call_id=started.call_id, child=started.child, event=event))

        child.above, parent.children[started.child] = parent, child
        stop = child.listen(forward)
        for event in child.opening:
            forward(event)
        try:
            try:
                finished = await self._work(parent, started, child)
                return await self._finish(parent, started, child, _result(child, finished))
            except StoreError:
                raise  # a log cannot be written, so nothing more may happen
            except Exception as bug:  # noqa: BLE001  whatever breaks a sub-agent must not end its parent
                result = await self._broken(child, "crash", f"it failed: {type(bug).__name__}: {bug}")
                return await self._finish(parent, started, child, result)
            except anyio.get_cancelled_exc_class():
                if _interrupted(parent):  # else the program ends, and the next one may resume all of it
                    with anyio.CancelScope(shield=True):
                        result = await self._broken(child, "interrupt", "it was interrupted with its parent")
                        await self._finish(parent, started, child, result)
                raise
        finally:
            stop()
            parent.children.pop(started.child, None)
            with anyio.CancelScope(shield=True):
                await self._host.close(child)
            child.above = None

    async def _work(self, parent: Session, started: ev.SubagentStarted, child: Session) -> ev.TurnFinished | None:
        state = child.state
        origin = InputOrigin("agent", started.child)
        if origin in state.work.origins:
            if not state.turn_open and not state.inputs:
                return _last(child)
            await child.send(Continue(by="parent"))
        else:
            await self._keep(parent, partial(briefs.write_brief, parent.wiring.workspace, started.child, started.brief))
            place = PromptPlace(inherits=bool(state.messages), side_by_side=1)
            direct = any(tool.name == "report_result" for tool in state.tools)
            text = briefs.told(started.brief, place, child.agent.limits.steps, direct=direct)
            await child.send(Submit(message=user(text), by="parent", origin=origin))
        finished = await run_until_idle(child, resumable=True)
        await _withdraw(child)
        return finished or _last(child)

    async def _broken(self, child: Session, cause: recovery.Cause, reason: str) -> ChildResult:
        """End the unfinished part of its turn."""
        await _withdraw(child)
        finished = await recovery.close_turn(child, cause, reason) if child.state.turn_open else None
        return _result(child, finished or ev.TurnFinished(outcome="interrupted", cause=cause, reason=reason))

    async def _finish(
        self, parent: Session, started: ev.SubagentStarted, child: Session, result: ChildResult
    ) -> ChildResult:
        await _take_over_changes(parent, started.call_id, child)
        usage = child.state.usage + child.state.work.child_usage
        return await self._record(parent, started, result, usage, steps_made(child.state))

    async def _record(
        self, parent: Session, started: ev.SubagentStarted, result: ChildResult, usage: Usage, steps: int
    ) -> ChildResult:
        result = msgspec.structs.replace(result, iterations=steps, created_at=parent.wiring.clock.now())
        await self._keep(parent, partial(briefs.write_result, parent.wiring.workspace, started.child, result))
        event = ev.SubagentFinished(
            call_id=started.call_id, child=started.child, task=started.task, result=result, usage=usage, steps=steps
        )
        stored = await parent.record(event, sync=True)
        assert isinstance(stored, ev.SubagentFinished)
        return stored.result

    async def _keep(self, parent: Session, write: Callable[[], None]) -> None:
        """Write a file for others to read; a failure only produces a notice, because the log has it all."""
        try:
            write()
        except StoreError as trouble:
            text = f"a sub-agent's brief or result was not kept as a file: {trouble.message}"
            await parent.notify("warning", "brief_not_kept", text, trouble)

    async def _unopened(self, parent: Session, started: ev.SubagentStarted, trouble: LmagentError) -> ChildResult:
        result = ChildResult(agent_id=started.child, status="error", summary="", error=trouble.message)
        return await self._record(parent, started, result, Usage(), 0)

    async def abandon(self, parent: Session, call: str) -> str:
        """End the sub-agents of a call that will not resume; returns the text about all of them for the model."""
        work = parent.state.work
        for key, started in list(work.children.items()):
            if key[0] == call and key not in work.results:
                await self._abandon(parent, started)
        lines = [outcome(work.results[key], key[1]) for key in work.children if key[0] == call]
        return "\n\n".join(("Interrupted. What its sub-agents have done till then stands:", *lines))

    async def _abandon(self, parent: Session, started: ev.SubagentStarted) -> None:
        try:
            child = await self._host.open(parent, started)
        except LmagentError as trouble:
            await self._unopened(parent, started, trouble)
            return
        try:
            await self._finish(parent, started, child, await self._broken(child, "crash", CUT_OFF))
        finally:
            await self._host.close(child)


def _last(child: Session) -> ev.TurnFinished | None:
    return next((event for event in reversed(list(child.log.events())) if isinstance(event, ev.TurnFinished)), None)


async def _withdraw(child: Session) -> None:
    for item in child.state.waiting("submit", "queue", "steer"):
        await child.record(ev.InputWithdrawn(input=item.id))


def _interrupted(session: Session | None) -> bool:
    while session is not None:
        if session.scope is not None and session.scope.cancel_called:
            return True
        session = session.above
    return False


def _result(child: Session, finished: ev.TurnFinished | None) -> ChildResult:
    state, workspace, touched = child.state, child.wiring.workspace, touched_by(child)
    written = {path for path, mark in state.files.items() if mark.changed}
    written |= {path for result in state.work.results.values() for path in result.artifacts}
    if (reported := state.work.reported) is not None:  # it changed these files whether it named them or not
        reported = msgspec.structs.replace(reported, artifacts=(*reported.artifacts, *sorted(written)))
        return kept(workspace, _as_of_now(child, reported), touched)
    if finished is None:
        finished = ev.TurnFinished(outcome="error", reason="it ended without a word")
    reason = finished.reason or {"done": "it ended without reporting"}.get(finished.outcome, finished.outcome)
    if finished.outcome == "question":
        reason = f"it asks, and no user can answer inside a sub-agent: {reason}"
    if finished.cause == "permission":
        reason += "; a call was denied because no user could be asked"
    status = _STATUS[finished.outcome]
    if finished.cause in ("narration", "no_report") and finished.answer.strip():
        status = "partial"
    written |= {change.path for event in state.changes for change in event.changes}
    result = ChildResult(
        agent_id=state.session, status=status, summary=finished.answer, artifacts=tuple(sorted(written)), error=reason
    )
    return kept(workspace, result, touched)


def _as_of_now(child: Session, reported: ChildResult) -> ChildResult:
    """Return its report; a report from before a later message, and not repeated since, counts as partial."""
    if child.state.work.reported_in == child.state.turn:
        return reported
    reasons = (reported.error, "it got a message after this report, and has not reported again")
    status = "partial" if reported.status == "ok" else reported.status
    return msgspec.structs.replace(reported, status=status, error="; ".join(reason for reason in reasons if reason))


async def _take_over_changes(parent: Session, call: str, child: Session) -> None:
    """Record the changes of a sub-agent with its parent too: the user sees and undoes them there."""
    known = {
        (event.call_id, event.tool, event.changes, event.blob)
        for event in (*parent.state.changes, *parent.state.undone)
    }
    for event in child.state.changes:
        own = msgspec.structs.replace(event, id="", seq=0, ts=0.0, turn=0, call_id=call)
        if (call, own.tool, own.changes, own.blob) in known:
            continue  # a crash came between the two events
        if own.blob:
            await parent.log.put_blob(child.log.get_blob(own.blob))
        await parent.record(own)


def outcome(result: ChildResult, task: str = "") -> str:
    name = f"{task}: " if task else "Sub-agent "
    took = f" ({plural(result.iterations, 'step')})" if result.iterations else ""
    lines = [f"{name}{result.status}{took}"]
    if result.summary:
        lines.append(result.summary)
    if result.artifacts:
        lines.append(f"Files: {', '.join(result.artifacts)}")
    if result.data is not None:
        lines.append(f"Data: {msgspec.json.encode(result.data).decode()}")
    if result.error:
        lines.append(f"Error: {result.error}")
    return "\n".join(lines)


async def delegate(host: ChildHost, runner: ChildRunner, arguments: DelegateArgs, context: ToolContext) -> ToolOutput:
    """Run one sub-agent for one task. Raises ToolError if the order cannot be carried out, or the sub-agent failed."""
    parent = host.session(context.session)
    order = order_of(arguments, context.workspace)
    result = await runner.run(parent, context.call, order, dict)
    data: dict[str, object] = {"agent": result.agent_id, "status": result.status, "artifacts": list(result.artifacts)}
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
