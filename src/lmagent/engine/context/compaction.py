"""Compaction: the one event that may change text that was sent.

It has one trigger, measured against the window that the server really serves. A cut keeps, in this order: the fixed
block and the first message (they stay in the server's cache), all other user text (up to a cap), a deterministic
ledger, a summary that the model writes on its cached prefix, the last messages that fit, in whole groups of call and
result, and all results that the model has not read. If the summary fails, the ledger remains: a cut does not depend on
a model.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Literal

from msgspec.structs import replace

from lmagent.core.errors import ContextOverflow, ProviderError, Unavailable, Unreachable
from lmagent.core.events import CompactionDone
from lmagent.core.messages import NO_WORDS, Message, Part, Text, ToolCall, ToolResult, user
from lmagent.core.model import ModelReply, ModelRequest, Usage
from lmagent.engine import constrain, worktext
from lmagent.engine.context import intake, ledger
from lmagent.engine.context.aside import aside
from lmagent.engine.context.intake import fitted, level, size_of
from lmagent.engine.context.ledger import CutSizes
from lmagent.engine.outage import ask_patiently
from lmagent.engine.session import Session
from lmagent.engine.state import SessionState, message_bytes

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
    sizes = _sizes(session, trigger)
    if not _gains(state, cut(state, "", sizes)):  # the model's summary would only add to it
        if trigger == "command":
            text = "the conversation is too short to be shortened"
            await session.notify("info", "not_compacted", text)
        return
    if (hooks := session.wiring.hooks) is not None:
        await hooks.before_compaction(session, trigger, focus)
    summary, usage = "", None
    if trigger == "command":
        session.futile_summaries = 0
    if trigger == "command" or _worth_a_summary(state, sizes):
        summary, usage = await summarise(session, focus, state.tokens(sizes.summary), overflown=trigger == "overflow")
    messages = cut(state, summary, sizes)
    if not _gains(state, messages):  # with the summary the cut gains nothing
        summary, messages = "", cut(state, "", sizes)
    after = state.tokens(state.fixed_bytes + sum(map(message_bytes, messages)))
    event = CompactionDone(
        messages=messages,
        trigger=trigger,
        summary=summary,
        before_tokens=before,
        after_tokens=after,
        through_seq=state.seq,
        usage=usage,
        head=len(_head(state, sizes)),
    )
    texts = list(state.user_texts)
    await session.record(event, sync=True)
    await _tell_lost(session, texts, messages)
    if hooks is not None:
        await hooks.after_compaction(session)


def _gains(state: SessionState, messages: Sequence[Message]) -> bool:
    return sum(map(message_bytes, messages)) < state.conversation_bytes


async def _tell_lost(session: Session, texts: Sequence[str], messages: Sequence[Message]) -> None:
    """Notify the user how much of their own text the model no longer sees whole; again when it doubles."""
    sent = "\n".join(message.text for message in messages if message.role == "user")
    lost = sum(size_of(text) for text in texts if text not in sent)
    told = f"task_cut {lost.bit_length()}"
    if lost < WORTH_TELLING or told in session.warned:
        return
    session.warned.add(told)
    text = (
        f"{lost:,} of the {sum(map(size_of, texts)):,} bytes that you wrote yourself were shortened or left out, so "
        f"that the conversation fits the window of {session.window.tokens:,} tokens"
    )
    fix = "load the model with a larger context, or put long input into a file of the workspace"
    await session.notify("warning", "task_cut", text, fix)


def _sizes(session: Session, trigger: Trigger) -> CutSizes:
    state, window = session.state, session.window
    notes = sum(map(size_of, state.notes.values()))
    kept = state.fixed_bytes + notes + worktext.least(state.work)
    room = max(400, window.trigger - state.tokens(kept))

    def part(share: float, most: int = room) -> int:
        return state.bytes(min(most, int(room * share)))

    return CutSizes(
        user=part(USER_SHARE, window.keep_user),
        recent=part(ASKED_FOR_RECENT_SHARE if trigger == "command" else RECENT_SHARE, window.keep_recent),
        unread=part(UNREAD_SHARE),
        lists=part(LISTS_SHARE),
        notes=part(NOTES_SHARE),
        summary=part(SUMMARY_SHARE, SUMMARY_TOKENS),
        turns=window.keep_turns,
    )


def cut(state: SessionState, summary: str, sizes: CutSizes) -> tuple[Message, ...]:
    """Return the new conversation. No call may be open; an empty `summary` makes a ledger-only cut."""
    head = _head(state, sizes)
    start = max(_recent_start(state.messages, sizes.recent), _turns_start(state, sizes.turns), 1 if head else 0)
    recent = fitted(state.messages[start:], max(sizes.recent, sizes.unread))
    first = {part.text for part in head if isinstance(part, Text)}
    texts = zip(state.user_texts, state.user_at, strict=True)
    earlier = [text for text, at in texts if at < start and text not in first]
    block = ledger.block(state, ledger.Gone(earlier, state.messages[:start], first), summary, sizes, goes_on=not recent)
    parts: list[Part] = [*head, Text(f"\n\n{block}" if head else block)]
    if recent and recent[0].role == "user":
        parts += [Text("\n\n"), *recent.pop(0).parts]
    return (Message("user", tuple(parts)), *recent)


def _head(state: SessionState, sizes: CutSizes) -> tuple[Part, ...]:
    """Return the first notes and the task, which stay in the server's cache; nothing if they are too large."""
    first = state.messages[0]
    if state.compactions:
        parts = first.parts[: state.head]
    else:
        parts = first.parts if first.role == "user" and state.user_at[:1] == [0] else ()
    notes = sum(map(size_of, state.notes.values()))
    return parts if message_bytes(Message("user", parts)) <= sizes.user + notes else ()


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


