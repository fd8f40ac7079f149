"""vLLM: `max_model_len` in the list of models is the tokens of one request, prompt and reply together.

A request whose prompt and `max_tokens` exceed it together is refused, where other servers would write less. It counts
tokens (`POST /tokenize`, outside `/v1`, without the key). Prompt tokens from the cache are reported only if it was
started with `--enable-prompt-tokens-details`. The number of requests served at a time is not stated, and none is
favoured.
"""

from __future__ import annotations

from typing import Any

from lmagent.core.model import ModelRequest
from lmagent.providers.dialects.ask import Ask
from lmagent.providers.dialects.base import Dialect, ModelFacts, Seen, ServerFacts, chosen
from lmagent.providers.dialects.fields import number, text, window
from lmagent.providers.encode import chat_body


class VLLM(Dialect):
    routes = ("/version",)

    def claims(self, seen: Seen) -> bool:
        """Recognise it by the owner of its models; with another owner, by window and version together."""
        if any(text(entry, "owned_by") == "vllm" for entry in seen.listed):
            return True
        stated = any("max_model_len" in entry and "permission" in entry for entry in seen.listed)
        return stated and bool(text(seen.answers.get("/version"), "version"))

    async def read(self, seen: Seen, ask: Ask, model: str) -> ServerFacts:
        models = tuple(map(_facts, seen.listed))
        asked = chosen(models, model)
        return self.facts(models, asked, version=text(seen.answers.get("/version"), "version"), tokenizer=True)

    async def count(self, ask: Ask, request: ModelRequest) -> int | None:
        """Count by `POST /tokenize`, which takes a conversation with its tools."""
        body = {"model": request.model, "add_generation_prompt": True} | chat_body(request)
        return number(await ask.post("/tokenize", body), "count")


def _facts(entry: dict[str, Any]) -> ModelFacts:
    """Read an entry of the list: the server has one model, which is in memory as long as the server runs."""
    return ModelFacts(id=text(entry, "id"), loaded=True, served=window(entry, "max_model_len"))
