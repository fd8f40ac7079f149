"""Aside: a question to the model after the conversation, which leaves no trace in it.

The prompt is the conversation plus the question. So the server evaluates only the question, and its cache still fits
when the conversation continues.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from msgspec.structs import replace

from lmagent.core.messages import Message, Text, ToolResult, user
from lmagent.core.model import ModelEvent, ModelRequest
from lmagent.engine.session import Session

NO_RESULT_YET = "(no result yet)"


def ask_aside(session: Session, question: str, max_tokens: int | None = None) -> AsyncIterator[ModelEvent]:
    """Stream the answer to a question after the conversation; nothing is recorded. Raises ProviderError."""
    state = session.state
    results = [result or ToolResult(call, "interrupted", NO_RESULT_YET) for call, result in state.calls.items()]
    messages = [*state.messages, *(Message("tool", (result,)) for result in results)]  # no request may lack a result
    return session.wiring.provider.stream(aside(session, messages, question, max_tokens))


def aside(session: Session, messages: Sequence[Message], question: str, max_tokens: int | None) -> ModelRequest:
    """Return the request with a question after these messages, joined to an unanswered one so that roles alternate."""
    last = messages[-1] if messages else None
    if last is None or last.role != "user":
        asked = [*messages, user(question)]
    else:
        asked = [*messages[:-1], Message("user", (*last.parts, Text(f"\n\n{question}")))]
    return replace(
        session.request(),
        messages=asked,
        tool_choice="none",
        response_schema=None,
        constrain=False,
        max_tokens=max_tokens,
    )
