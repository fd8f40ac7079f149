"""Compaction: the one event that may change what was sent.

One trigger, measured against the window that the server really serves. The cut keeps, in this order: the fixed
block, all user text (up to a cap), a deterministic ledger, a summary that the model writes on the very prefix it
has cached, and the last messages in whole call/result groups. A summary that fails leaves the ledger: a cut never
fails for want of a model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from lmagent.core.errors import ProviderError, Unavailable, Unreachable
from lmagent.core.events import CompactionDone, Notice
from lmagent.core.messages import Message, Text, ToolResult, user
from lmagent.core.model import Reply, Usage
from lmagent.engine import intake, ledger, worktext
from lmagent.engine.aside import ask_aside
from lmagent.engine.outage import Outage
from lmagent.engine.session import Session
from lmagent.engine.state import SessionState, message_bytes
from lmagent.engine.window import SURELY

Trigger = Literal["window", "overflow", "command"]

SUMMARY_REQUEST = (
    "[The conversation must be shortened. Do not call a tool. Write a summary for yourself, at most 600 words: what "
    "the user wants, what was decided and why, what was found out (facts, names, numbers, file contents that matter), "
    "what is done, what remains and the next step. What is not in the summary will be gone.]"
)
SUMMARY_TOKENS = 1200
"""Cap on the summary's reply, in tokens: about 600 words, and room for a thinking model to be brief."""

USER_SHARE, RECENT_SHARE, LISTS_SHARE, SUMMARY_SHARE = 0.25, 0.3, 0.08, 0.15
"""What each part may take at most of the room between the fixed block and the trigger, so that a cut lasts."""

SMALLEST_SHARE = 400
"""Bytes of a result that are kept at least when results are shortened."""

ASKED_FOR_RECENT_SHARE = 0.02
"""The same for recent messages when a person asks for a cut: who asks wants it short."""

WORTH_A_SUMMARY = 5
"""A summary is asked for when it replaces at least this many times its own size: it costs a model call."""

WORTH_TELLING = 200
"""Bytes of a person's own words from which it is told that they were left out."""


async def compact(session: Session, trigger: Trigger) -> None:
    """Cut the conversation now."""
    focus, session.wants_compaction = session.wants_compaction or "", None
    state = session.state
    if not state.messages:
        return
    before = state.estimate_tokens()
    budget = _budget(session, trigger)
    if not _gains(state, cut(state, "", budget)):  # no need to ask the model for more words
        await _tell_too_short(session, trigger)
        return
    wanted = trigger == "command" or (trigger == "window" and _worth_a_summary(state, budget))
    # What surely does not fit would be refused, or be read for minutes and cut.
    wanted = wanted and before <= SURELY * (session.stated_window or session.window.tokens)
    summary, usage = await _summary(session, focus, budget.summary) if wanted else ("", None)
    messages = cut(state, summary, budget)
    if not _gains(state, messages):  # the summary takes more than it is worth; the facts alone do not
        summary, messages = "", cut(state, "", budget)
    after = state.tokens(state.fixed_bytes + sum(map(message_bytes, messages)))
    event = CompactionDone(
        messages=messages,
        trigger=trigger,
        summary=summary,
        before_tokens=before,
        after_tokens=after,
        through_seq=state.seq,
        usage=usage,
    )
    texts = list(state.user_texts)
    await session.record(event, sync=True)
    await _tell_lost(session, texts, messages)


def _gains(state: SessionState, messages: Sequence[Message]) -> bool:
    """A cut that gains nothing is none."""
    return sum(map(message_bytes, messages)) < state.conversation_bytes


async def _tell_too_short(session: Session, trigger: Trigger) -> None:
    if trigger == "command":
        text = "the conversation is too short to be shortened"
        await session.record(Notice(level="info", code="not_compacted", text=text))


async def _tell_lost(session: Session, texts: Sequence[str], messages: Sequence[Message]) -> None:
    """Tell a person how much of what they wrote themselves the model does not see any more; again when it doubles."""
    sent = "\n".join(message.text for message in messages if message.role == "user")
    lost = sum(_size(text) - _kept(text, sent) for text in texts)
    told = f"task_cut {lost.bit_length()}"
    if lost < WORTH_TELLING or told in session.warned:
        return
    session.warned.add(told)
    text = (
        f"{lost:,} of the {sum(map(_size, texts)):,} bytes that you wrote yourself were left out, so that the "
        f"conversation fits the window of {session.window.tokens:,} tokens"
    )
    fix = "load the model with a larger context, or put long input into a file of the workspace"
    await session.record(Notice(level="warning", code="task_cut", text=text, fix=fix))


def _kept(text: str, sent: str) -> int:
    """Bytes of a user's text that stand in what is sent: all of it, or as much of its beginning and its end."""
    if text in sent:
        return _size(text)

    def longest(end: Callable[[int], str]) -> int:
        low, high = 0, len(text)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if end(middle) in sent else (low, middle - 1)
        return _size(end(low))

    return min(_size(text), longest(lambda size: text[:size]) + longest(lambda size: text[len(text) - size :]))


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


