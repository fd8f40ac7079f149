"""Turn: from a user's input until idle. The one loop.

    begin → deliver the input → [ compact? → step → calls? act : what does the text mean? ]* → finish

A turn has one of seven outcomes: done, blocked, waiting, question, limit, interrupted, error. An announcement of work
does not end it: the model is reminded, twice at most, and then the turn ends as the error "narration".
"""

from __future__ import annotations

from collections import Counter

from msgspec import Struct, field

from lmagent.core.agent import USER_INPUT
from lmagent.core.commands import SetWork
from lmagent.core.errors import ProviderError
from lmagent.core.events import InputWithdrawn, MessageAdded, Outcome, TurnFinished, TurnStarted
from lmagent.core.messages import CUT_OFF, NO_WORDS, Message, Text, ToolResult, user
from lmagent.core.model import ModelReply
from lmagent.core.outside import STEERING
from lmagent.engine import budget, constrain, recovery
from lmagent.engine.act import act, perform
from lmagent.engine.context import intake
from lmagent.engine.context.window import compact_if_needed
from lmagent.engine.loopguard import Alarm, LoopGuard
from lmagent.engine.review import Again, End, Perform
from lmagent.engine.session import Session
from lmagent.engine.step import take_step

NUDGE_ACT = (
    "You announced what you will do but called no tool. Call the tool now. "
    "If the task is finished, give the final answer; if you cannot go on, write BLOCKED: and the reason."
)
NUDGE_EMPTY = "Your reply was empty. Call a tool, or give the final answer."
NUDGE_ENDLESS = (
    "Your reply repeated itself or did not end, so it was cut off. Nothing in it was carried out. Reply again, much "
    "shorter: write a long file in parts with mode=append, and let a command make text that repeats."
)
NUDGE_CUT = "Your reply was cut off at the token limit. Go on exactly where it stopped."

HELD_BACK = "A message of the user was held back. Continue, or give the final answer again."

INPUT_SHARE = 0.5
"""Share of the room between the fixed block and the compaction trigger that one message of the user may take."""

SMALLEST_INPUT = 1000
"""Tokens that always count as room."""


class TurnProgress(Struct):
    """A turn's memory besides the log; `reminders` counts texts to the model by their subject."""

    guard: LoopGuard
    steps: int = 0
    acted: bool = False
    cuts: int = 0
    pieces: list[str] = field(default_factory=list[str])
    reminders: Counter[str] = field(default_factory=Counter[str])


async def begin(session: Session) -> TurnFinished:
    """Start a turn with the oldest waiting input and run it to its end."""
    await recovery.close_conversation(session)
    first = session.state.waiting("submit", "queue", "steer")[0]
    if first.way is not None:  # before the turn: if a crash comes here, the turn begins again with its way
        await session.send(SetWork(mode=first.way.mode, then=first.way.then, by=first.by))
    await session.record(TurnStarted(turn=session.state.turn + 1))
    if (refused := await _deliver_input(session)) is not None:
        return refused
    return await _run(session, acted=False)


async def resume(session: Session) -> TurnFinished:
    """Continue an unfinished turn from its last recorded event."""
    state = session.state
    if not state.turn_open:
        await session.record(TurnStarted(turn=state.turn + 1))
    elif not state.step and state.waiting("submit", "queue", "steer"):
        await recovery.close_conversation(session)
        if (refused := await _deliver_input(session)) is not None:
            return refused
    acted = any(message.tool_calls for message in state.messages[-40:])
    return await _run(session, acted=acted)


async def _deliver_input(session: Session) -> TurnFinished | None:
    """Add the oldest waiting input to the conversation; if a hook refuses it, end the turn without it."""
    await _notes(session)
    first = session.state.waiting("submit", "queue", "steer")[0]
    if session.wiring.hooks is not None and (reason := await session.wiring.hooks.on_input(session, first)):
        # The turn ends first: after a crash in between, the input begins another turn, and is refused again.
        finished = await finish(session, End("blocked", "hook", reason, fix="change the message, or the hook"), 0)
        await session.record(InputWithdrawn(input=first.id), sync=True)
        return finished
    message = await _fitted(session, _in_template(session.agent.template, first.message))
    await session.record(MessageAdded(message=message, origin="input", input=first.id))
    return None


def _in_template(template: str, message: Message) -> Message:
    """Return the message with its text in the agent's template, if it has one."""
    if not template:
        return message
    others = (part for part in message.parts if not isinstance(part, Text))
    return Message(message.role, (Text(template.replace(USER_INPUT, message.text)), *others))