def _turns_start(state: SessionState, turns: int | None) -> int:
    """Return where the last `turns` turns begin; 0 if there are no more than these, or None is given."""
    return state.user_at[-turns] if turns and len(state.user_at) > turns else 0


def _worth_a_summary(state: SessionState, sizes: CutSizes) -> bool:
    start = _recent_start(state.messages, sizes.recent)
    return sum(map(message_bytes, state.messages[:start])) >= WORTH_A_SUMMARY * sizes.summary


# --- the summary: the model's own, on the prompt that it read last, so that the server evaluates only the question --

SUMMARY_REQUEST = (
    "[The conversation must be shortened. Do not call a tool. Write a summary for yourself, at most {words} words: "
    "what the user wants, what was decided and why, what was found out (facts, names, numbers, file contents that "
    "matter), what is done, what remains and the next step. What is not in the summary is gone from your view.]"
)

TOKENS_A_WORD = 2
"""Cap on the tokens of a word, so that a summary of the requested length fits; the English average is 1.3."""

PLAIN_SYSTEM = "You summarise the work of an assistant, for the assistant itself. You answer with the summary only."

PLAIN_SHARE = 0.6
"""Share of the window that a conversation in plain text may take: the server evaluates all of it."""

SURE_SHARE, OVERFLOWN_SHARE = 0.95, 0.85
"""Share of the window that a summary and its prompt may take by our estimate, and after an overflow."""

FUTILE = 2
"""After so many cuts in a row without a summary, only the user's /compact asks the model for one."""

_CALL = re.compile(
    r"\W{0,12}(?:<\|?tool|<function|\[tool_calls?\]|tool_calls?\b|\{\s*\"(?:name|tool|function)\")", re.I
)
"""The beginning of a call that a model wrote as text."""

Way = Literal["behind", "plain"]


def seen(messages: Sequence[Message]) -> int:
    """Return how many of the messages the model has read: all except results and text after its last calls."""
    last = next((at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "assistant"), None)
    if last is None:
        return 0
    return last if messages[last].tool_calls and last < len(messages) - 1 else last + 1


