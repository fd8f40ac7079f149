"""The request to a model and its reply: the vocabulary of the Provider port."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from lmagent.core.messages import Message

FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "endless", "other"]
"""`endless`: the reply was cut off here, since it repeated itself or grew beyond `ModelRequest.longest`."""

_KEEPING = re.compile(
    r"gpt-?oss|minimax-?m[2-9]|kimi-?k2[^/]*think|glm-?(?:4\.[5-9]|[5-9])|deepseek-?(?:v3\.[2-9]|v[4-9])", re.IGNORECASE
)
"""Models that were trained to call tools in the midst of thinking, by their makers' notes: gpt-oss, MiniMax from M2,
Kimi K2 Thinking, GLM from 4.5, DeepSeek from V3.2. The templates of most others drop earlier thoughts."""


@lru_cache(maxsize=32)
def keeps_thoughts(model: str) -> bool:
    """Return whether a model of this name works better with its own earlier thoughts in the conversation."""
    return _KEEPING.search(model.replace("_", "-")) is not None


class ToolSpec(Struct, frozen=True):
    """A tool in a request to the model; `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: dict[str, Any]


class Sampling(Struct, frozen=True):
    """How a model samples, besides its temperature, by the names of OpenAI's API; None leaves it to the server."""

    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    seed: int | None = None

    def given(self) -> dict[str, Any]:
        """Return the parameters that are set."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}


LONGEST_INSTRUCTIONS = 8000
"""Characters of a session's own instructions, which every prompt contains."""


class SessionOptions(Struct, frozen=True, omit_defaults=True):
    """A session's own options, which override the settings; None leaves a value to them.

    Attributes:
        temperature: see `ModelRequest`.
        max_tokens: see `ModelRequest`.
        top_p: see `Sampling`, as the others below.
        instructions: text for the model that applies to this session alone.
    """

    temperature: Annotated[float, Meta(ge=0, le=5)] | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    seed: Annotated[int, Meta(ge=0)] | None = None
    instructions: Annotated[str, Meta(max_length=LONGEST_INSTRUCTIONS)] = ""


class ModelRequest(Struct, frozen=True):
    """One model call.

    Attributes:
        model: the model's name; empty lets the server choose.
        system: the fixed system text.
        tools: the fixed tool block.
        messages: the conversation; an append-only sequence, so that an adapter may cache its serialised form.
        temperature: sampling temperature; None leaves it to the server.
        max_tokens: cap on the reply in tokens; None leaves it to the server.
        tool_choice: "auto", or "none" for a call that must answer in text (a summary): the tools are
            still sent, since a tool block that changes re-reads the whole prompt.
        response_schema: a JSON schema that the answer must follow, if the server can enforce it.
        keep_thinking: send the model's earlier thoughts back to it.
        constrain: have the server make the model write a valid call or an answer, if it can.
        others: returns tools with a name, aliases and a spec, also recognised in calls within text; they are never
            sent, and asked for when the reply is read, so that no request waits for the tools of servers.
        nonce: marks the user's text in a result, if the server takes no user message after results; only the
            session knows it. Empty for a request that belongs to no session.
        longest: characters of text, thought and calls after which the reply counts as endless; 0 for the highest limit.
        joins: the server is known to take no user message after results.
        sampling: the other sampling parameters.
    """

    model: str
    system: str
    tools: tuple[ToolSpec, ...]
    messages: Sequence[Message]
    temperature: float | None = None
    max_tokens: int | None = None
    tool_choice: Literal["auto", "none"] = "auto"
    response_schema: dict[str, Any] | None = None
    keep_thinking: bool = False
    constrain: bool = False
    others: Callable[[], Iterable[Any]] = tuple
    nonce: str = ""
    joins: bool = False
    longest: int = 0
    sampling: Sampling = Sampling()


class Usage(Struct, frozen=True):
    """Token counts as the server reported them; 0 means not reported.

    Attributes:
        prompt_tokens: tokens of the prompt.
        completion_tokens: tokens of the reply, thoughts included.
        cached_tokens: how many prompt tokens the server took from its cache.
        estimated: True when the server reported nothing and the figures are ours (bytes / 4).
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    estimated: bool = False

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cached_tokens + other.cached_tokens,
            self.estimated or other.estimated,
        )


class TextChunk(Struct, frozen=True):
    """A piece of the answer."""

    text: str


class ThinkingChunk(Struct, frozen=True):
    """A piece of the model's thought."""

    text: str


class Progress(Struct, frozen=True):
    """A sign of life before the first token.

    Attributes:
        fraction: how much of the prompt has been read, 0 to 1, if known.
        seconds_left: how long the rest will take, if known.
        waits: the request is not sent yet, because the server works for another session.
    """

    fraction: float | None = None
    seconds_left: float | None = None
    waits: bool = False


class Retrying(Struct, frozen=True):
    """The adapter is about to try again."""

    reason: str
    attempt: int
    delay: float


class ModelReply(Struct, frozen=True):
    """The whole reply; always the last event of a stream.

    Attributes:
        message: the assistant's message (thinking, text, tool calls); of an endless reply only its beginning, no calls.
        finish_reason: why the model stopped.
        usage: token counts.
        model: the model's name as the server gave it.
        truncated_calls: ids of calls that the reply cut off: they must not run.
        text_format: the format of calls found in the text; empty if the server recognised them itself.
        first_token_s: seconds from sending the request to the first token.
        total_s: seconds from sending the request to the end of the stream.
        joined: the server refused a user message after results, and answered once its text was joined with the result.
    """

    message: Message
    finish_reason: FinishReason
    usage: Usage
    model: str = ""
    truncated_calls: frozenset[str] = frozenset()
    text_format: str = ""
    first_token_s: float = 0.0
    total_s: float = 0.0
    joined: bool = False


ModelEvent = TextChunk | ThinkingChunk | Progress | Retrying | ModelReply

PROVIDER_NAMES = ("lmstudio", "ollama", "llamacpp", "vllm", "openrouter", "own")
"""Model servers that a model's name can begin with, as `PROVIDER:NAME`; `own` is lmagent's."""


def split_name(model: str) -> tuple[str, str]:
    """Return the provider, or an empty text for the usual server, and the name that the server knows.

    Ollama's `qwen3:8b` is a plain name: what precedes its colon is no provider.
    """
    provider, colon, name = model.partition(":")
    return (provider, name) if colon and provider in PROVIDER_NAMES else ("", model)
