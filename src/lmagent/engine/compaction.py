"""Compaction: the one event that may change what was sent.

One trigger, measured against the window that the server really serves. The cut keeps, in this order: the fixed
block, all user text (up to a cap), a deterministic ledger, a summary that the model writes on the very prefix it
has cached, and the last messages in whole call/result groups. A summary that fails leaves the ledger: a cut never
fails for want of a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from lmagent.core.errors import ProviderError
from lmagent.core.events import CompactionDone, Notice
from lmagent.core.messages import Message, Text, ToolResult, user
from lmagent.core.model import Reply
from lmagent.engine import ledger
from lmagent.engine.aside import ask_aside
from lmagent.engine.session import Session
from lmagent.engine.state import BYTES_PER_TOKEN, SessionState, message_bytes

SUMMARY_REQUEST = (
    "[The conversation must be shortened. Do not call a tool. Write a summary for yourself, at most 600 words: what "
    "the user wants, what was decided and why, what was found out (facts, names, numbers, file contents that matter), "
    "what is done, what remains and the next step. What is not in the summary will be gone.]"
)
SUMMARY_TOKENS = 1200
"""Cap on the summary's reply, in tokens: about 600 words, and room for a thinking model to be brief."""

ASK_WINDOW_AT = 2500
"""Prompt tokens from which the window matters: the smallest one in use is 4,096, and the reply needs room too."""

SMALL_WINDOW_SHARE = 0.25
"""In a small window, recent messages and user text may each take at most this share of the trigger."""


async def compact_if_needed(session: Session) -> None:
    """Compact when a person asked for it, or when the next prompt would pass the trigger."""
    await _ask_window(session)
    if session.wants_compaction is not None:
        await compact(session, "command")
    elif session.state.estimate_tokens() > session.window.trigger and not _just_compacted(session.state):
        await compact(session, "window")


async def _ask_window(session: Session) -> None:
    """Ask the server once how large its window really is, as soon as the prompt is large enough for it to matter."""
    source = session.wiring.served_window
    if source is None or session.window_known or session.state.estimate_tokens() < ASK_WINDOW_AT:
        return
    session.window_known = True
    window = await source(session.state.model or session.agent.model)
    if window:
        learn_window(session, window)


async def compact(session: Session, trigger: Literal["window", "overflow", "command"]) -> None:
    """Cut the conversation now."""
    focus, session.wants_compaction = session.wants_compaction or "", None
    state = session.state
    if not state.messages:
        return
    before = state.estimate_tokens()
    summary = "" if trigger == "overflow" else await _summary(session, focus)
    messages = cut(state, summary, keep_recent=_share(session, "recent"), keep_user=_share(session, "user"))
    after = (state.fixed_bytes + sum(map(message_bytes, messages))) // BYTES_PER_TOKEN
    event = CompactionDone(
        messages=messages,
        trigger=trigger,
        summary=summary,
        before_tokens=before,
        after_tokens=after,
        through_seq=state.seq,
    )
    await session.record(event, sync=True)


def learn_window(session: Session, window: int | None) -> None:
    """Take the window from what the server said when it refused, or make it smaller than what was refused."""
    refused = session.state.estimate_tokens()
    learned = window or min(session.window.tokens, refused) * 3 // 4
    if learned < session.window.tokens or window is not None:
        reserve = min(session.window.reserve, max(256, learned // 4))
        session.window = msgspec.structs.replace(session.window, tokens=learned, reserve=reserve)


def cut(state: SessionState, summary: str, *, keep_recent: int, keep_user: int) -> tuple[Message, ...]:
    """The new conversation.

    Args:
        state: the session before the cut; between steps, so that no call is open.
        summary: the model's summary; empty for a ledger-only cut.
        keep_recent: tokens of the last messages to keep.
        keep_user: tokens of user text to keep.
    """
    start = _recent_start(state.messages, keep_recent * BYTES_PER_TOKEN)
    recent = list(state.messages[start:])
    said_later = {message.text for message in recent if message.role == "user"}
    earlier = [text for text in state.user_texts if not any(text in later for later in said_later)]
    block = ledger.block(state, earlier, summary, keep_user * BYTES_PER_TOKEN, goes_on=not recent)
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


async def _summary(session: Session, focus: str) -> str:
    """The model's summary, asked for on the prefix that it has cached; empty when it cannot be had."""
    wish = f"{SUMMARY_REQUEST}\nKeep above all: {focus}" if focus else SUMMARY_REQUEST
    reply: Reply | None = None
    try:
        async for event in ask_aside(session, wish, SUMMARY_TOKENS):
            if isinstance(event, Reply):
                reply = event
    except ProviderError as failure:
        text = f"the model could not summarise ({failure.message}); the facts on record were kept instead"
        await session.record(Notice(level="warning", code="summary_failed", text=text))
        return ""
    return reply.message.text.strip() if reply and not reply.message.tool_calls else ""


def _share(session: Session, what: Literal["recent", "user"]) -> int:
    window = session.window
    wanted = window.keep_recent if what == "recent" else window.keep_user
    return min(wanted, int(window.trigger * SMALL_WINDOW_SHARE))


def _just_compacted(state: SessionState) -> bool:
    """Right after a cut nothing can be gained by another one."""
    return bool(state.compactions) and state.sealed == 0
