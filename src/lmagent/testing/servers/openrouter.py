"""OpenRouterServer: OpenRouter's API, which cuts the middle out of prompts for small models by default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lmagent.testing.faults import OverflowFault, overflow_openrouter
from lmagent.testing.loopback import Received
from lmagent.testing.script import Script
from lmagent.testing.servers.base import DialectServer

_PARAMETERS = ("max_tokens", "temperature", "tools", "tool_choice", "structured_outputs", "reasoning")


class OpenRouterServer(DialectServer):
    """OpenRouter's API, with its paths under `/api/v1`.

    Args:
        script: see `ScriptedServer`.
        window: the usual provider's window.
        maximum: the largest provider's window.
        parameters: request fields that the model's providers support.
        modalities: kinds of input.
        settings: see `DialectServer`.
    """

    def __init__(
        self,
        script: Script = (),
        *,
        window: int = 32_768,
        maximum: int = 131_072,
        parameters: Sequence[str] = _PARAMETERS,
        modalities: Sequence[str] = ("text",),
        **settings: Any,
    ) -> None:
        self._parameters, self._modalities = list(parameters), list(modalities)
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
            "architecture": {"input_modalities": self._modalities, "output_modalities": ["text"]},
            "pricing": {"prompt": "0.00000002", "completion": "0.0000001"},
            "top_provider": {"context_length": self.stated(self.window), "max_completion_tokens": 8192},
            "supported_parameters": self._parameters,
        }
        return {"data": [entry]}

    def _load(self, received: Received) -> None:
        super()._load(received)
        plugins: list[Any] = received.fields.get("plugins") or []
        asked = [plugin.get("enabled") is not False for plugin in plugins if plugin.get("id") == "context-compression"]
        cuts = any(asked) if asked else self.window <= 8192
        self._overflow = None if cuts else self._refusal
