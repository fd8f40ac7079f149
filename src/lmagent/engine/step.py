"""Step: one model call, streamed, shown and recorded."""

from __future__ import annotations

from functools import partial

from lmagent.core import events as ev
from lmagent.core.errors import BadReply, ContextOverflow, ServerFailure
from lmagent.core.messages import NO_WORDS, Message, Text, Thinking
from lmagent.core.model import ModelEvent, ModelReply, Progress, Retrying, TextChunk, ThinkingChunk
from lmagent.engine import constrain
from lmagent.engine.context.window import learn_window, refuse_hopeless
from lmagent.engine.outage import ask_patiently, was_waited_for
from lmagent.engine.session import Session

STREAM_RETRIES = 2
"""Repeated requests after a broken stream. Its connection is gone, so the server no longer works on it."""


async def take_step(session: Session) -> ModelReply:
    """Call the model once; retry after broken streams and, once, after an overflow.

    Raises ProviderError: the model gave no reply; the conversation is as before.
    """
    overflowed = False
    broken = 0
    while True:
        try:
            refuse_hopeless(session)
            return await _call(session)
        except ContextOverflow as overflow:
            if overflowed:
                raise
            overflowed = True
            if overflow.silent:
                await session.notify("warning", "prompt_cut", overflow.message, overflow)
            from lmagent.engine.context.compaction import compact  # few sessions fill their window

            learn_window(session, overflow.window)
            await compact(session, "overflow")
        except ServerFailure as failure:
            may_repeat = failure.partial and failure.retryable and not was_waited_for(session, failure)
            if broken >= STREAM_RETRIES or not may_repeat:
                raise
            broken += 1
            delay = float(broken)
            session.emit_live(ev.RetryScheduled(reason=failure.message, attempt=broken, delay=delay))
            await session.wiring.clock.sleep(delay)


async def _call(session: Session) -> ModelReply:
    state = session.state
    tokens = state.estimate_tokens()
    await session.record(
        ev.StepStarted(
            step=state.step + 1,
            model=state.model or session.agent.model,
            prompt_bytes=state.fixed_bytes + state.conversation_bytes,
            prompt_tokens=tokens,
        )
    )
    reply = await ask_patiently(session, session.request, partial(_show, session))
    if reply is None:
        raise BadReply("the model server's stream ended without a reply", retryable=True)
    constrain.learn(session, reply)
    await _record(session, reply)
    session.partial = []
    return reply


def _show(session: Session, event: ModelEvent) -> None:
    match event:
        case TextChunk(text=text):
            session.partial.append(text)
            session.emit_live(ev.TextDelta(text=text, turn=session.state.turn))
        case ThinkingChunk(text=text):
            session.emit_live(ev.ThinkingDelta(text=text, turn=session.state.turn))
        case Progress(fraction=fraction, seconds_left=left, waits=waits):
            turn = session.state.turn
            session.emit_live(ev.PrefillProgress(fraction=fraction, seconds_left=left, waits=waits, turn=turn))
        case Retrying(reason=reason, attempt=attempt, delay=delay):
            session.emit_live(ev.RetryScheduled(reason=reason, attempt=attempt, delay=delay))
        case ModelReply():
            pass


async def _tell_other_model(session: Session, answered: str) -> None:
    """Warn once that a model other than the requested one answers: many servers use whichever model is loaded."""
    asked = session.state.model or session.agent.model
    wanted, given = (name.lower().removesuffix(":latest").removesuffix(".gguf") for name in (asked, answered))
    if not wanted or not given or wanted in given or given in wanted or answered in session.warned:
        return
    session.warned.add(answered)
    text = f"the model server answers with the model {answered[:100]}, not with {asked}"
    await session.notify("warning", "other_model", text, "load it in the server, or /model")


async def _record(session: Session, reply: ModelReply) -> None:
    await _tell_other_model(session, reply.model)
    message = reply.message
    if not message.text.strip() and not message.tool_calls:
        # An empty assistant message is an error in many chat templates; this placeholder is valid, and true.
        thoughts = tuple(part for part in message.parts if isinstance(part, Thinking))
        message = Message("assistant", (*thoughts, Text(NO_WORDS)))
    if reply.finish_reason == "endless":
        text = "the reply repeated itself or did not end: it was cut off, and the model was asked for a shorter one"
        await session.notify("warning", "endless_reply", text)
    truncated = tuple(call.id for call in message.tool_calls if call.id in reply.truncated_calls)
    await session.record(ev.MessageAdded(message=message, origin="model", truncated=truncated))
    await session.record(
        ev.StepFinished(
            step=session.state.step,
            usage=reply.usage,
            finish_reason=reply.finish_reason,
            first_token_s=round(reply.first_token_s, 4),
            total_s=round(reply.total_s, 4),
            model=reply.model,
        )
    )
