"""Base: a scripted server that also has a dialect's own routes, and the lies that any server can tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from lmagent.testing import wire
from lmagent.testing.faults import OverflowFault, bad_key, html_page, overflow_llamacpp
from lmagent.testing.loopback import Received, Response
from lmagent.testing.script import Behaviour, PlainAnswer, Reply, Script, status
from lmagent.testing.server import ScriptedServer


@dataclass(frozen=True, slots=True, kw_only=True)
class Lies:
    """False statements of a server. All off by default."""

    # `zero` sends zeros, `missing` sends none, `wrong_field` sends it where no client looks
    usage: Literal["", "zero", "missing", "wrong_field"] = ""
    cut: bool = False  # a prompt that does not fit loses its front, behind a 200
    stated_window: int | None = None  # figure that the information routes state instead of the served one
    stated_as_text: bool = False  # figures are strings
    html: bool = False  # every information route answers 200 with a web page
    # the window served from each chat request on; the last one stays. The stated one does not change
    shrinks: Sequence[int] = ()


HONEST = Lies()


class DialectServer(ScriptedServer):
    """A model server of one dialect.

    Args:
        script: see `ScriptedServer`.
        window: tokens that one request may use (canonical bytes / 4).
        maximum: tokens that the model was made for.
        lies: its false statements.
        overflow: the words of a refusal.
        settings: further arguments of `ScriptedServer`.

    Attributes:
        maximum: tokens that the model was made for.
        lies: its false statements.
        loaded: the model is in memory. A chat request loads it.
    """

    owner = "test"

    def __init__(
        self,
        script: Script = (),
        *,
        model: str = "test-model",
        window: int = 8192,
        maximum: int = 131_072,
        lies: Lies = HONEST,
        overflow: OverflowFault = overflow_llamacpp,
        **settings: Any,
    ) -> None:
        self.model = model
        self.maximum = maximum
        self.lies = lies
        self.loaded = True
        self._gets: dict[str, Callable[[Received], Any]] = {}
        self._posts: dict[str, Callable[[Received], Any]] = {}
        settings = {"models": (model,), "unknown": html_page() if lies.html else None} | settings
        self._overflow: OverflowFault | None
        super().__init__(script, window=window, overflow=None if lies.cut else overflow, **settings)

    @property
    def window(self) -> int:
        """Tokens that one request may really use now; can be set while the server runs."""
        return self._window or self.maximum

    @window.setter
    def window(self, tokens: int) -> None:
        self._window = tokens

    def unload(self) -> None:
        """Take the model out of memory, as an idle server does."""
        self.loaded = False

    def stated(self, tokens: int) -> Any:
        """Return a window in the form of the information routes."""
        tokens = self.lies.stated_window or tokens
        return str(tokens) if self.lies.stated_as_text else tokens

    # --- routes -----------------------------------------------------------------------------------------------------

    def get(self, path: str, answer: Callable[[Received], Any]) -> None:
        """Answer GET requests for a path with JSON, or with a `PlainAnswer`."""
        self._gets[path] = answer

    def post(self, path: str, answer: Callable[[Received], Any]) -> None:
        """Answer POST requests for a path with JSON, or with a `PlainAnswer`."""
        self._posts[path] = answer

    def listing(self) -> Any:
        """Return the answer of `GET /v1/models`."""
        data = [{"id": self.model, "object": "model", "created": 0, "owned_by": self.owner}]
        return {"object": "list", "data": data}

    async def _answer(self, received: Received) -> Response:
        wanted = {"GET": self._gets, "POST": self._posts}.get(received.method, {})
        path = received.path.rstrip("/")
        answer = wanted.get(path)
        if answer is None and received.method == "GET" and path in ("/v1/models", "/models"):
            answer = self._list
        if answer is None:
            return await super()._answer(received)
        if self._api_key is not None and received.headers.get("authorization") != f"Bearer {self._api_key}":
            return wire.plain_response(bad_key())
        if self.lies.html and received.method == "GET":
            return wire.plain_response(html_page())
        said = answer(received)
        return wire.plain_response(said if isinstance(said, PlainAnswer) else status(200, msgspec.json.encode(said)))

    def _list(self, received: Received) -> Any:
        return self.listing()

    # --- chat -------------------------------------------------------------------------------------------------------

    def _chat(self, received: Received) -> Response:
        self._load(received)
        return super()._chat(received)

    def _load(self, received: Received) -> None:
        """Load the model, and shrink the window, before a chat request."""
        self.loaded = True
        if self.lies.shrinks:
            self.window = self.lies.shrinks[min(len(self.chats), len(self.lies.shrinks) - 1)]

    def _next(self, received: Received) -> Behaviour:
        behaviour = super()._next(received)
        return lying(behaviour, self.lies) if isinstance(behaviour, Reply) else behaviour

    def _send(self, behaviour: Behaviour, body: dict[str, Any], row: Any) -> Response:
        if row is not None and row.size // 4 > self.window:
            row = replace(row, common=0)  # it lost its front, so nothing of it is in the cache
        response = super()._send(behaviour, body, row)
        return renamed(response) if self.lies.usage == "wrong_field" else response


def lying(reply: Reply, lies: Lies) -> Reply:
    """Return the reply with usage changed by the lies."""
    kinds: Mapping[str, Any] = {"zero": "zero", "missing": "never"}
    kind = kinds.get(lies.usage)
    return replace(reply, style=replace(reply.style, usage=kind)) if kind else reply


def renamed(response: Response) -> Response:
    """Return the response with usage under a name that no client reads."""
    steps = response.steps
    assert isinstance(steps, Sequence)
    changed = [step.replace(b'"usage":', b'"token_usage":') if isinstance(step, bytes) else step for step in steps]
    return replace(response, steps=changed)
