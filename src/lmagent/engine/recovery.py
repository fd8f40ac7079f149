"""Recovery: make an interrupted conversation valid again, by appending only.

A call that had begun and may have acted is reported to the model as interrupted, and is never repeated. A call that had
not begun is reported as not run: the model chose it before the crash, and it may depend on things that the crash
damaged.
"""

from __future__ import annotations

from typing import Literal

from lmagent.core.events import OWN_CALL, ApprovalResolved, MessageAdded, ToolFinished, TurnFinished
from lmagent.core.messages import STOPPED, ToolCall, assistant
from lmagent.engine import undo
from lmagent.engine.session import Session

OUTCOME_UNKNOWN = (
    "Interrupted: it had started and its outcome is unknown. It may have acted, fully or in part. "
    "It was not repeated. Check the state before you continue."
)
CUT_SHORT = "Interrupted before it ended."
NOT_RUN = "Not run: the turn ended before it could start."
NOT_BEGUN = (
    "Not run: the program ended before this call began. Look at what came of the calls before it, "
    "and call again if it is still right."
)
NO_REPLY = "[no reply: the turn ended here]"

Cause = Literal["interrupt", "crash"]
"""Why a turn cannot continue."""


async def report_interrupted_calls(session: Session) -> None:
    """Give a result to every open call that had started, except calls that are safe to repeat.

    Their changes are recorded first, so that they can be undone.
    """
    await undo.record_interrupted(session)
    await close_own_calls(session)
    for call in session.state.open_calls:
        started = session.state.started.get(call.id)
        if started is not None and not started.replay_safe:
            await _report(session, call, OUTCOME_UNKNOWN, "interrupted")


async def close_own_calls(session: Session, begins: str = OWN_CALL) -> None:
    """End the calls that lmagent made itself: the feature that made a call decides whether to repeat it.

    `begins`: only the calls whose ids begin so.
    """
    state = session.state
    own = [one for one in state.approvals.values() if one.call_id.startswith(begins)]
    for request in [one for one in own if one.call_id.partition("/")[0] not in state.calls]:
        await session.record(ApprovalResolved(approval=request.id, call_id=request.call_id, approved=False, by="crash"))
    for started in [one for one in state.started.values() if one.call_id.startswith(begins)]:
        if started.call_id not in state.calls:
            await _report(session, ToolCall(started.call_id, started.tool, ""), CUT_SHORT, "interrupted")


async def report_calls_not_begun(session: Session) -> None:
    """Report the calls of an interrupted reply that had not begun, so that the model decides about them.

    Three kinds of calls stay open: a call with a pending approval, a call that is safe to repeat and had begun (a
    sub-agent's work continues), and a call that the reply cut off, whose result says so.
    """
    state = session.state
    asked = {request.call_id for request in state.approvals.values()} | set(session.resolved)
    begun = {call for call, _ in state.work.children} | set(state.started)
    for call in state.open_calls:
        if call.id not in asked and call.id not in begun and call.id not in state.truncated:
            await _report(session, call, NOT_BEGUN, "not_run")


async def close_turn(session: Session, cause: Cause, reason: str) -> TurnFinished:
    """End a turn that cannot continue: every call gets its result, the partial reply is kept."""
    # Before the results: a call's result ends its approvals, without an event for watchers.
    for request in list(session.state.approvals.values()):
        await session.record(ApprovalResolved(approval=request.id, call_id=request.call_id, approved=False, by=cause))
    await close_calls(session)
    await _keep_partial(session)
    finished = TurnFinished(outcome="interrupted", cause=cause, reason=reason, steps=session.state.step)
    stored = await session.record(finished, sync=True)
    assert isinstance(stored, TurnFinished)
    return stored


async def close_conversation(session: Session) -> None:
    """Close all open calls before a new input, and answer a sent message that has no reply."""
    await close_calls(session)
    if session.state.awaits_reply:
        await session.record(MessageAdded(message=assistant(NO_REPLY), origin="recovery"))


async def close_calls(session: Session) -> None:
    """Give every open call a result, so that the conversation can be sent or cut."""
    await report_interrupted_calls(session)
    for call in session.state.open_calls:
        abandon = session.wiring.abandon
        if abandon is not None and any(begun == call.id for begun, _ in session.state.work.children):
            await _report(session, call, await abandon(session, call.id), "interrupted")
        else:
            await _report(session, call, NOT_RUN, "not_run")


async def _report(session: Session, call: ToolCall, text: str, code: str) -> None:
    finished = ToolFinished(
        call_id=call.id, tool=call.name, status="interrupted", content=text, size=len(text), data={"code": code}
    )
    await session.record(finished)


async def _keep_partial(session: Session) -> None:
    text = "".join(session.partial).strip()
    session.partial = []
    if text and session.state.owes_reply:
        await session.record(MessageAdded(message=assistant(text + STOPPED), origin="recovery"))
