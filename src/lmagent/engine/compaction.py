"""Compaction: the one event that may change what was sent.

One trigger, measured against the window that the server really serves. The cut keeps, in this order: the fixed
block and the first message (they stay in the server's cache), all other user text (up to a cap), a deterministic
ledger, a summary that the model writes on the very prefix it has cached, what the model has not read yet, and before
it the last messages that fit, in whole call/result groups. A summary that fails leaves the ledger: a cut never fails
for want of a model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from lmagent.core.events import CompactionDone, Notice
from lmagent.core.messages import Message, Part, Text
from lmagent.engine import ledger, worktext
from lmagent.engine.fitting import fitted
from lmagent.engine.session import Session
from lmagent.engine.state import SessionState, message_bytes
from lmagent.engine.summary import seen, summarise

Trigger = Literal["window", "overflow", "command"]

SUMMARY_TOKENS = 1200
"""Cap on the summary's reply, in tokens: about 600 words, and room for a thinking model to be brief."""

USER_SHARE, RECENT_SHARE, LISTS_SHARE, NOTES_SHARE, SUMMARY_SHARE = 0.25, 0.1, 0.04, 0.03, 0.15
"""What each part may take at most of the room between the fixed block and the trigger, so that a cut lasts."""

UNREAD_SHARE = 0.9
"""The same for results that the model has not read yet, which are kept whole within it."""

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
    summary, usage = "", None
    if trigger == "command":
        session.futile_summaries = 0
    if trigger == "command" or _worth_a_summary(state, budget):
        summary, usage = await summarise(session, focus, budget.summary, overflown=trigger == "overflow")
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
        head=len(_head(state, budget)),
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
    unread: int
    lists: int
    notes: int
    summary: int


def _budget(session: Session, trigger: Trigger) -> Budget:
    window = session.window
    share = ASKED_FOR_RECENT_SHARE if trigger == "command" else RECENT_SHARE
    notes = sum(map(_size, session.state.notes.values()))
    kept = session.state.fixed_bytes + notes + worktext.least(session.state.work)
    room = max(400, window.trigger - session.state.tokens(kept))
    return Budget(
        user=min(window.keep_user, int(room * USER_SHARE)),
        recent=min(window.keep_recent, int(room * share)),
        unread=int(room * UNREAD_SHARE),
        lists=int(room * LISTS_SHARE),
        notes=int(room * NOTES_SHARE),
        summary=min(SUMMARY_TOKENS, int(room * SUMMARY_SHARE)),
    )


def cut(state: SessionState, summary: str, budget: Budget) -> tuple[Message, ...]:
    """The new conversation.

    Args:
        state: the session before the cut; no call is open.
        summary: the model's summary; empty for a ledger-only cut.
        budget: what may be kept.
    """
    head = _head(state, budget)
    start = max(_recent_start(state.messages, state.bytes(budget.recent)), 1 if head else 0)
    recent = fitted(state.messages[start:], state.bytes(max(budget.recent, budget.unread)))
    first = {part.text for part in head if isinstance(part, Text)}
    texts = zip(state.user_texts, state.user_at, strict=True)
    earlier = [text for text, at in texts if at < start and text not in first]
    # Without a summary, what the model said along the way has to stand for it.
    notes = budget.notes if summary else budget.notes + budget.summary
    sizes = ledger.Sizes(state.bytes(budget.user), state.bytes(budget.lists), state.bytes(notes))
    block = ledger.block(state, ledger.Gone(earlier, state.messages[:start], first), summary, sizes, goes_on=not recent)
    parts: list[Part] = [*head, Text(f"\n\n{block}" if head else block)]
    if recent and recent[0].role == "user":
        parts += [Text("\n\n"), *recent.pop(0).parts]
    return (Message("user", tuple(parts)), *recent)


def _head(state: SessionState, budget: Budget) -> tuple[Part, ...]:
    """What the conversation began with, if it may stay as it is: the first notes and the task, all in the cache."""
    first = state.messages[0]
    if state.compactions:
        parts = first.parts[: state.head]
    else:
        parts = first.parts if first.role == "user" and state.user_at[:1] == [0] else ()
    notes = sum(map(_size, state.notes.values()))
    return parts if message_bytes(Message("user", parts)) <= state.bytes(budget.user) + notes else ()


def _recent_start(messages: Sequence[Message], budget: int) -> int:
    """Where the kept tail begins: at a user message, or at a reply whose calls' results are all behind it.

    What the model has not read yet stays, however large it is.
    """
    start = len(messages)
    size = 0
    for position in range(len(messages) - 1, -1, -1):
        size += message_bytes(messages[position])
        if size > budget:
            break
        if messages[position].role != "tool":
            start = position
    unread = seen(messages)
    return min(start, unread) if unread < len(messages) and messages[unread].role == "assistant" else start


def _worth_a_summary(state: SessionState, budget: Budget) -> bool:
    start = _recent_start(state.messages, state.bytes(budget.recent))
    gone = state.tokens(sum(map(message_bytes, state.messages[:start])))
    return gone >= WORTH_A_SUMMARY * budget.summary
