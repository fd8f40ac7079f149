"""Act: carry out the calls of one reply.

Neighbouring reads run side by side, everything else in the model's order; results reach the model in its order. A call
is on disk before it acts and its result before the model sees it; a call that is not understood, not allowed or cut off
gets a result that says so and is never run.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial

import anyio
from msgspec import Struct
from msgspec.structs import replace

from lmagent.core.errors import LmagentError, StoreError, ToolError, ungrouped
from lmagent.core.events import ApprovalRequested, ToolFinished, ToolStarted
from lmagent.core.events import ToolOutput as OutputEvent
from lmagent.core.messages import ToolCall, ToolStatus
from lmagent.core.tool import ToolContext, ToolOutput
from lmagent.engine import constrain, gate, intake, targets
from lmagent.engine.loopguard import Alarm, LoopGuard, marks_of
from lmagent.engine.session import Session
from lmagent.engine.state import BYTES_PER_TOKEN
from lmagent.engine.toolbox import Invocation
from lmagent.engine.undo import keep_before, record_changes

CUT_OFF = (
    "Your reply was cut off at the token limit inside this call, so it was not run. "
    "Send it again, shorter: write long files in several parts."
)


RESULTS_SHARE = 0.35
"""Share of the room between the fixed block and the trigger that all results of one reply may take together."""

SMALLEST_RESULT = 200
"""Tokens below which an excerpt tells nothing."""


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
    cap = _cap(session, len(calls))

    async def one(call: ToolCall) -> None:
        result = await _carry_out(session, call, truncated, guard, alarms)
        await _record(session, call, result, guard, alarms, cap)

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
        asked = _request(session, invocation)
    except ToolError as refusal:
        return Result(call.name, "error", ToolOutput(refusal.message, refusal.data))
    except Exception as bug:  # noqa: BLE001  the tool boundary: what a model writes must not end the session
        return Result(call.name, "error", _crashed(call.name, bug))
    if (alarm := guard.before(call)) is not None:
        if alarm.action == "stop":
            alarms.append(alarm)
        return Result(invocation.tool.name, "error", ToolOutput(alarm.text, {"code": "loop"}))
    if (denial := await _permit(session, invocation, asked)) is not None:
        return Result(invocation.tool.name, "denied", denial)
    return await _run(session, invocation, asked)


class Asked(Struct, frozen=True):
    """What the gate is asked, and what a person would be shown."""

    request: gate.Request
    summary: str


def _request(session: Session, invocation: Invocation) -> Asked:
    tool, named = invocation.tool, invocation.targets
    located = targets.located(str(session.wiring.workspace), named)
    request = gate.Request(tool.name, tool.effect, located, invocation.command)
    return Asked(request, invocation.summary)


async def _permit(session: Session, invocation: Invocation, asked: Asked) -> ToolOutput | None:
    """None when the call may run, else what the model is told."""
    tool = invocation.tool
    for fence in session.wiring.fences:
        if reason := fence(session.state, tool):
            return ToolOutput(f"Denied: {reason} It was not run.", {"code": "denied"})
    verdict = gate.judge(asked.request, session.state.mode, session.wiring.rules, session.state.grants)
    if verdict.decision == "allow":
        return None
    if verdict.decision == "deny":
        return ToolOutput(f"Denied: {verdict.reason}. It was not run.", {"code": "denied"})
    answer = await session.ask(
        ApprovalRequested(
            call_id=invocation.call.id,
            tool=tool.name,
            summary=asked.summary,
            preview=_preview(session, invocation, asked),
            reason=verdict.reason,
            grant=verdict.grant,
        )
    )
    if answer.approved:
        return None
    if answer.by == "unattended":
        text = f"Denied: {verdict.reason}, and nobody is there to answer. It was not run. Do what you can without it."
        return ToolOutput(text, {"code": "denied", "unattended": True, "summary": asked.summary})
    words = f' They say: "{answer.feedback}"' if answer.feedback else ""
    return ToolOutput(f"The user denied this call. It was not run.{words}", {"code": "denied"})


def _preview(session: Session, invocation: Invocation, asked: Asked) -> str:
    if invocation.tool.preview is None:
        return ""
    try:
        shown = invocation.tool.preview(invocation.arguments, _context(session, invocation.call, asked))
    except Exception as trouble:  # noqa: BLE001  the call itself will say the same, if it is approved
        return f"(no preview: {trouble})"
    explained = gate.explain(asked.request)
    return f"{shown}\n→ {explained}" if explained else shown


async def _run(session: Session, invocation: Invocation, asked: Asked) -> Result:
    tool, call = invocation.tool, invocation.call
    durable = tool.effect != "read"
    started = ToolStarted(
        call_id=call.id,
        tool=tool.name,
        effect=tool.effect,
        summary=invocation.summary,
        replay_safe=tool.replay_safe or not durable,
    )
    try:
        watch = await keep_before(session, invocation)
    except ToolError as refusal:
        return Result(tool.name, "error", ToolOutput(refusal.message, refusal.data))
    await session.record(started, sync=durable)
    clock = session.wiring.clock
    begun = clock.monotonic()
    status: ToolStatus = "error"
    try:
        output = await tool.run(invocation.arguments, _context(session, call, asked))
        status = "ok"
    except ToolError as refusal:
        output = ToolOutput(refusal.message, refusal.data)
    except StoreError:
        raise
    except LmagentError as failure:
        output = ToolOutput(str(failure))
    except Exception as bug:  # noqa: BLE001  the tool boundary: a bug in a tool must not end the session
        output = _crashed(tool.name, bug)
    except anyio.get_cancelled_exc_class():
        if durable:
            with anyio.CancelScope(shield=True):  # what it did till then can be taken back too
                await record_changes(session, watch)
        raise
    duration = round(clock.monotonic() - begun, 4)
    if durable:
        await record_changes(session, watch)
    return Result(tool.name, status, output, duration, durable)


def _crashed(tool: str, bug: Exception) -> ToolOutput:
    return ToolOutput(f"{tool} failed: {type(bug).__name__}: {bug}", {"code": "crashed"})


async def _record(
    session: Session, call: ToolCall, result: Result, guard: LoopGuard, alarms: list[Alarm], cap: int
) -> None:
    output = result.output
    content, artifact = await _take_in(session, output, cap)
    if output.data.get("code") not in ("loop", "denied"):
        marks = marks_of(session.state.changes, call.id, output.data)
        alarm = guard.after(call, result.status, output.content, output.data, marks)
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
    if output.data.get("code") == "malformed_arguments":
        await constrain.failed(session, "its arguments were no valid JSON")


def _cap(session: Session, calls: int) -> int:
    """Tokens of one result: the results of one reply arrive together, and must leave room for going on."""
    window = session.window
    state = session.state
    room = window.trigger - state.tokens(state.fixed_bytes)
    tokens = min(window.result_cap, max(SMALLEST_RESULT, int(room * RESULTS_SHARE) // calls))
    return min(tokens, state.bytes(tokens) // BYTES_PER_TOKEN)  # intake counts in bytes / 4


async def _take_in(session: Session, output: ToolOutput, cap: int) -> tuple[str, str | None]:
    """What the model is told, and the blob of the whole where that is more."""
    content = output.content or "(no output)"
    if output.file is not None:
        artifact = await session.keep_file(output.file)
        return intake.cap(content, cap, artifact[:12]), artifact
    if output.full is None and intake.fits(content, cap):
        return content, None
    whole = output.content if output.full is None else output.full
    artifact = await session.keep(whole)
    return intake.cap(content, cap, artifact[:12]), artifact


def _context(session: Session, call: ToolCall, asked: Asked) -> ToolContext:
    context = ToolContext(
        session=session.state.session,
        call=call.id,
        workspace=session.wiring.workspace,
        seen=session.state.files,
        emit=lambda text: session.emit_live(OutputEvent(call_id=call.id, text=text, turn=session.state.turn)),
        ask_host=partial(_ask_host, session, call),
    )
    hides = gate.sight(asked.request, session.wiring.rules)
    return replace(context, hidden=targets.through_links(str(session.wiring.workspace), hides)) if hides else context


async def _ask_host(session: Session, call: ToolCall, host: str, port: int) -> bool:
    """Put a connection of a running command before a person. No mode answers that: it leaves the machine."""
    grant = f"net({host}:{port})"
    if grant in session.state.grants:
        return True
    answer = await session.ask(
        ApprovalRequested(
            call_id=f"{call.id}/{host}:{port}",
            tool="net",
            summary=f"connect to {host}:{port}",
            reason=f"{host} is not among the hosts that commands may reach",
            grant=grant,
        )
    )
    return answer.approved
