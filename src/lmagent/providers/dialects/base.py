"""Base: the facts of a server and its models, the options of a caller, and the interface of a dialect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from lmagent.core.model import ModelRequest
from lmagent.providers.dialects.ask import Ask

Proof = Literal["loaded", "setting", "maximum", "none"]
"""Source of a window's figure: the loaded instance; a setting with which the model is served or will be loaded; the
model's own maximum, which does not show the served window; unknown."""


class ModelFacts(Struct, frozen=True, kw_only=True):
    """A server's description of a model. None always means that the server does not state it.

    Attributes:
        loaded: it is in memory now.
        window: tokens that one request may use, prompt and reply together; a slot's share if slots divide it.
        proof: the source of `window`. Only `trusted` figures may be filled up.
        maximum: tokens that the model was made for.
        embeddings: it makes embeddings and cannot chat.
        tools: it, or its template, knows tool calls.
        thinking: it can think before it answers.
        quant: quantisation, as the server names it.
        size: number of parameters, as the server writes it (`7B`).
        bytes: size of its file or its memory.
    """

    id: str
    loaded: bool | None = None
    window: int | None = None
    proof: Proof = "none"
    maximum: int | None = None
    max_output: int | None = None
    vision: bool | None = None
    embeddings: bool = False
    tools: bool | None = None
    thinking: bool | None = None
    quant: str = ""
    size: str = ""
    bytes: int | None = None

    @property
    def trusted(self) -> bool:
        """Whether `window` is the served window, rather than the model's possible one."""
        return self.proof in ("loaded", "setting")

    def safe_window(self, assumed: int) -> int:
        """Return the window to plan with: the served one; else `assumed`, or the model's maximum if that is smaller."""
        if self.window is not None and self.trusted:
            return self.window
        return min(assumed, self.window or assumed)


class ServerFacts(Struct, frozen=True, kw_only=True):
    """The identity and abilities of a server. None means unknown; the ability can be tried.

    Attributes:
        dialect: name of the dialect (`ollama`); `generic` for a server that is not recognised.
        label: the server's name for the user (`Ollama`); empty if even that is unknown.
        root: root of the server, under which its own routes lie.
        reached: something answered at all.
        finished: all questions were answered or refused; otherwise it was too slow, and may be asked again later.
        model: the model that was asked about; without a name, the only one, or the only one loaded.
        slots: requests that it serves at the same time, each with a prompt cache of its own.
        usage: it counts tokens in streams on request (`stream_options.include_usage`).
        progress: it reports how far the prompt is read (`return_progress`).
        timings: it reports with each reply how much of the prompt came from its cache.
        json_schema: it enforces `response_format` of type `json_schema`.
        tokenizer: it counts tokens of a text or a conversation.
        id_slot: a request can be bound to a slot.
        slot_files: it may be able to save a slot's contents to a file; it can be tried.
        cache_prompt: `cache_prompt` is understood.
        native_chat: its own chat route obeys options that the common one ignores.
        cuts: on the common chat route it silently cuts a prompt that does not fit.
        sums: it refuses a request whose prompt and `max_tokens` together exceed the window.
    """

    dialect: str = "generic"
    label: str = ""
    root: str = ""
    version: str = ""
    reached: bool = False
    finished: bool = True
    model: ModelFacts | None = None
    models: tuple[ModelFacts, ...] = ()
    slots: int | None = None
    usage: bool | None = None
    progress: bool = False
    timings: bool = False
    json_schema: bool | None = None
    grammar: bool = False
    tokenizer: bool = False
    id_slot: bool = False
    slot_files: bool = False
    cache_prompt: bool = False
    native_chat: bool = False
    cuts: bool | None = None
    sums: bool = False

    def of(self, model: str) -> ModelFacts | None:
        """Return the facts about a model by name (`:latest` may be left out); without a name, `self.model`."""
        if not model:
            return self.model
        if self.model is not None and self.model.id in (model, f"{model}:latest"):
            return self.model
        return next((known for known in self.models if known.id in (model, f"{model}:latest")), None)


class RequestOptions(Struct, frozen=True, kw_only=True):
    """A caller's options besides the request; a dialect ignores options that it does not know.

    Attributes:
        slot: the slot to bind the request to; numbers beyond the last slot are not sent.
        progress: report how far the prompt is read.
        timings: report timings with every token; at the end they come anyway.
        schema: a JSON schema that the answer must follow; the request's own `response_schema` is sent without it.
        think: switch thinking on, off, or to a level (`low`, `medium`, `high`).
        keep_alive: how long the model stays in memory (`30m`; -1 for ever).
        provider: OpenRouter's routing preferences.
    """

    slot: int | None = None
    progress: bool = True
    timings: bool = False
    schema: dict[str, Any] | None = None
    grammar: str = ""
    think: bool | str | None = None
    keep_alive: str | int | None = None
    provider: dict[str, Any] | None = None


class Seen(Struct, frozen=True, kw_only=True):
    """The answers to the questions that every server gets.

    Attributes:
        local: it is on this machine or a private network: questions cost nothing there.
        listing: the answer of `GET …/models`; None if it is no JSON.
        answers: further answers by path under the root; None for an answer that is no JSON.
    """

    root: str
    local: bool
    listing: Any
    answers: Mapping[str, Any]

    def owner(self) -> str:
        """Return `owned_by` of the first model listed, or of an empty list; empty if neither has it."""
        from lmagent.providers.dialects.fields import entries, text

        listed = entries(self.listing, "data")
        return text(listed[0] if listed else self.listing, "owned_by")


class Dialect(Protocol):
    """The knowledge about one kind of server, without state."""

    @property
    def name(self) -> str:
        """Short and stable (`llamacpp`)."""
        ...

    @property
    def label(self) -> str: ...

    @property
    def routes(self) -> Sequence[str]:
        """Paths under the server's root; GET requests to them tell the server from others."""
        ...

    def claims(self, seen: Seen) -> bool:
        """Return whether the server is of this kind."""
        ...

    async def read(self, seen: Seen, ask: Ask, model: str) -> ServerFacts:
        """Return the facts. It may ask more, with questions that load nothing and cost nothing. Never raises."""
        ...

    def extras(self, request: ModelRequest, facts: ServerFacts, options: RequestOptions) -> dict[str, Any]:
        """Return fields for the body of a chat completion; they replace fields of the same name."""
        ...

    async def count(self, ask: Ask, facts: ServerFacts, subject: str | ModelRequest, model: str) -> int | None:
        """Return the server's token count of a text, or of a whole request; None if it does not count."""
        ...


def slot_of(facts: ServerFacts, conversation: int) -> int | None:
    """Return the slot for a conversation, so that no other one replaces the main one's prompt.

    Conversation 0 is the main one and has slot 0 to itself; the others share the rest. Return None if the server has
    only one slot, or binds no requests: there, only the order of requests keeps the prompt cached (`cache_slot`). A
    request for a busy slot waits for it.
    """
    if not facts.id_slot or not facts.slots or facts.slots < 2:
        return None
    return 0 if conversation <= 0 else 1 + (conversation - 1) % (facts.slots - 1)


def response_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}


def chosen(models: tuple[ModelFacts, ...], model: str) -> ModelFacts | None:
    """Return the model of that name; without a name, the only one that can chat, or the only loaded one of them."""
    if model:
        return next((known for known in models if known.id in (model, f"{model}:latest")), None)
    able = [known for known in models if not known.embeddings]
    loaded = [known for known in able if known.loaded]
    return able[0] if len(able) == 1 else loaded[0] if len(loaded) == 1 else None
