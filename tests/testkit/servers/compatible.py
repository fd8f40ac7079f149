"""Compatible: servers of the common API with their own lists of models and ways of refusing."""

from __future__ import annotations

from typing import Any, Literal

from lmagent.testing import wire
from lmagent.testing.faults import OverflowFault, overflow_openrouter, overflow_vllm
from lmagent.testing.loopback import Received, Response
from lmagent.testing.prefix import canonical
from lmagent.testing.script import PlainAnswer, Script
from testkit.servers.base import DialectServer

Kind = Literal["plain", "koboldcpp", "tabbyapi", "sglang", "localai", "mlx"]
_OWNERS = {"koboldcpp": "koboldcpp", "tabbyapi": "tabbyAPI", "sglang": "sglang"}


class GenericServer(DialectServer):
    """A server of the common API.

    Args:
        script: see `ScriptedServer`.
        settings: see `DialectServer`.
    """

    def __init__(self, script: Script = (), *, kind: Kind = "plain", **settings: Any) -> None:
        self._kind: Kind = kind
        super().__init__(script, **settings)
        if kind == "koboldcpp":
            self._kobold()
        elif kind == "tabbyapi":
            self.get("/v1/model", self._tabby)
            self.post("/v1/token/encode", lambda asked: {"length": _size(asked.fields.get("text")), "tokens": []})

    def listing(self) -> Any:
        entry: dict[str, Any] = {"id": self.model, "object": "model"}
        if self._kind in _OWNERS:
            entry["owned_by"] = _OWNERS[self._kind]
        if self._kind == "sglang":
            entry["max_model_len"] = self.stated(self.window)
        return {"object": "list", "data": [entry]}

    def _kobold(self) -> None:
        """KoboldCpp imitates Ollama and llama.cpp beside its own routes."""
        self.get("/api/extra/version", lambda _: {"result": "KoboldCpp", "version": "1.99", "vision": False})
        self.get("/api/extra/true_max_context_length", lambda _: {"value": self.stated(self.window)})
        self.post("/api/extra/tokencount", lambda asked: {"value": _size(asked.fields.get("prompt")), "ids": []})
        self.get("/api/version", lambda _: {"version": "0.7.0"})
        self.get("/api/tags", lambda _: {"models": [{"name": self.model, "model": self.model}]})
        self.get("/api/ps", lambda _: {"models": [{"name": self.model, "model": self.model}]})

    def _tabby(self, received: Received) -> Any:
        parameters = {"max_seq_len": self.stated(self.window), "cache_size": self.window, "use_vision": False}
        return {"id": self.model, "object": "model", "owned_by": "tabbyAPI", "parameters": parameters}


def _size(text: Any) -> int:
    return len(text.encode()) // 4 if isinstance(text, str) else 0


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


_PARAMETERS = ("max_tokens", "temperature", "tools", "tool_choice", "structured_outputs", "reasoning")


class OpenRouterServer(DialectServer):
    """OpenRouter's API, with its paths under `/api/v1`.

    Args:
        script: see `ScriptedServer`.
        window: the usual provider's window.
        maximum: the largest provider's window.
        settings: see `DialectServer`.
    """

    def __init__(
        self,
        script: Script = (),
        *,
        window: int = 32_768,
        maximum: int = 131_072,
        **settings: Any,
    ) -> None:
        preset: dict[str, Any] = {"model": "qwen/qwen3-8b", "overflow": overflow_openrouter}
        super().__init__(script, window=window, maximum=maximum, **(preset | settings))
        self._refusal: OverflowFault | None = self._overflow
        self.get("/api/v1/models", lambda _: self.listing())

    @property
    def base_url(self) -> str:
        """`http://127.0.0.1:PORT/api/v1`."""
        return f"{self.url}/api/v1"

    def listing(self) -> Any:
        entry = {
            "id": self.model,
            "name": "Qwen: Qwen3 8B",
            "context_length": self.maximum,
            "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
            "pricing": {"prompt": "0.00000002", "completion": "0.0000001"},
            "top_provider": {"context_length": self.stated(self.window), "max_completion_tokens": 8192},
            "supported_parameters": _PARAMETERS,
        }
        return {"data": [entry]}

    def _load(self, received: Received) -> None:
        super()._load(received)
        plugins: list[Any] = received.fields.get("plugins") or []
        asked = [plugin.get("enabled") is not False for plugin in plugins if plugin.get("id") == "context-compression"]
        cuts = any(asked) if asked else self.window <= 8192
        self._overflow = None if cuts else self._refusal
