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
from lmagent.providers.dialects.base import ModelFacts, RequestOptions, Seen, ServerFacts, chosen, response_format
from lmagent.providers.dialects.fields import entries, number, text, version, window
from lmagent.providers.dialects.wirebody import chat_body

_STRUCTURED = (0, 11)
"""From this version on `structured_outputs` replaces `guided_*`, which later versions refuse."""


class VLLM:
    name = "vllm"
    label = "vLLM"
    routes = ("/version",)

    def claims(self, seen: Seen) -> bool:
        """Recognise it by the owner of its models; with another owner, by window and version together."""
        listed = entries(seen.listing, "data")
        if any(text(entry, "owned_by") == "vllm" for entry in listed):
            return True
        stated = any("max_model_len" in entry and "permission" in entry for entry in listed)
        return stated and bool(text(seen.answers.get("/version"), "version"))

    async def read(self, seen: Seen, ask: Ask, model: str) -> ServerFacts:
        models = tuple(_facts(entry) for entry in entries(seen.listing, "data") if text(entry, "id"))
        return ServerFacts(
            dialect=self.name,
            label=self.label,
            root=seen.root,
            version=text(seen.answers.get("/version"), "version"),
            reached=True,
            model=chosen(models, model) or (models[0] if models and not model else None),
            models=models,
            usage=True,
            json_schema=True,
            grammar=True,
            tokenizer=True,
            cuts=False,
            sums=True,
        )

    def extras(self, request: ModelRequest, facts: ServerFacts, options: RequestOptions) -> dict[str, Any]:
        """Send a schema as `response_format`, which all versions take; a grammar by the version."""
        fields: dict[str, Any] = {}
        if options.schema is not None:
            fields["response_format"] = response_format(options.schema)
        elif options.grammar:
            known = version(facts.version)
            old = bool(known) and known < _STRUCTURED
            fields |= (
                {"guided_grammar": options.grammar} if old else {"structured_outputs": {"grammar": options.grammar}}
            )
        if isinstance(options.think, bool):
            fields["chat_template_kwargs"] = {"enable_thinking": options.think}
        elif options.think:
            fields["reasoning_effort"] = options.think
        return fields

    async def count(self, ask: Ask, facts: ServerFacts, subject: str | ModelRequest, model: str) -> int | None:
        """Count by `POST /tokenize`, which takes a text or a conversation with its tools."""
        name = model or (facts.model.id if facts.model else "")
        if isinstance(subject, str):
            body: dict[str, Any] = {"model": name, "prompt": subject, "add_special_tokens": False}
        else:
            body = {"model": name, "add_generation_prompt": True} | chat_body(subject)
        return number(await ask.post("/tokenize", body), "count")


def _facts(entry: dict[str, Any]) -> ModelFacts:
    served = window(entry, "max_model_len")
    return ModelFacts(
        id=text(entry, "id"), loaded=True, window=served, proof="loaded" if served else "none"
    )  # a server of one model, which is in memory as long as the server runs
