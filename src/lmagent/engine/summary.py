"""Summary: the model's own summary of a conversation that is about to be cut.

The request is the prompt that the model read last plus the question, so the server evaluates only the question.
Messages that the model has not read are not sent: the cut keeps them. A model that answers with a call, or with
nothing, is asked once more, without tools and with the conversation as plain text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Literal

from msgspec.structs import replace

from lmagent.core.errors import ContextOverflow, ProviderError, Unavailable, Unreachable
from lmagent.core.events import Notice
from lmagent.core.messages import NO_WORDS, Message, Text, ToolCall, ToolResult, user
from lmagent.core.model import ModelReply, ModelRequest, Usage
from lmagent.engine import constrain, intake
from lmagent.engine.aside import aside
from lmagent.engine.intake import fitted, level
from lmagent.engine.outage import ask_patiently
from lmagent.engine.session import Session
from lmagent.engine.state import message_bytes
from lmagent.engine.work import summed

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
            await session.record(Notice(level="warning", code="summary_failed", text=text))
            lost = None if isinstance(failure, Unreachable | Unavailable) else _prompt_read(session)
            return "", usage or lost
        paid = reply.usage if reply is not None else _prompt_read(session)
        usage = paid if usage is None else summed(usage, paid)
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