class Budget(Struct, frozen=True):
    """Tokens that each part of what is kept may take at most."""

    user: int
    recent: int
    lists: int
    summary: int


def _budget(session: Session, trigger: Trigger) -> Budget:
    window = session.window
    share = ASKED_FOR_RECENT_SHARE if trigger == "command" else RECENT_SHARE
    notes = sum(len(text.encode("utf-8", "replace")) for text in session.state.notes.values())
    kept = session.state.fixed_bytes + notes + worktext.least(session.state.work)
    room = max(400, window.trigger - session.state.tokens(kept))
    return Budget(
        user=min(window.keep_user, int(room * USER_SHARE)),
        recent=min(window.keep_recent, int(room * share)),
        lists=int(room * LISTS_SHARE),
        summary=min(SUMMARY_TOKENS, int(room * SUMMARY_SHARE)),
    )


def cut(state: SessionState, summary: str, budget: Budget) -> tuple[Message, ...]:
    """The new conversation.

    Args:
        state: the session before the cut; no call is open.
        summary: the model's summary; empty for a ledger-only cut.
        budget: what may be kept.
    """
    start = _recent_start(state.messages, state.bytes(budget.recent))
    recent = _fitted(state.messages[start:], state.bytes(budget.recent))
    earlier = [text for text, at in zip(state.user_texts, state.user_at, strict=True) if at < start]
    sizes = ledger.Sizes(state.bytes(budget.user), state.bytes(budget.lists))
    block = ledger.block(state, earlier, summary, sizes, goes_on=not recent)
    if recent and recent[0].role == "user":
        first = recent.pop(0)
        return (Message("user", (Text(block + "\n\n"), *first.parts)), *recent)
    return (user(block), *recent)


def _recent_start(messages: Sequence[Message], budget: int) -> int:
    """Where the kept tail begins: at a user message or at a reply whose calls' results are all behind it."""
    start = len(messages)
    size = 0
    for position in range(len(messages) - 1, -1, -1):
        size += message_bytes(messages[position])
        if size > budget:
            break
        if messages[position].role != "tool":
            start = position
    if start == len(messages) and messages and isinstance(messages[-1].parts[0], ToolResult):
        # The last group alone is over the budget. The model has not read it yet, so it must not go.
        return next(i for i in range(len(messages) - 1, -1, -1) if messages[i].role != "tool")
    return start


def _fitted(messages: Sequence[Message], budget: int) -> list[Message]:
    """The kept tail within its budget: where one group is larger, its results are shortened, each to its share."""
    if sum(map(message_bytes, messages)) <= budget:
        return list(messages)
    results = sum(message.role == "tool" for message in messages)
    if not results:
        return list(messages)
    share = max(SMALLEST_SHARE, budget // results)
    return [_shortened(message, share) for message in messages]


def _shortened(message: Message, size: int) -> Message:
    if message.role != "tool":
        return message
    (result,) = message.parts
    assert isinstance(result, ToolResult)
    content = intake.shorten(result.content, size)
    return Message("tool", (ToolResult(result.call_id, result.status, content),))


def _worth_a_summary(state: SessionState, budget: Budget) -> bool:
    start = _recent_start(state.messages, state.bytes(budget.recent))
    gone = state.tokens(sum(map(message_bytes, state.messages[:start])))
    return gone >= WORTH_A_SUMMARY * budget.summary


async def _summary(session: Session, focus: str, tokens: int) -> tuple[str, Usage | None]:
    """The model's summary, asked for on the prefix that it has cached, empty when it cannot be had; and its price."""
    wish = f"{SUMMARY_REQUEST}\nKeep above all: {focus}" if focus else SUMMARY_REQUEST
    try:
        reply = await _answered(session, wish, tokens)
    except ProviderError as failure:
        text = f"the model could not summarise ({failure.message}); the facts on record were kept instead"
        await session.record(Notice(level="warning", code="summary_failed", text=text))
        return "", None if isinstance(failure, Unreachable | Unavailable) else _prompt_read(session)
    if reply is None:
        return "", _prompt_read(session)
    return "" if reply.message.tool_calls else reply.message.text.strip(), reply.usage


async def _answered(session: Session, wish: str, tokens: int) -> Reply | None:
    """What the model replies aside, once its server can be reached."""
    outage = Outage(session)
    while True:
        reply: Reply | None = None
        try:
            async for event in ask_aside(session, wish, tokens):
                await outage.notice(event)
                reply = event if isinstance(event, Reply) else reply
        except ProviderError as failure:
            await outage.sit_out(failure)
        else:
            return reply


def _prompt_read(session: Session) -> Usage:
    """What a call took at least of which no figures came back: the server had the prompt, as far as anybody knows."""
    return Usage(session.state.estimate_tokens(), 0, estimated=True)
