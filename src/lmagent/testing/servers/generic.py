"""GenericServer: servers of the common API that state little or nothing: KoboldCpp, TabbyAPI, SGLang, LocalAI, MLX."""

from __future__ import annotations

from typing import Any, Literal

from lmagent.testing.loopback import Received
from lmagent.testing.script import Script
from lmagent.testing.servers.base import DialectServer

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
