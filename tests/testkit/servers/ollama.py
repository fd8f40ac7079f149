"""OllamaServer: an Ollama server, which loads a model with one window and truncates prompts that exceed it.

The common route knows no window: it loads the model with the default and truncates. The native route loads it with the
`num_ctx` of the request, and refuses a longer prompt if `truncate` is false. Each change of window is a reload.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from lmagent.testing import wire
from lmagent.testing.loopback import Received, Response, Step, json_object
from lmagent.testing.prefix import PrefixRow, canonical
from lmagent.testing.script import Behaviour, PlainAnswer, Script, status
from testkit.servers import ndjson
from testkit.servers.base import DialectServer, renamed

_DETAILS = {"format": "gguf", "family": "qwen3", "parameter_size": "8.2B", "quantization_level": "Q4_K_M"}


class OllamaServer(DialectServer):
    """An Ollama server.

    Args:
        script: see `ScriptedServer`.
        default: the server's default window (`OLLAMA_CONTEXT_LENGTH`).
        maximum: tokens that the model was made for.
        capabilities: the abilities in `/api/show`.
        loaded: it is in memory from the start.
        refuses: it knows `truncate`; older versions do not, and truncate.
        keeps: share of the window that a truncated prompt still fills (newer versions leave about half).
        pulls: the progress of `POST /api/pull`: lines, and the ways of ending badly.
        settings: see `DialectServer`.

    Attributes:
        pulled: names of the models that were asked for with `POST /api/pull`.
        default: the server's default window.
        loaded_window: the window with which the model is loaded; None while it is not.
        reloads: how often a request with another window made the server unload and reload the model.
    """

    owner = "library"

    def __init__(
        self,
        script: Script = (),
        *,
        default: int = 4096,
        maximum: int = 40_960,
        capabilities: Sequence[str] = ("completion", "tools", "thinking"),
        loaded: bool = False,
        refuses: bool = True,
        keeps: float = 1.0,
        pulls: Sequence[Step] = (b'{"status":"success"}\n',),
        **settings: Any,
    ) -> None:
        self.default = default
        self.pulled: list[str] = []
        self._pulls = pulls
        self.reloads = 0
        self._capabilities = list(capabilities)
        self._refuses = refuses
        self._keeps = keeps
        preset: dict[str, Any] = {"model": "qwen3:8b"}
        super().__init__(script, window=default, maximum=maximum, **(preset | settings))
        self._overflow = None  # the common route never refuses
        self.loaded_window: int | None = default if loaded else None
        self.loaded = loaded
        self.get("/api/version", lambda _: {"version": "0.34.0"})
        self.get("/api/tags", lambda _: {"models": [self._tag()]})
        self.get("/api/ps", lambda _: {"models": self._running()})
        self.post("/api/show", self._show)
        self.post("/api/generate", self._generate)
        self.post("/api/chat", lambda _: status(500))  # answered in `_answer`, which may stream

    def unload(self) -> None:
        """See `DialectServer`."""
        super().unload()
        self.loaded_window = None

    # --- information ------------------------------------------------------------------------------------------------

    def _tag(self) -> dict[str, Any]:
        return {"name": self.model, "model": self.model, "size": 5_225_388_164, "details": _DETAILS}

    def _running(self) -> list[dict[str, Any]]:
        if self.loaded_window is None:
            return []
        return [self._tag() | {"size_vram": 6_654_289_920, "context_length": self.stated(self.loaded_window)}]

    def _show(self, received: Received) -> Any:
        if received.fields.get("model") not in (self.model, self.model.removesuffix(":latest")):
            return status(404, {"error": f"model '{received.fields.get('model')}' not found"})
        info = {"general.architecture": "qwen3", "qwen3.context_length": self.maximum, "qwen3.block_count": 36}
        shown: dict[str, Any] = {"details": _DETAILS, "model_info": info, "capabilities": self._capabilities}
        return shown

    # --- chat -------------------------------------------------------------------------------------------------------

    async def _answer(self, received: Received) -> Response:
        allowed = self._api_key is None or received.headers.get("authorization") == f"Bearer {self._api_key}"
        if received.method == "POST" and received.path == "/api/chat" and allowed:
            return self._native(received)
        if received.method == "POST" and received.path == "/api/pull" and allowed:
            self.pulled.append(str(received.fields.get("model")))
            return Response(self._pulls, 200, {"Content-Type": "application/x-ndjson"}, framing="chunked")
        return await super()._answer(received)

    def _generate(self, received: Received) -> Any:
        """Without a prompt, load the model, or unload it if it is to be kept for no time."""
        if received.fields.get("model") != self.model:
            return status(404, {"error": f"model '{received.fields.get('model')}' not found"})
        unloads = received.fields.get("keep_alive") == 0
        self.unload() if unloads else self._load(received)
        return {"model": self.model, "done": True, "done_reason": "unload" if unloads else "load"}

    def _load(self, received: Received) -> None:
        wanted = json_object(received.fields.get("options")).get("num_ctx") if received.path == "/api/chat" else None
        window = min(wanted or self.default, self.maximum)
        self.reloads += self.loaded_window not in (None, window)
        self.loaded_window = self.window = window
        self.loaded = True
        if self.lies.shrinks:
            self.window = self.lies.shrinks[min(len(self.chats), len(self.lies.shrinks) - 1)]

    def _native(self, received: Received) -> Response:
        self._load(received)
        self.chats.append(received)
        body = received.fields
        prompt = canonical(body)
        tokens = len(prompt) // 4
        if tokens > self.window and body.get("truncate") is False and self._refuses:
            return wire.plain_response(_refusal(tokens, self.window))
        behaviour, row = self._next(received), self.prefix.add(prompt)
        if isinstance(behaviour, PlainAnswer):
            return wire.plain_response(behaviour)
        return ndjson.respond(behaviour, self._counted(body | {"stream": body.get("stream") is not False}, row))

    def _send(self, behaviour: Behaviour, body: dict[str, Any], row: Any) -> Response:
        if isinstance(behaviour, PlainAnswer) or row is None:
            return super()._send(behaviour, body, row)
        response = wire.respond(behaviour, self._counted(body, row))
        return renamed(response) if self.lies.usage == "wrong_field" else response

    def _counted(self, body: dict[str, Any], row: PrefixRow) -> wire.ServerRequest:
        """Return the request, with the tokens that are left of its prompt."""
        tokens = row.size // 4
        if tokens > self.window:
            return self._asked(body, int(self.window * self._keeps), 0)
        return self._asked(body, tokens, row.common // 4)


def _refusal(tokens: int, window: int) -> PlainAnswer:
    """Return the engine's own refusal, as JSON in the text of Ollama's."""
    text = f"request ({tokens} tokens) exceeds the available context size ({window} tokens), try increasing it"
    fields = {"type": "exceed_context_size_error", "n_prompt_tokens": tokens, "n_ctx": window}
    inner = {"code": 400, "message": text, **fields}
    return status(400, {"error": msgspec.json.encode({"error": inner}).decode()})
