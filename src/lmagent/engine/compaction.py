"""Compaction: the one event that may change text that was sent.

It has one trigger, measured against the window that the server really serves. A cut keeps, in this order: the fixed
block and the first message (they stay in the server's cache), all other user text (up to a cap), a deterministic
ledger, a summary that the model writes on its cached prefix, the last messages that fit, in whole groups of call and
result, and all results that the model has not read. If the summary fails, the ledger remains: a cut does not depend on
a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from lmagent.core.events import CompactionDone, Notice
from lmagent.core.messages import Message, Part, Text
from lmagent.engine import ledger, worktext
from lmagent.engine.intake import fitted
from lmagent.engine.session import Session
from lmagent.engine.state import SessionState, message_bytes
from lmagent.engine.summary import seen, summarise

Trigger = Literal["window", "overflow", "command"]

SUMMARY_TOKENS = 1200
"""Cap on the summary's reply: about 600 words, with room for a thinking model to be brief."""

USER_SHARE, RECENT_SHARE, LISTS_SHARE, NOTES_SHARE, SUMMARY_SHARE = 0.25, 0.1, 0.04, 0.03, 0.15
"""Caps on each part, as shares of the room between the fixed block and the trigger, so that a cut lasts."""

UNREAD_SHARE = 0.9
"""Cap on results that the model has not read, which are kept whole within it."""

ASKED_FOR_RECENT_SHARE = 0.02
"""Cap on recent messages when the user asks for a cut: such a user wants a short conversation."""

WORTH_A_SUMMARY = 5
"""A summary is worth a model call if it replaces at least this many times its own size."""

WORTH_TELLING = 200
"""Bytes of the user's own text whose loss is worth a notice."""


async def compact(session: Session, trigger: Trigger) -> None:
    focus, session.wants_compaction = session.wants_compaction or "", None
    state = session.state
    if not state.messages:
        return
    before = state.estimate_tokens()
    budget = _budget(session, trigger)
    if not _gains(state, cut(state, "", budget)):  # the model's summary would only add to it
        if trigger == "command":
            text = "the conversation is too short to be shortened"
            await session.record(Notice(level="info", code="not_compacted", text=text))
        return
    summary, usage = "", None
    if trigger == "command":
        session.futile_summaries = 0
    if trigger == "command" or _worth_a_summary(state, budget):
        summary, usage = await summarise(session, focus, budget.summary, overflown=trigger == "overflow")
    messages = cut(state, summary, budget)
    if not _gains(state, messages):  # with the summary the cut gains nothing
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
    return sum(map(message_bytes, messages)) < state.conversation_bytes


async def _tell_lost(session: Session, texts: Sequence[str], messages: Sequence[Message]) -> None:
    """Notify the user how much of their own text the model no longer sees whole; again when it doubles."""
    sent = "\n".join(message.text for message in messages if message.role == "user")
    lost = sum(_size(text) for text in texts if text not in sent)
    told = f"task_cut {lost.bit_length()}"
    if lost < WORTH_TELLING or told in session.warned:
        return
    session.warned.add(told)
    text = (
        f"{lost:,} of the {sum(map(_size, texts)):,} bytes that you wrote yourself were shortened or left out, so that "
        f"the conversation fits the window of {session.window.tokens:,} tokens"
    )
    fix = "load the model with a larger context, or put long input into a file of the workspace"
    await session.record(Notice(level="warning", code="task_cut", text=text, fix=fix))


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


class CompactionBudget(Struct, frozen=True):
    user: int
    recent: int
    unread: int
    lists: int
    notes: int
    summary: int


def _budget(session: Session, trigger: Trigger) -> CompactionBudget:
    window = session.window
    share = ASKED_FOR_RECENT_SHARE if trigger == "command" else RECENT_SHARE
    notes = sum(map(_size, session.state.notes.values()))
    kept = session.state.fixed_bytes + notes + worktext.least(session.state.work)
    room = max(400, window.trigger - session.state.tokens(kept))
    return CompactionBudget(
        user=min(window.keep_user, int(room * USER_SHARE)),
        recent=min(window.keep_recent, int(room * share)),
        unread=int(room * UNREAD_SHARE),
        lists=int(room * LISTS_SHARE),
        notes=int(room * NOTES_SHARE),
        summary=min(SUMMARY_TOKENS, int(room * SUMMARY_SHARE)),
    )


def cut(state: SessionState, summary: str, budget: CompactionBudget) -> tuple[Message, ...]:
    """Return the new conversation. No call may be open; an empty `summary` makes a ledger-only cut."""
    head = _head(state, budget)
    start = max(_recent_start(state.messages, state.bytes(budget.recent)), 1 if head else 0)
    recent = fitted(state.messages[start:], state.bytes(max(budget.recent, budget.unread)))
    first = {part.text for part in head if isinstance(part, Text)}
    texts = zip(state.user_texts, state.user_at, strict=True)
    earlier = [text for text, at in texts if at < start and text not in first]
    # The model's own earlier texts take the summary's place.
    notes = budget.notes if summary else budget.notes + budget.summary
    sizes = ledger.Sizes(state.bytes(budget.user), state.bytes(budget.lists), state.bytes(notes))
    block = ledger.block(state, ledger.Gone(earlier, state.messages[:start], first), summary, sizes, goes_on=not recent)
    parts: list[Part] = [*head, Text(f"\n\n{block}" if head else block)]
    if recent and recent[0].role == "user":
        parts += [Text("\n\n"), *recent.pop(0).parts]
    return (Message("user", tuple(parts)), *recent)


def _head(state: SessionState, budget: CompactionBudget) -> tuple[Part, ...]:
    """Return the first notes and the task, which stay in the server's cache; nothing if they are too large."""
    first = state.messages[0]
    if state.compactions:
        parts = first.parts[: state.head]
    else:
        parts = first.parts if first.role == "user" and state.user_at[:1] == [0] else ()
    notes = sum(map(_size, state.notes.values()))
    return parts if message_bytes(Message("user", parts)) <= state.bytes(budget.user) + notes else ()


def _recent_start(messages: Sequence[Message], budget: int) -> int:
    """Return the start of the kept tail: a user message, or a reply followed by the results of all its calls.

    Results that the model has not read stay, however large they are.
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


def _worth_a_summary(state: SessionState, budget: CompactionBudget) -> bool:
    start = _recent_start(state.messages, state.bytes(budget.recent))
    gone = state.tokens(sum(map(message_bytes, state.messages[:start])))
    return gone >= WORTH_A_SUMMARY * budget.summary