async def summarise(session: Session, focus: str, tokens: int, *, overflown: bool) -> tuple[str, Usage | None]:
    """Return the model's summary of the messages it has read, empty if it gave none, and the usage.

    Args:
        focus: the subject that the user wants kept above all.
        overflown: the server has just refused a prompt that was thought to fit.
    """
    messages = session.state.messages[: seen(session.state.messages)]
    usage: Usage | None = None
    if not messages or session.futile_summaries >= FUTILE:
        return "", None
    ways: tuple[Way, ...] = ("plain",) if session.plain_summaries else ("behind", "plain")
    for way in ways:
        request = _request(session, way, messages, focus, tokens, overflown=overflown)
        if request is None:
            continue
        try:
            reply = await ask_patiently(session, lambda request=request: request)
            if reply is not None:
                constrain.learn(session, reply)
        except ContextOverflow:
            continue
        except ProviderError as failure:
            text = f"the model could not summarise ({failure.message}); the facts on record were kept instead"
            await session.notify("warning", "summary_failed", text)
            lost = None if isinstance(failure, Unreachable | Unavailable) else _prompt_read(session)
            return "", usage or lost
        paid = reply.usage if reply is not None else _prompt_read(session)
        usage = paid if usage is None else usage + paid
        if text := _words(reply):
            session.plain_summaries, session.futile_summaries = way == "plain", 0
            return text, usage
    session.futile_summaries += 1
    return "", usage


def _words(reply: ModelReply | None) -> str:
    """Return the summary if the reply is one: no call, native or in text, not empty, and not endless."""
    if reply is None or reply.message.tool_calls or reply.finish_reason == "endless":
        return ""
    text = reply.message.text.strip()
    return "" if text == NO_WORDS or _CALL.match(text) else text


def _request(
    session: Session, way: Way, messages: Sequence[Message], focus: str, tokens: int, *, overflown: bool
) -> ModelRequest | None:
    """Return the request, or None if it cannot fit the window."""
    question = SUMMARY_REQUEST.format(words=tokens // TOKENS_A_WORD) + (f"\nKeep above all: {focus}" if focus else "")
    state, window = session.state, session.window.tokens
    room = int(window * (OVERFLOWN_SHARE if overflown else SURE_SHARE)) - tokens - state.tokens(len(question.encode()))
    if way == "plain":
        told = set(state.notes.values())  # the cut keeps the notes, and the summary need not repeat them
        text = _transcript(messages, told, state.bytes(min(room, int(window * PLAIN_SHARE))))
        asked = [user(f"<conversation>\n{text}\n</conversation>\n\n{question}")]
        request = replace(aside(session, (), question, tokens), system=PLAIN_SYSTEM, tools=(), messages=asked)
        return replace(request, nonce="")  # the sentence about messages in results would only puzzle the model
    size = sum(map(message_bytes, messages))
    if state.estimate_tokens() - state.tokens(state.conversation_bytes - size) > room:
        room = state.bytes(room) - state.fixed_bytes
        messages = fitted(messages, room)
        if sum(map(message_bytes, messages)) > room:
            return None
    return aside(session, messages, question, tokens)


def _transcript(messages: Sequence[Message], notes: Collection[str], size: int) -> str:
    """Return the conversation without the notes, as text within about `size` bytes."""
    entries = [entry for message in messages for entry in _entries(message, notes)]
    cap = level([len(entry.encode("utf-8", "replace")) for entry in entries], size)
    return "\n\n".join(intake.shorten(entry, cap) for entry in entries)


def _entries(message: Message, notes: Collection[str]) -> list[str]:
    who = "User" if message.role == "user" else "Assistant"
    entries = list[str]()
    for part in message.parts:
        match part:
            case Text(text=text) if text.strip() and text not in notes:
                entries.append(f"{who}: {text.strip()}")
            case ToolCall(name=name, arguments=arguments):
                entries.append(f"Assistant called {name}: {arguments}")
            case ToolResult(content=content, status=status):
                entries.append(f"Result ({status}): {content}")
            case _:
                pass
    return entries


def _prompt_read(session: Session) -> Usage:
    """Return the least usage of a call without reported figures: the server had the prompt."""
    return Usage(session.state.estimate_tokens(), 0, estimated=True)
