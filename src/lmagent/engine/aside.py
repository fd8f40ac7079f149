"""Aside: a question to the model after the conversation, which leaves no trace in it.

The prompt is the conversation plus the question. So the server evaluates only the question, and its cache still fits
when the conversation continues.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec

from lmagent.core.messages import Message, Text, ToolResult, user
from lmagent.core.model import ModelEvent
from lmagent.engine.session import Session
from lmagent.engine.state import SessionState

NO_RESULT_YET = "(no result yet)"


def ask_aside(
    session: Session, question: str, max_tokens: int | None = None, messages: Sequence[Message] | None = None
) -> AsyncIterator[ModelEvent]:
    """Stream the answer to `question`; nothing is recorded.

    Args:
        messages: the messages before the question, with no call open; None for the conversation.

    Raises ProviderError: the model gave no answer.
    """
    request = msgspec.structs.replace(
        session.request(),
        messages=_with_tail(_complete(session.state) if messages is None else messages, question),
        tool_choice="none",
        response_schema=None,
        constrain=False,
        max_tokens=max_tokens,
    )
    return session.wiring.provider.stream(request)


def _complete(state: SessionState) -> list[Message]:
    """Return the conversation with a result for each open call: no request may lack them."""
    results = [result or ToolResult(call, "interrupted", NO_RESULT_YET) for call, result in state.calls.items()]
    return [*state.messages, *(Message("tool", (result,)) for result in results)]


def _with_tail(messages: Sequence[Message], text: str) -> list[Message]:
    """Return the messages with `text` at the end, joined to an unanswered user message so that roles alternate."""
    last = messages[-1] if messages else None
    if last is None or last.role != "user":
        return [*messages, user(text)]
    return [*messages[:-1], Message("user", (*last.parts, Text(f"\n\n{text}")))]
