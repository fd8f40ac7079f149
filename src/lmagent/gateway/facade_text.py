"""Text of OpenAI's API: the client's conversation as one message, and a turn as deltas."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, Protocol, cast

from lmagent.core import events as ev
from lmagent.core.messages import Image, Part, Text, Thinking
from lmagent.gateway.compat.words import input_of
from lmagent.gateway.http.errors import Refusal

ROLES = {"system": "instructions", "developer": "instructions", "user": "user", "assistant": "you", "tool": "a tool"}
"""The speakers' names for the agent."""

Delta = tuple[Literal["content", "reasoning_content"], str]

_DATA_URL = re.compile(r"data:[^,;]*(?:;[^,;]*)*;base64,", re.IGNORECASE)
_LINE = 160
"""Characters of a line about a call."""


class Spoken(Protocol):
    @property
    def role(self) -> str: ...

    @property
    def content(self) -> Any:
        """Text, or parts."""
        ...


def last_of(messages: Sequence[Spoken]) -> tuple[Part, ...]:
    """Return the parts of the last message.

    Raises:
        Refusal: it is not the user's, is empty, or holds parts other than text and images.
    """
    if messages[-1].role != "user":
        raise Refusal(400, "invalid", "the last message has to be the user's", fix="put what you ask last")
    parts = parts_of(messages[-1])
    if not any(isinstance(part, Image) or part.text.strip() for part in parts):
        raise Refusal(400, "invalid", "the last message is empty")
    return parts


def begun_with(messages: Sequence[Spoken]) -> tuple[Part, ...]:
    """Return the conversation before the last message, for a session that does not have it; may be empty.

    Raises:
        Refusal: a message has an unknown role, or parts other than text and images.
    """
    for message in messages:
        if message.role not in ROLES:
            raise Refusal(400, "invalid", f"no message has the role {message.role[:40]!r}")
    before = messages[:-1]
    if not before:
        return ()
    parts: list[Part] = [Text("The earlier conversation, held elsewhere:\n")]
    for message in before:
        parts += [Text(f"\n[{ROLES[message.role]}]\n"), *parts_of(message), Text("\n")]
    return (*parts, Text("\n[user, now]\n"))


def title_of(parts: Sequence[Part]) -> str:
    """Return a title for a session that begins with these parts."""
    words = "".join(part.text for part in parts if isinstance(part, Text)).split()
    return " ".join(words[:12])[:100] or "an image"


def joined(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Join adjacent texts."""
    found: list[Part] = []
    for part in parts:
        if found and isinstance(part, Text) and isinstance(before := found[-1], Text):
            found[-1] = Text(before.text + part.text)
        else:
            found.append(part)
    return tuple(found)


def parts_of(message: Spoken) -> tuple[Text | Image, ...]:
    """Return the texts and images of a message.

    Raises:
        Refusal: it holds other parts.
    """
    content = message.content
    if content is None:
        return ()
    if isinstance(content, str):
        return (Text(content),)
    if not isinstance(content, list):
        raise Refusal(400, "invalid", "the content of a message is a text, or a list of parts")
    return tuple(_part(part) for part in cast("list[Any]", content))


def _part(part: Any) -> Text | Image:
    match part:
        case Image():
            return part
        case {"type": "text", "text": str(text)}:
            return Text(text)
        case {"type": "image_url", "image_url": {"url": str(url)}} | {"type": "image_url", "image_url": str(url)}:
            if (found := _DATA_URL.match(url)) is None:
                text = "an image has to come in the request: nothing is fetched from elsewhere"
                raise Refusal(400, "no_data_url", text, fix="send it as data:image/png;base64,…")
            return Image("", url[found.end() :])
        case {"type": str(kind)}:
            raise Refusal(
                400, "unsupported", f"a part of the type {kind[:40]!r} cannot be read; text and image_url can"
            )
        case _:
            raise Refusal(400, "invalid", "a part of a message has a type, and text or image_url")


class Answering:
    """A turn as deltas: the model's text is content; its thoughts and calls are reasoning.

    Attributes:
        answer: the final answer, once the turn has ended.
        said: all content so far.
        done: all reasoning so far.
        finish: OpenAI's reason for the end.
    """

    def __init__(self) -> None:
        self.answer = ""
        self.said = ""
        self.done = ""
        self.finish = "stop"
        self._said = ""
        self._step = ""
        self._thought = ""

    def take(self, event: ev.Event) -> list[Delta]:
        deltas = list(self._deltas(event))
        self.said += "".join(text for name, text in deltas if name == "content")
        self.done += "".join(text for name, text in deltas if name == "reasoning_content")
        return deltas

    def _deltas(self, event: ev.Event) -> list[Delta]:
        match event:
            case ev.TextDelta():
                return self._say(event.text)
            case ev.ThinkingDelta():
                self._thought += event.text
                return [("reasoning_content", event.text)]
            case ev.MessageAdded() if event.message.role == "assistant":
                return self._message(event)
            case ev.ToolFinished():
                line = " ".join(event.content.split())[:_LINE]
                return [("reasoning_content", f"→ {event.status} ({event.duration:.1f} s): {line}\n")]
            case ev.TurnFinished():
                return self._end(event)
            case _:
                _, inner = ev.innermost(event)
                if isinstance(inner, ev.ApprovalRequested):
                    return [("reasoning_content", f"\n[waits for approval: {inner.summary[:_LINE]}]\n")]
                return []

    def _say(self, text: str) -> list[Delta]:
        """Return deltas for the model's text; text after calls begins a new paragraph."""
        parted = [("content", "\n\n")] if self._said and not self._step and text else []
        self._said += text
        self._step += text
        return [*cast("list[Delta]", parted), ("content", text)] if text else []

    def _message(self, event: ev.MessageAdded) -> list[Delta]:
        """Return deltas for the part of a complete message that was not streamed, and for its calls."""
        deltas: list[Delta] = []
        thought = "".join(part.text for part in event.message.parts if isinstance(part, Thinking))
        if thought.startswith(self._thought) and (rest := thought[len(self._thought) :]):
            deltas.append(("reasoning_content", rest))
        text = event.message.text
        if text.startswith(self._step):
            deltas += self._say(text[len(self._step) :])
        self._step = self._thought = ""
        for call in event.message.tool_calls:
            tool, arguments = input_of(call)
            shown = ", ".join(f"{name}={value!r}" for name, value in arguments.items())[:_LINE]
            deltas.append(("reasoning_content", f"\n{tool}({shown})\n"))
        return deltas

    def _end(self, event: ev.TurnFinished) -> list[Delta]:
        self.answer = event.answer or f"[{event.outcome}: {event.reason}]"
        self.finish = "length" if event.outcome == "limit" else "stop"
        self._step = ""
        return [] if self.answer.strip() in self._said else self._say(self.answer)
