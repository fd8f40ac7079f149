"""Text of OpenAI's API: the request, its conversation as one message, and a turn as deltas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct, field

from lmagent.core import events as ev
from lmagent.core.messages import Image, Part, Text, Thinking
from lmagent.gateway.compat.http import input_of
from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.http.route import MAX_BODY as MAX_TEXT
from lmagent.gateway.http.route import decode

MAX_IMAGES = 40_000_000  # bytes of all images of a request in base64

# Bytes of a request. Some clients write a slash as two characters, or a plus or a slash as six (RFC 8259, section 7);
# two of 64 base64 characters are affected.
MAX_REQUEST = MAX_TEXT + MAX_IMAGES + MAX_IMAGES // 6

# The speakers' names for the agent.
ROLES = {"system": "instructions", "developer": "instructions", "user": "user", "assistant": "you", "tool": "a tool"}

Delta = tuple[Literal["content", "reasoning_content"], str]

_NOTHING = (b"", b"null", b"[]")
_LINE = 160  # characters of a line about a call


# --- the request ------------------------------------------------------------------------------------------------------


class ImageUrl(Struct, frozen=True):
    url: str


class ContentPart(Struct, frozen=True):
    type: str
    text: str | None = None
    image_url: ImageUrl | str | None = None


class ChatMessage(Struct, frozen=True):
    role: str
    content: str | list[ContentPart] | None = None


class StreamOptions(Struct, frozen=True):
    """`include_usage`: the last chunk has the tokens."""

    include_usage: bool = False


class ResponseFormat(Struct, frozen=True):
    type: str = "text"


class Completion(Struct, frozen=True):
    """A chat completion. The agent samples by its own settings: `temperature` and similar fields are ignored."""

    model: str
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    tools: Raw = field(default_factory=Raw)
    functions: Raw = field(default_factory=Raw)
    tool_choice: Raw = field(default_factory=Raw)
    response_format: ResponseFormat | None = None
    logprobs: bool | None = None
    modalities: list[str] | None = None


class Said(Struct, frozen=True):
    """A message of the conversation."""

    role: str
    parts: tuple[Text | Image, ...]

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Text))


def read_completion(data: bytes) -> tuple[Completion, list[Said]]:
    """Decode a request."""
    too_large = Refusal(413, "too_large", f"the text is larger than {MAX_TEXT:,} bytes", fix="send less of it")
    if data.count(b'"') > MAX_TEXT:  # before it becomes as many objects; images have no quotes
        raise too_large
    body: Completion = decode(data, Completion)
    said = [Said(message.role, _parts_of(message.content)) for message in body.messages]
    images = sum(len(part.data) for one in said for part in one.parts if isinstance(part, Image))
    if images > MAX_IMAGES:
        text = f"the images come to more than {MAX_IMAGES // 4 * 3:,} bytes"
        raise Refusal(413, "too_large", text, fix="send fewer, or smaller ones")
    if len(data) - images > MAX_TEXT + images // 6:
        raise too_large
    _refuse_unsupported(body)
    return body, said


def _parts_of(content: str | list[ContentPart] | None) -> tuple[Text | Image, ...]:
    if isinstance(content, str):
        return (Text(content),)
    return tuple(map(_part, content or ()))


def _part(part: ContentPart) -> Text | Image:
    match part:
        case ContentPart("text", str(text)):
            return Text(text)
        case ContentPart("image_url", _, ImageUrl(url) | str(url)):
            head, _, data = url.partition(",")
            if not (head[:5].lower() == "data:" and head[-7:].lower() == ";base64"):
                text = "an image has to come in the request: nothing is fetched from elsewhere"
                raise Refusal(400, "no_data_url", text, fix="send it as data:image/png;base64,…")
            return Image("", data)
        case _:
            text = f"a part of the type {part.type[:40]!r} cannot be read; text and image_url can"
            raise Refusal(400, "unsupported", text)


def _refuse_unsupported(body: Completion) -> None:
    """Refuse options that an agent cannot honour: it calls its own tools and answers in text."""
    wrong = {
        "tools": any(bytes(given) not in _NOTHING for given in (body.tools, body.functions)),
        "tool_choice": bytes(body.tool_choice) not in (*_NOTHING, b'"none"', b'"auto"'),
        "response_format": body.response_format is not None and body.response_format.type != "text",
        "n": (body.n or 1) != 1,
        "logprobs": bool(body.logprobs),
        "modalities": any(kind != "text" for kind in body.modalities or ()),
    }
    for name, is_wrong in wrong.items():
        if is_wrong:
            text = f"'{name}' cannot be honoured here: an agent calls tools of its own and answers once, in words"
            raise Refusal(400, "unsupported", text, fix=f"leave '{name}' out, or ask the model server itself")


# --- the conversation -------------------------------------------------------------------------------------------------


def last_of(messages: Sequence[Said]) -> tuple[Part, ...]:
    """Return the parts of the last message."""
    if messages[-1].role != "user":
        raise Refusal(400, "invalid", "the last message has to be the user's", fix="put what you ask last")
    parts = messages[-1].parts
    if not any(isinstance(part, Image) or part.text.strip() for part in parts):
        raise Refusal(400, "invalid", "the last message is empty")
    return parts


def begun_with(messages: Sequence[Said]) -> tuple[Part, ...]:
    """Return the conversation before the last message, for a session that does not have it; may be empty."""
    for message in messages:
        if message.role not in ROLES:
            raise Refusal(400, "invalid", f"no message has the role {message.role[:40]!r}")
    if len(messages) == 1:
        return ()
    parts: list[Part] = [Text("The earlier conversation, held elsewhere:\n")]
    for message in messages[:-1]:
        parts += [Text(f"\n[{ROLES[message.role]}]\n"), *message.parts, Text("\n")]
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


# --- the answer -------------------------------------------------------------------------------------------------------


def answer_of(end: ev.TurnFinished) -> str:
    return end.answer or f"[{end.outcome}: {end.reason}]"


class Answering:
    """A turn as deltas: the model's text is content; its thoughts and calls are reasoning."""

    def __init__(self) -> None:
        self.answer = ""  # the final answer, once the turn has ended
        self.done = ""  # all reasoning so far
        self.finish = "stop"
        self._said = ""
        self._step = ""
        self._thought = ""

    def take(self, event: ev.Event) -> list[Delta]:
        deltas = list(self._deltas(event))
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
        parted: list[Delta] = [("content", "\n\n")] if self._said and not self._step and text else []
        self._said += text
        self._step += text
        return [*parted, ("content", text)] if text else []

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
        self.answer = answer_of(event)
        self.finish = "length" if event.outcome == "limit" else "stop"
        self._step = ""
        return [] if self.answer.strip() in self._said else self._say(self.answer)
