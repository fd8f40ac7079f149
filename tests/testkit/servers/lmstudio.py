"""LMStudioServer: LM Studio's server, which loads models on demand with a window that it states only afterwards."""

from __future__ import annotations

from typing import Any

from lmagent.testing.faults import overflow_lmstudio
from lmagent.testing.loopback import Received
from lmagent.testing.script import Script, status
from testkit.servers.base import HONEST, DialectServer


class LMStudioServer(DialectServer):
    """LM Studio's server.

    Args:
        script: see `ScriptedServer`.
        loaded: the model is in memory from the start.
        parallel: requests served at the same time; the window is not divided by them.
        versions: the REST APIs that it has: 0.3.6 has only `v0`, 0.4 has both.
        vision: it takes images.
        thinks: it can think.
        settings: see `DialectServer`.
    """

    owner = "organization_owner"

    def __init__(
        self,
        script: Script = (),
        *,
        loaded: bool = True,
        parallel: int = 4,
        versions: tuple[str, ...] = ("v1", "v0"),
        vision: bool = False,
        thinks: bool = True,
        **settings: Any,
    ) -> None:
        self._parallel, self._vision, self._thinks = parallel, vision, thinks
        unknown = status(200, {"error": "Unexpected endpoint or method. (GET /props). Returning 200 anyway"})
        preset: dict[str, Any] = {"model": "qwen/qwen3-8b", "overflow": overflow_lmstudio}
        if not settings.get("lies", HONEST).html:
            preset["unknown"] = unknown
        super().__init__(script, **(preset | settings))
        self.loaded = loaded
        if "v1" in versions:
            self.get("/api/v1/models", self._new)
            self.post("/api/v1/models/load", self._load_model)
            self.post("/api/v1/models/unload", self._unload_model)
        if "v0" in versions:
            self.get("/api/v0/models", self._old)

    def listing(self) -> Any:
        names = (self.model, "text-embedding-nomic-embed-text-v1.5")
        return {"object": "list", "data": [{"id": name, "object": "model", "owned_by": self.owner} for name in names]}

    def _new(self, received: Received) -> Any:
        config = {"context_length": self.stated(self.window), "parallel": self._parallel, "flash_attention": True}
        capabilities: dict[str, Any] = {"vision": self._vision, "trained_for_tool_use": True}
        if self._thinks:
            capabilities["reasoning"] = {"allowed_options": ["off", "on"], "default": "on"}
        model: dict[str, Any] = {
            "type": "llm",
            "publisher": "qwen",
            "key": self.model,
            "architecture": "qwen3",
            "quantization": {"name": "Q4_K_M", "bits_per_weight": 4},
            "size_bytes": 5_027_783_872,
            "params_string": "8B",
            "loaded_instances": [{"id": self.model, "config": config}] if self.loaded else [],
            "max_context_length": self.maximum,
            "format": "gguf",
            "capabilities": capabilities,
        }
        embedding: dict[str, Any] = {
            "type": "embedding",
            "key": "text-embedding-nomic-embed-text-v1.5",
            "loaded_instances": [],
            "max_context_length": 2048,
        }
        return {"models": [model, embedding]}

    def _load_model(self, received: Received) -> Any:
        if received.fields.get("model") != self.model:
            return status(404, {"error": {"message": "Model not found", "type": "model_not_found"}})
        self.loaded = True
        return {"type": "llm", "instance_id": self.model, "load_time_seconds": 1.5, "status": "loaded"}

    def _unload_model(self, received: Received) -> Any:
        if received.fields.get("instance_id") != self.model or not self.loaded:
            return status(404, {"error": {"message": "No loaded instance has this identifier", "type": "not_found"}})
        self.loaded = False
        return {"instance_id": self.model}

    def _old(self, received: Received) -> Any:
        model: dict[str, Any] = {
            "id": self.model,
            "object": "model",
            "type": "vlm" if self._vision else "llm",
            "arch": "qwen3",
            "compatibility_type": "gguf",
            "quantization": "Q4_K_M",
            "state": "loaded" if self.loaded else "not-loaded",
            "max_context_length": self.maximum,
            "capabilities": ["tool_use"],
        }
        if self.loaded:
            model["loaded_context_length"] = self.stated(self.window)
        return {"object": "list", "data": [model]}