async def _fitted(session: Session, message: Message) -> Message:
    """Return the message, capped like a tool's result if it would fill the window; the whole becomes an artifact."""
    state, window = session.state, session.window
    cap = state.bytes(int(INPUT_SHARE * max(SMALLEST_INPUT, window.trigger - state.tokens(state.fixed_bytes))))
    if intake.fits(message.text, cap):
        return message
    artifact = (await session.keep(message.text))[:12]
    text = (
        f"the message has about {state.tokens(len(message.text.encode('utf-8', 'replace'))):,} tokens, too many for a "
        f"window of {window.tokens:,}: the model is shown its beginning and end, and can read the rest "
        f"(artifact:{artifact})"
    )
    await session.notify("warning", "input_capped", text, "load the model with more context")
    others = (part for part in message.parts if not isinstance(part, Text))
    return Message(message.role, (Text(intake.cap(message.text, cap, artifact)), *others))


async def compact_only(session: Session) -> None:
    """Compact at the user's request. Open calls are closed first: after the cut their results would have no call."""
    from lmagent.engine.context.compaction import compact

    await recovery.close_calls(session)
    await compact(session, "command")


async def _run(session: Session, *, acted: bool) -> TurnFinished:
    session.turn_began = session.wiring.clock.monotonic()
    session.turn_tokens_before = budget.tokens_spent(session.state)
    session.tried.clear()
    progress = TurnProgress(LoopGuard(session.agent.limits), acted=acted, cuts=session.state.compactions)
    try:
        end = await _loop(session, progress)
    except ProviderError as failure:
        cause = type(failure).__name__
        end = End("error", cause, failure.message, "".join(session.partial), failure.fix, failure.terminal)
        session.partial = []
    return await finish(session, end, progress.steps)


async def finish(session: Session, end: End, steps: int) -> TurnFinished:
    denied = bool(session.state.unattended_denials) and end.outcome in ("done", "blocked")
    event = TurnFinished(
        outcome=end.outcome,
        cause="permission" if denied else end.cause,
        reason=end.reason,
        answer=end.answer,
        steps=steps,
        fix=end.fix,
        terminal=end.terminal or ("allow it with --permission auto, or with a rule" if denied else ""),
        until=end.until,
    )
    for review in session.wiring.reviews:
        event = review.finished(session, event)
    stored = await session.record(event, sync=True)
    assert isinstance(stored, TurnFinished)
    return stored


async def _loop(session: Session, progress: TurnProgress) -> End:
    if (end := await _unfinished(session, progress)) is not None:
        return end
    while True:
        await _deliver_steering(session)
        if (end := budget.over(session, steps=progress.steps)) is not None:
            return end
        await compact_if_needed(session)
        if (end := budget.over(session, steps=progress.steps)) is not None:
            return end  # the summary has used the rest
        reply = await take_step(session)
        progress.steps += 1
        if reply.message.tool_calls:
            end = await _act(session, reply, progress)
        else:
            end = await _judge(session, reply, progress)
        if end is not None:
            return end


async def _unfinished(session: Session, progress: TurnProgress) -> End | None:
    """Settle the remains of a crash: report calls as interrupted or not run, judge an answer."""
    await recovery.report_interrupted_calls(session)
    await recovery.report_calls_not_begun(session)
    state = session.state
    if calls := state.open_calls:
        alarm = await act(session, calls, frozenset(state.truncated), progress.guard)
        return _alarm_end(alarm) if alarm else await _reviewed(session)
    if state.messages and state.messages[-1].role == "assistant":
        return await _conclude(session, state.messages[-1].text, progress)
    return await _reviewed(session) if state.step and not state.awaits_reply else None


async def _act(session: Session, reply: ModelReply, progress: TurnProgress) -> End | None:
    guard = progress.guard
    progress.acted = True
    progress.pieces.clear()
    del progress.reminders["empty"], progress.reminders["endless"]
    if progress.cuts != session.state.compactions:
        progress.cuts = session.state.compactions
        parts = (part for message in session.state.messages for part in message.parts)
        guard.cut({part.call_id for part in parts if isinstance(part, ToolResult)})
    alarm = await act(session, reply.message.tool_calls, reply.truncated_calls, guard)
    if not guard.stale_steps:
        del progress.reminders["nudge"]  # a model that repeats an old call after a nudge has not begun to work
    await _notes(session)
    return _alarm_end(alarm) if alarm else await _reviewed(session)


async def _reviewed(session: Session) -> End | None:
    """Ask the reviews after a round of calls; a crash may have come before they were asked."""
    for review in session.wiring.reviews:
        if (end := await review.after_calls(session)) is not None:
            return end
    return None


