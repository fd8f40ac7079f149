"""ScriptedServer: an OpenAI-compatible model server that follows a script, over real HTTP on 127.0.0.1.

    with ScriptedServer([call("read", path="a.txt"), say("It says hello.")]) as server:
        ...                                # point an agent at server.base_url
    assert server.chats[1].messages[-1]["role"] == "tool"

From a shell:

    python -m lmagent.testing --port 8099 --script replies.json --log requests.jsonl
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from lmagent.testing import wire
from lmagent.testing.faults import OverflowFault, bad_key, overflow_llamacpp
from lmagent.testing.loopback import LoopbackServer, Received, Response, json_object
from lmagent.testing.prefix import PrefixMeter, PrefixRow, canonical
from lmagent.testing.script import Behaviour, PlainAnswer, Script, Scripted, status
from lmagent.testing.strict import violations
from lmagent.testing.templates import Template

Route = object
"""The answer of an extra GET route: a `PlainAnswer`, a function of the request that returns one, or data for JSON."""


class ScriptedServer(LoopbackServer):
    """A model server that follows a script.

    Args:
        script: replies, given out one per chat request in the order of arrival; an item may be a function that takes
            the request and gives its reply. Or one such function for all requests. After the last reply every
            further request gets a 500 that says so.
        strict: refuse with 400 everything that the pickiest servers refuse (`lmagent.testing.strict`).
        template: refuses conversations that a chat template refuses (`lmagent.testing.templates`).
        models: names that `GET …/models` lists.
        routes: extra GET routes by path (`/props`, `/api/v0/models`, `/v1/models` …): a `Route`.
        unknown: the answer to GET routes that do not exist; LM Studio says 200 there.
        window: size of the window in tokens (canonical bytes / 4); a larger prompt gets `overflow`.
        overflow: the words of the refusal; None cuts silently, as Ollama does: usage then shows the window.
        api_key: the key without which every request gets 401.
        slots: prompts that the cache of the prefix meter holds.
        port: the port; 0 takes a free one.
        finished: called with each request after its answer.

    Attributes:
        requests: every request in the order of arrival, GETs too.
        chats: the chat requests alone.
        objections: the reason for each chat request that strict mode or the template refused.
        prefix: the account of the prompts that a server's cache could reuse.
    """

    def __init__(  # noqa: PLR0913 (settings by keyword, each with its default)
        self,
        script: Script = (),
        *,
        strict: bool = False,
        template: Template | None = None,
        models: Sequence[str] = ("test-model",),
        routes: Mapping[str, Route] | None = None,
        unknown: PlainAnswer | None = None,
        window: int | None = None,
        overflow: OverflowFault | None = overflow_llamacpp,
        api_key: str | None = None,
        slots: int = 1,
        port: int = 0,
        finished: Callable[[Received], None] | None = None,
    ) -> None:
        super().__init__(self._answer, port=port, finished=finished)
        self._script = script
        self._strict = strict
        self._template = template
        self._models = models
        self._routes = routes or {}
        self._unknown = unknown or status(404, {"error": {"message": "no such route", "type": "not_found_error"}})
        self._window = window
        self._overflow = overflow
        self._api_key = api_key
        self._position = 0
        self.chats: list[Received] = []
        self.objections: list[list[str]] = []
        self.prefix = PrefixMeter(slots)

    @property
    def base_url(self) -> str:
        """`http://127.0.0.1:PORT/v1`."""
        return f"{self.url}/v1"

    @property
    def left(self) -> int:
        """Count the replies of the script that are still unused; 0 if the script is a function."""
        return 0 if callable(self._script) else len(self._script) - self._position

    # --- answering --------------------------------------------------------------------------------------------------

    async def _answer(self, received: Received) -> Response:
        if self._api_key is not None and received.headers.get("authorization") != f"Bearer {self._api_key}":
            return wire.plain_response(bad_key())
        if received.method == "POST" and received.path.endswith("/chat/completions"):
            return self._chat(received)
        if received.method == "GET":
            return wire.plain_response(self._get(received))
        return wire.plain_response(self._unknown)

    def _get(self, received: Received) -> PlainAnswer:
        path = received.path.rstrip("/")
        if path in self._routes:
            route = self._routes[path]
            answer = route(received) if callable(route) else route
            return answer if isinstance(answer, PlainAnswer) else status(200, msgspec.json.encode(answer))
        if path.endswith("/models"):
            data = [{"id": name, "object": "model", "created": 0, "owned_by": "test"} for name in self._models]
            return status(200, {"object": "list", "data": data})
        return self._unknown

    def _chat(self, received: Received) -> Response:
        self.chats.append(received)
        body = received.fields
        if not body:
            return wire.plain_response(status(400, {"error": {"message": "the body is not a JSON object"}}))
        if self._strict and (found := violations(body)):
            self.objections.append(found)
            return wire.plain_response(_refusal(found))
        if self._template is not None and (refusal := self._template(body)) is not None:
            self.objections.append(["the chat template"])
            return self._send(refusal, body, None)
        prompt = canonical(body)
        tokens = len(prompt) // 4
        if self._window is not None and tokens > self._window and self._overflow is not None:
            return self._send(self._overflow(tokens, self._window), body, None)
        return self._send(self._next(received), body, self.prefix.add(prompt))

    def _send(self, behaviour: Behaviour, body: dict[str, Any], row: PrefixRow | None) -> Response:
        if isinstance(behaviour, PlainAnswer):
            return wire.plain_response(behaviour)
        tokens, cached = (row.size // 4, row.common // 4) if row else (0, 0)
        return wire.respond(behaviour, self._asked(body, min(tokens, self._window or tokens), cached))

    def _asked(self, body: Mapping[str, Any], tokens: int, cached: int) -> wire.ServerRequest:
        return wire.ServerRequest(
            number=len(self.chats),
            model=str(body.get("model") or self._models[0]),
            stream=bool(body.get("stream")),
            usage=bool(json_object(body.get("stream_options")).get("include_usage")),
            prompt_tokens=tokens,
            cached_tokens=cached,
        )

    def _next(self, received: Received) -> Behaviour:
        if callable(self._script):
            return self._script(received)
        if self._position >= len(self._script):
            text = f"script exhausted: all {len(self._script)} replies were given, and this is one more request"
            return status(500, {"error": {"message": text, "type": "script_exhausted"}})
        item: Scripted = self._script[self._position]
        self._position += 1
        return item(received) if callable(item) else item


def _refusal(found: list[str]) -> PlainAnswer:
    text = "strict mode refuses the request: " + "; ".join(found)
    return status(400, {"error": {"message": text, "type": "invalid_request_error"}})
