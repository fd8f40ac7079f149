"""Act: carry out the calls of one reply.

Neighbouring reads run side by side, everything else in the model's order; results reach the model in its order. A call
is on disk before it acts and its result before the model sees it; a call that is not understood, not allowed or cut off
gets a result that says so and is never run.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

import anyio
from msgspec import Struct

from lmagent.core.errors import LmagentError, StoreError, ToolError, ungrouped
from lmagent.core.events import ApprovalRequested, ToolFinished, ToolStarted
from lmagent.core.events import ToolOutput as OutputEvent
from lmagent.core.messages import ToolCall, ToolStatus
from lmagent.core.tool import ToolContext, ToolOutput
from lmagent.engine import gate, intake
from lmagent.engine.loopguard import Alarm, LoopGuard
from lmagent.engine.session import Session
from lmagent.engine.toolbox import Invocation

CUT_OFF = (
    "Your reply was cut off at the token limit inside this call, so it was not run. "
    "Send it again, shorter: write long files in several parts."
)


class Result(Struct, frozen=True):
    """What came of a call: `durable` when it must be on disk before anything goes on."""

    tool: str
    status: ToolStatus
    output: ToolOutput
    duration: float = 0.0
    durable: bool = False


async def act(session: Session, calls: Sequence[ToolCall], truncated: frozenset[str], guard: LoopGuard) -> Alarm | None:
    """Carry out calls; returns the alarm that ends the turn, if there is one.

    Args:
        session: the session.
        calls: the calls, in the model's order.
        truncated: ids of calls that the reply cut off.
        guard: the turn's loop guard.
    """
    alarms: list[Alarm] = []

    async def one(call: ToolCall) -> None:
        result = await _carry_out(session, call, truncated, guard, alarms)
        await _record(session, call, result, guard, alarms)

    for parallel, group in itertools.groupby(calls, key=lambda call: _is_read(session, call)):
        batch = list(group)
        if not parallel or len(batch) == 1:
            for call in batch:
                await one(call)
            continue
        with ungrouped():
            async with anyio.create_task_group() as tasks:
                for call in batch:
                    tasks.start_soon(one, call)
    if (stale := guard.step_done()) is not None:
        alarms.append(stale)
    return alarms[0] if alarms else None


def _is_read(session: Session, call: ToolCall) -> bool:
    tool = session.wiring.toolbox.get(call.name)
    return tool is not None and tool.effect == "read"


async def _carry_out(
    session: Session, call: ToolCall, truncated: frozenset[str], guard: LoopGuard, alarms: list[Alarm]
) -> Result:
    if call.id in truncated:
        return Result(call.name, "error", ToolOutput(CUT_OFF, {"code": "cut_off"}))
    try:
        invocation = session.wiring.toolbox.resolve(call)
    except ToolError as refusal:
        return Result(call.name, "error", ToolOutput(refusal.message, refusal.data))
    if (alarm := guard.before(call)) is not None:
        if alarm.action == "stop":
            alarms.append(alarm)
        return Result(invocation.tool.name, "error", ToolOutput(alarm.text, {"code": "loop"}))
    if (denial := await _permit(session, invocation)) is not None:
        return Result(invocation.tool.name, "denied", denial)
    return await _run(session, invocation)


async def _permit(session: Session, invocation: Invocation) -> ToolOutput | None:
    """None when the call may run, else what the model is told."""
    tool = invocation.tool
    request = gate.Request(tool.name, tool.effect, _targets(session, invocation))
    verdict = gate.judge(request, session.state.mode, session.wiring.rules, session.state.grants)
    if verdict.decision == "allow":
        return None
    if verdict.decision == "deny":
        return ToolOutput(f"Denied: {verdict.reason}. It was not run.", {"code": "denied"})
    answer = await session.ask(
        ApprovalRequested(
            call_id=invocation.call.id,
            tool=tool.name,
            summary=invocation.summary,
            preview=_preview(session, invocation),
            reason=verdict.reason,
            grant=verdict.grant,
        )
    )
    if answer.approved:
        return None
    if answer.by == "unattended":
        text = f"Denied: {verdict.reason}, and nobody is there to answer. It was not run. Do what you can without it."
        return ToolOutput(text, {"code": "denied", "unattended": True})
    words = f' They say: "{answer.feedback}"' if answer.feedback else ""
    return ToolOutput(f"The user denied this call. It was not run.{words}", {"code": "denied"})


def _targets(session: Session, invocation: Invocation) -> tuple[str, ...]:
    """The paths that rules are matched against: relative to the workspace, as named and with links resolved."""
    root = session.state.workspace
    real_root = os.path.realpath(root)
    named = [os.path.normpath(os.path.join(root, target)) for target in invocation.targets]
    real = [os.path.realpath(path) for path in named]
    pairs = [*((path, root) for path in named), *((path, real_root) for path in real)]
    return tuple(dict.fromkeys(os.path.relpath(path, base).replace(os.sep, "/") for path, base in pairs))


def _preview(session: Session, invocation: Invocation) -> str:
    if invocation.tool.preview is None:
        return ""
    try:
        return invocation.tool.preview(invocation.arguments, _context(session, invocation.call))
    except (ToolError, OSError) as trouble:
        return f"(no preview: {trouble})"  # the call itself will say the same, if it is approved


async def _run(session: Session, invocation: Invocation) -> Result:
    tool, call = invocation.tool, invocation.call
    durable = tool.effect != "read"
    started = ToolStarted(
        call_id=call.id,
        tool=tool.name,
        effect=tool.effect,
        summary=invocation.summary,
        replay_safe=tool.replay_safe or not durable,
    )
    await session.record(started, sync=durable)
    clock = session.wiring.clock
    begun = clock.monotonic()
    status: ToolStatus = "error"
    try:
        output = await tool.run(invocation.arguments, _context(session, call))
        status = "ok"
    except ToolError as refusal:
        output = ToolOutput(refusal.message, refusal.data)
    except StoreError:
        raise
    except LmagentError as failure:
        output = ToolOutput(str(failure))
    except Exception as bug:  # noqa: BLE001  the tool boundary: a bug in a tool must not end the session
        output = ToolOutput(f"{tool.name} failed: {type(bug).__name__}: {bug}", {"code": "crashed"})
    return Result(tool.name, status, output, round(clock.monotonic() - begun, 4), durable)


async def _record(session: Session, call: ToolCall, result: Result, guard: LoopGuard, alarms: list[Alarm]) -> None:
    output = result.output
    content, artifact = await _take_in(session, output)
    if output.data.get("code") not in ("loop", "denied"):
        alarm = guard.after(call, result.status, output.content)
        if alarm is not None and alarm.action == "hint":
            content = f"{content}\n{alarm.text}"
        elif alarm is not None:
            alarms.append(alarm)
    whole = output.content if output.full is None else output.full
    finished = ToolFinished(
        call_id=call.id,
        tool=result.tool,
        status=result.status,
        content=content,
        artifact=artifact,
        size=len(whole.encode("utf-8", "surrogatepass")),
        data=output.data,
        duration=result.duration,
    )
    await session.record(finished, sync=result.durable)


async def _take_in(session: Session, output: ToolOutput) -> tuple[str, str | None]:
    """What the model is told, and the blob of the whole where that is more."""
    cap = session.window.result_cap
    content = output.content or "(no output)"
    if output.full is None and intake.fits(content, cap):
        return content, None
    whole = output.content if output.full is None else output.full
    artifact = await session.log.put_blob(whole.encode("utf-8", "surrogatepass"))
    return intake.cap(content, cap, artifact[:12]), artifact


def _context(session: Session, call: ToolCall) -> ToolContext:
    return ToolContext(
        session=session.state.session,
        call=call.id,
        workspace=Path(session.state.workspace),
        seen=session.state.files,
        emit=lambda text: session.emit_live(OutputEvent(call_id=call.id, text=text, turn=session.state.turn)),
    )
