"""Base: the facts of a server and its models, and the interface of a dialect."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from lmagent.core.model import ModelRequest
from lmagent.providers.dialects.ask import Ask
from lmagent.providers.dialects.fields import entries, text

Proof = Literal["loaded", "setting", "maximum", "none"]
"""Source of a window's figure: the loaded instance; a setting with which the model is served or will be loaded; the
model's own maximum, which does not show the served window; unknown."""


class ModelFacts(Struct, frozen=True, kw_only=True):
    """A server's description of a model. None always means that the server does not state it.

    Attributes:
        loaded: it is in memory now.
        served: tokens that one request may use, prompt and reply together; a slot's share if slots divide it.
        maximum: tokens that the model was made for.
        embeddings: it makes embeddings and cannot chat.
        tools: it, or its template, knows tool calls.
        quant: quantisation, as the server names it.
        size: number of parameters, as the server writes it (`7B`).
        bytes: size of its file or its memory.
    """

    id: str
    loaded: bool | None = None
    served: int | None = None
    maximum: int | None = None
    vision: bool | None = None
    embeddings: bool = False
    tools: bool | None = None
    thinking: bool | None = None
    quant: str = ""
    size: str = ""
    bytes: int | None = None

    @property
    def window(self) -> int | None:
        """Return the served window, else the possible one."""
        return self.served or self.maximum

    @property
    def proof(self) -> Proof:
        """Return the source of `window`."""
        if self.served is None:
            return "none" if self.maximum is None else "maximum"
        return "loaded" if self.loaded else "setting"


class ServerFacts(Struct, frozen=True, kw_only=True):
    """The identity and abilities of a server. None means unknown.

    Attributes:
        dialect: name of the dialect (`ollama`); `generic` for a server that is not recognised.
        label: the server's name for the user (`Ollama`); empty if even that is unknown.
        reached: something answered at all.
        finished: all questions were answered or refused; otherwise it was too slow, and may be asked again later.
        model: the model that was asked about; without a name, the one that a request without a name uses.
        slots: requests that it serves at the same time, each with a prompt cache of its own.
        tokenizer: it counts the tokens of a conversation.
        id_slot: a request can be bound to a slot.
        native_chat: its own chat route obeys options that the common one ignores.
    """

    dialect: str = "generic"
    label: str = ""
    version: str = ""
    reached: bool = False
    finished: bool = True
    model: ModelFacts | None = None
    models: tuple[ModelFacts, ...] = ()
    slots: int | None = None
    tokenizer: bool = False
    id_slot: bool = False
    native_chat: bool = False

    def of(self, model: str) -> ModelFacts | None:
        """Return the facts about a model by name (`:latest` may be left out); without a name, `self.model`."""
        if not model or (self.model is not None and self.model.id in (model, f"{model}:latest")):
            return self.model
        return chosen(self.models, model)


class Seen(Struct, frozen=True, kw_only=True):
    """The answers to the questions that every server gets.

    Attributes:
        root: the server's root.
        local: it is on this machine or a private network: questions cost nothing there.
        listing: the answer of `GET …/models`; None if it is no JSON.
        answers: further answers by path under the root; None for an answer that is no JSON.
    """

    root: str
    local: bool
    listing: Any
    answers: Mapping[str, Any]

    @property
    def listed(self) -> list[dict[str, Any]]:
        """Return the entries of the list of models."""
        return [entry for entry in entries(self.listing, "data") if text(entry, "id")]

    def owner(self) -> str:
        """Return `owned_by` of the first model listed, or of an empty list; empty if neither has it."""
        return text(self.listed[0] if self.listed else self.listing, "owned_by")


class Dialect(ABC):
    """The knowledge about one kind of server, without state.

    Attributes:
        name: short and stable (`llamacpp`).
        label: the server's name for the user, empty if it is unknown.
        routes: paths under the server's root; GET requests to them tell the server from others.
    """

    routes: Sequence[str] = ()

    def __init__(self, name: str, label: str) -> None:
        self.name = name
        self.label = label

    @abstractmethod
    def claims(self, seen: Seen) -> bool:
        """Return whether the answers are those of this kind of server."""

    @abstractmethod
    async def read(self, seen: Seen, ask: Ask, model: str) -> ServerFacts:
        """Return the facts. It may ask more, with questions that load nothing and cost nothing. Never raises."""

    def facts(self, models: tuple[ModelFacts, ...], asked: ModelFacts | None, **others: Any) -> ServerFacts:
        """Return the facts of a server that answered, with those of the models that it lists and the one asked for."""
        if asked is not None:
            models = tuple(asked if known.id == asked.id else known for known in models)
        known: dict[str, Any] = {"dialect": self.name, "label": self.label, "reached": True}
        return ServerFacts(model=asked, models=models, **{**known, **others})

    def extras(self, request: ModelRequest, facts: ServerFacts, slot: int | None) -> dict[str, Any]:
        """Return fields for the body of a chat completion; an unknown field is an error for some servers."""
        return {}

    async def count(self, ask: Ask, request: ModelRequest) -> int | None:
        """Return the server's token count of a request's prompt; None if it does not count."""
        return None


def chosen(models: tuple[ModelFacts, ...], model: str) -> ModelFacts | None:
    """Return the model of that name; without a name, the first one that can chat, a loaded one if possible."""
    if model:
        return next((known for known in models if known.id in (model, f"{model}:latest")), None)
    return max((known for known in models if not known.embeddings), key=lambda known: bool(known.loaded), default=None)