async def _judge(session: Session, reply: ModelReply, progress: TurnProgress) -> End | None:
    """Return the end that a reply without a call means; None to continue."""
    text = reply.message.text
    if reply.finish_reason == "content_filter":
        return End("error", "content_filter", "the model server's content filter stopped the reply", text)
    if session.state.waiting("steer"):
        return None
    progress.pieces.append(text)
    answer = "".join(progress.pieces)
    if reply.finish_reason == "length":
        end = End("error", "length", "the reply hit the token limit again and again", answer)
        return await _again(session, progress, Again("nudge", NUDGE_CUT, session.agent.limits.nudges, end))
    progress.pieces.clear()
    return await _conclude(session, answer, progress)


async def _conclude(session: Session, answer: str, progress: TurnProgress) -> End | None:
    from lmagent.engine import endings  # its patterns take 2 ms: not before the first request

    if not answer.strip() or answer == NO_WORDS:
        return await _useless(session, progress, "empty", NUDGE_EMPTY, session.agent.limits.empties)
    if answer.endswith(CUT_OFF):
        return await _useless(session, progress, "endless", NUDGE_ENDLESS, session.agent.limits.endless)
    ending = endings.classify(answer, acted=progress.acted, converses=session.agent.converses)
    for review in session.wiring.reviews:
        while isinstance(verdict := await review.at_end(session, ending, answer), Perform):
            await perform(session, verdict.invocation, verdict.mode)
        if verdict is not None:
            return verdict if isinstance(verdict, End) else await _again(session, progress, verdict)
    match ending.kind:
        case "narration":
            if progress.reminders["nudge"]:
                await constrain.failed(session, "it announced calls and made none")
                await _notes(session)
            reason = f"incomplete: the model announced work and did none of it: {ending.reason}"
            end = End("error", "narration", reason, answer)
            return await _again(session, progress, Again("nudge", NUDGE_ACT, session.agent.limits.nudges, end))
        case "waiting":
            return await _wait(session, ending.when, answer, progress)
        case "blocked" | "question":
            return End(ending.kind, ending.kind, ending.reason, answer)
        case "done":
            if (doubt := endings.doubt(session, answer)) is not None:
                return await _again(session, progress, doubt)
            return End("done", answer=endings.answer_of(answer))


async def _wait(session: Session, when: str, answer: str, progress: TurnProgress) -> End | None:
    """End the turn until a time. A time that has passed, or is not valid, is refused with the reason."""
    from lmagent.engine import endings

    now = session.wiring.clock.now()
    found = endings.read_wait(when, now)
    if not isinstance(found, str) and found.until <= now:
        found = f"that time has passed: it is {endings.local(now)} now. Go on."
    if isinstance(found, str):
        end = End("error", "wait", f"the model asked for a wait that cannot be: {found}", answer)
        again = Again("wait", f"There was no wait: {found}", session.agent.limits.nudges, end)
        return await _again(session, progress, again)
    reason = f"until {endings.local(found.until)}: {found.reason}"
    typed = "it resumes at that time while a chat has it open or `lmagent scheduler` runs"
    return End("waiting", "wait", reason, answer, terminal=typed, until=found.until)


async def _useless(session: Session, progress: TurnProgress, kind: str, text: str, most: int) -> End | None:
    end = End("error", kind, f"stopped: the model gave {most} {kind} replies in a row")
    return await _again(session, progress, Again(kind, text, most - 1, end))


async def _again(session: Session, progress: TurnProgress, verdict: Again) -> End | None:
    """Send the model a text and continue, or end the turn if it got enough texts about this subject."""
    if progress.reminders[verdict.key] >= verdict.times:
        return verdict.otherwise
    progress.reminders[verdict.key] += 1
    await session.record(MessageAdded(message=user(verdict.text), origin="nudge"))
    return None


async def _deliver_steering(session: Session) -> None:
    if session.state.awaits_reply:
        return  # after a crash: the same prompt is sent again first, unchanged
    for item in session.state.waiting("steer"):
        if session.wiring.hooks is not None and (reason := await session.wiring.hooks.on_input(session, item)):
            await session.record(InputWithdrawn(input=item.id), sync=True)
            await session.notify("warning", "hook", f"a message was not sent: {reason}")
            if not session.state.owes_reply:  # a prompt ends with a message that the model answers
                await session.record(MessageAdded(message=user(HELD_BACK), origin="nudge"))
            continue
        added = await _fitted(session, item.message)
        message = Message("user", (Text(f"{STEERING}\n"), *added.parts))
        await session.record(MessageAdded(message=message, origin="steer", input=item.id))


async def _notes(session: Session) -> None:
    """Add notes that have changed to the tail."""
    await constrain.begin(session)
    for text in (*(source() for source in session.wiring.notes), constrain.note(session)):
        if text and text not in session.state.notes.values():
            await session.record(MessageAdded(message=user(text), origin="note"))


def _alarm_end(alarm: Alarm) -> End:
    outcome: Outcome = "error" if alarm.cause == "errors" else "limit"
    return End(outcome, alarm.cause, f"stopped: {alarm.text}")
