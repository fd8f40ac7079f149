"""VLLMServer: vLLM's server, whose window holds prompt and reply together and refuses what exceeds it with both."""

from __future__ import annotations

from typing import Any

from lmagent.testing import wire
from lmagent.testing.faults import overflow_vllm
from lmagent.testing.loopback import Received, Response
from lmagent.testing.prefix import canonical
from lmagent.testing.script import PlainAnswer, Script
from lmagent.testing.servers.base import DialectServer


class VLLMServer(DialectServer):
    """vLLM's server.

    Args:
        script: see `ScriptedServer`.
        settings: see `DialectServer`.
    """

    owner = "vllm"

    def __init__(self, script: Script = (), *, version: str = "0.12.0", **settings: Any) -> None:
        preset: dict[str, Any] = {"model": "Qwen/Qwen3-8B", "overflow": overflow_vllm}
        super().__init__(script, **(preset | settings))
        self.get("/version", lambda _: {"version": version})
        self.post("/tokenize", self._tokenize)

    def listing(self) -> Any:
        entry: dict[str, Any] = {"id": self.model, "object": "model", "created": 0, "owned_by": self.owner}
        entry |= {"root": self.model, "parent": None, "max_model_len": self.stated(self.window), "permission": []}
        return {"object": "list", "data": [entry]}

    def _tokenize(self, received: Received) -> Any:
        body = received.fields
        text = body.get("prompt")
        size = len(text.encode()) if isinstance(text, str) else len(canonical(body))
        return {"count": size // 4, "max_model_len": self.window, "tokens": list(range(size // 4))}

    def _chat(self, received: Received) -> Response:
        body = received.fields
        limit = body.get("max_tokens") or body.get("max_completion_tokens") or 0
        tokens = len(canonical(body)) // 4
        if body and self._overflow is not None and tokens + limit > self.window:
            self.chats.append(received)
            refusal = self._overflow(tokens, self.window)
            return wire.plain_response(refusal) if isinstance(refusal, PlainAnswer) else self._send(refusal, body, None)
        return super()._chat(received)
