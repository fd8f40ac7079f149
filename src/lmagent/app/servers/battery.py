"""Battery: examinations of a model server. The doctor shows the findings; the measurements become the model's profile.

Each examination is one or two short requests. None relies on the server's own description, except where asking costs
more than the answer is worth (embeddings).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from lmagent.app.kept import CALLS, NO_CALLS, READS, SCHEMA, VISION
from lmagent.core.errors import ContextOverflow, ProviderError
from lmagent.core.messages import Image, Message, Text, user
from lmagent.core.model import ModelReply, ModelRequest, ToolSpec
from lmagent.providers import jsontext
from lmagent.providers.dialects.base import ServerFacts
from lmagent.providers.served import Served

WINDOW = "window"

PROBE = ToolSpec(
    "report_word",
    "Report one word that the user asked for.",
    {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
)
NUMBER = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}

# Lines of the prompt on which the speed is measured: about 2,000 tokens, which fit the smallest window.
PROMPT_LINES = 80

# Tokens of the prompt that tests the window: more than 4,096, where most servers cut, but at most this share of it.
PROOF, SHARE = 6000, 0.7

# Least and most tokens of one line in known tokenizers; a server with another figure does not really count.
LEAST, MOST = 6.0, 50.0

SHORT = 0.75  # a prompt was cut if the server counts less than this share of the tokens expected from its first lines
PATIENCE = 120.0  # seconds that reading the prompt may take, by the measured speed; a slower machine skips the test
KEPT = 0.5  # a prompt sent twice is cached if at least this share of it comes from the cache, by count or by time

# Some servers say with a 500 that the model takes no images.
_NO_IMAGES = re.compile(
    r"images?\b.{0,60}\bnot (be )?(supported|accepted|allowed)|(not|n't) (support|accept)\w* .{0,40}\bimage|mmproj",
    re.IGNORECASE | re.DOTALL,
)

# A PNG of 32 × 32 pixels.
_RED_SQUARE = (
    "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAIAAAD8GO2jAAAAJ0lEQVR42u3NsQkAAAjAsP"
    "7/tF7hIASyp6lTCQQCgUAgEAgEgi/BAjLD/C5w/SM9AAAAAElFTkSuQmCC"
)


class Finding(Struct, frozen=True):
    name: str
    state: Literal["ok", "warning", "fault"]
    text: str
    fix: str = ""


class Battery:
    """Examines one model; `assumed` is the window if the server states none."""

    def __init__(self, served: Served, model: str, assumed: int) -> None:
        self._served = served
        self._model = model
        self._assumed = assumed
        self._line_tokens = 0.0
        self._reading = 0.0
        self.measured: dict[str, Any] = {}  # the model's profile, without values that could not be examined

    async def run(self) -> AsyncIterator[Finding]:
        """Yield the findings as they come; only the first one and a fault if the model answers no question at all."""
        facts = await self._served.facts(self._model, deep=True)
        yield self._server(facts)
        try:
            await self._ask("Say OK.", 16)
        except ProviderError as failure:
            yield Finding("chat", "fault", f"the model does not answer: {failure.message}", failure.typed)
            return
        for name, examine in (
            (CALLS, self._calls),
            (SCHEMA, self._schema),
            (VISION, self._vision),
            ("speed", self._speed),
            (WINDOW, self._window),
        ):
            try:
                yield await examine()
            except ProviderError as failure:
                yield Finding(name, "warning", f"could not be examined: {failure.message}", failure.typed)
        names = ", ".join(model.id for model in facts.models if model.embeddings)
        yield Finding("embeddings", "ok", names or "the server lists no model for embeddings")

    def _server(self, facts: ServerFacts) -> Finding:
        name = f"{facts.label or 'not one that is known'} {facts.version}".strip()
        slots = f", {facts.slots} request{'s' * (facts.slots > 1)} at a time" if facts.slots else ""
        model = facts.model
        about = " ".join(filter(None, (model.size, model.quant))) if model else ""
        return Finding("server is", "ok", f"{name}{slots}{f'; the model is {about}' if about else ''}")

    async def _window(self) -> Finding:
        """Return the stated window, once the model is loaded; or the window that a long prompt shows to be served."""
        facts, window = await self._served.facts(self._model, deep=True), await self._served.window(self._model)
        if (tried := await self._tried(window)) is not None:
            return tried
        self.measured[WINDOW] = window
        model = facts.model
        proof = "asked for with each request" if facts.native_chat else model.proof if model else "none"
        most = f"; the model was made for {model.maximum:,}" if model and model.maximum else ""
        if window is None:
            fix = "set LMAGENT_CONTEXT_WINDOW to the window that the model is loaded with"
            return Finding(WINDOW, "warning", f"the server does not say; {self._assumed:,} is assumed{most}", fix)
        if window < 8192:
            fix = "load the model with a larger context: 16,384 or more is comfortable"
            return Finding(WINDOW, "warning", f"{window:,} tokens are served, which is small{most}", fix)
        return Finding(WINDOW, "ok", f"{window:,} tokens are served ({proof}){most}")

    async def _tried(self, window: int | None) -> Finding | None:
        """Return the finding of a prompt longer than most windows; None if it was read, or cannot be tried."""
        size = min(PROOF, int(SHARE * (window or self._assumed)))
        if not LEAST <= self._line_tokens <= MOST or size > PATIENCE * self._reading:
            return None
        served, how = 0, "cut without a word"
        try:
            reply = await self._ask(f"{_lines(int(size / self._line_tokens))}\nSay OK.", 32)
            served = reply.usage.prompt_tokens
            if reply.usage.estimated or served >= SHORT * size:
                return None
        except ContextOverflow as overflow:
            served, how = overflow.window, how if overflow.silent else "refused"
        except ProviderError:
            return None  # no other figure than the stated one is known
        self.measured[WINDOW] = served
        said = f"{window:,} tokens are stated" if window else f"no window is stated and {self._assumed:,} is assumed"
        least = f"; {served:,} are served" if served else ""
        fix = "load the model with a larger context, or set LMAGENT_CONTEXT_WINDOW to the served size"
        return Finding(WINDOW, "warning", f"{said}, but a prompt of {size:,} was {how}{least}", fix)

    async def _calls(self) -> Finding:
        reply = await self._ask('Call report_word with the word "hello".', 600, tools=(PROBE,))
        if not any(call.name == PROBE.name for call in reply.message.tool_calls):
            self.measured[CALLS] = NO_CALLS
            fix = "use an instruct model that is trained for tool calls; its calls are constrained where possible"
            return Finding("tool calls", "warning", "asked for a tool call, the model answered in text", fix)
        self.measured[CALLS] = how = f"as text ({reply.text_format})" if reply.text_format else "structured"
        usage = "estimated by us" if reply.usage.estimated else "reported"
        took = f"the model called a tool in {reply.total_s:.1f} s, {how}; token counts are {usage}"
        return Finding("tool calls", "ok", took)

    async def _schema(self) -> Finding:
        """Ask for no JSON: only an enforced schema gets it."""
        reply = await self._ask("Write a short poem.", 200, response_schema=NUMBER, temperature=1.0)
        try:
            value = jsontext.loads(reply.message.text.encode("utf-8", "surrogatepass"))
        except ValueError:
            value = None
        enforced = isinstance(value, dict) and isinstance(cast("dict[str, Any]", value).get("number"), int)
        self.measured[SCHEMA] = enforced
        if enforced:
            return Finding("JSON schema", "ok", "enforced: calls can be constrained")
        return Finding("JSON schema", "warning", "not enforced: a model that fails to call cannot be helped by it")

    async def _vision(self) -> Finding:
        text, sees, model = "the model takes no images", False, (await self._served.facts(self._model)).model
        if model is None or model.vision is not False:
            picture = (Text("What colour is this? One word."), Image("image/png", _RED_SQUARE))
            try:
                reply = await self._ask("", 300, messages=(Message("user", picture),))
                sees = "red" in reply.message.text.lower()
                text = "the model sees: it named the colour of a picture" if sees else "it takes a picture, unseen"
            except ProviderError as failure:
                if not _is_refusal(failure) and not _NO_IMAGES.search(failure.message):
                    raise
        self.measured[VISION] = sees
        return Finding("vision", "ok", text)

    async def _speed(self) -> Finding:
        asked = f"{_lines(PROMPT_LINES)}\nSay OK."
        first, again = await self._ask(asked, 32), await self._ask(asked, 32)
        self._reading = reading = first.usage.prompt_tokens / max(first.first_token_s, 1e-6)
        self._line_tokens = 0.0 if first.usage.estimated else first.usage.prompt_tokens / PROMPT_LINES
        writing = first.usage.completion_tokens / max(first.total_s - first.first_token_s, 1e-6)
        counted = again.usage.cached_tokens >= KEPT * again.usage.prompt_tokens
        kept = counted or again.first_token_s < (1 - KEPT) * first.first_token_s
        self.measured[READS] = round(reading, 1)
        speed = f"prompt {reading:,.0f} tokens/s, generation {writing:,.0f} tokens/s"
        if kept:
            return Finding("speed", "ok", f"{speed}, the prompt cache works")
        fix = "switch on prompt caching in the server, or give it a slot for each conversation"
        return Finding("speed", "warning", f"{speed}, no prompt cache: each prompt is read from its beginning", fix)

    async def _ask(self, text: str, max_tokens: int, **more: Any) -> ModelReply:
        request = ModelRequest(
            self._model, "You do exactly what you are asked to do.", (), (user(text),), temperature=0.0
        )
        reply: ModelReply | None = None
        events = self._served.stream(replace(request, max_tokens=max_tokens, **more))
        async with aclosing(cast("Any", events)) as coming:
            async for event in coming:
                if isinstance(event, ModelReply):
                    reply = event
        if reply is None:
            raise ProviderError("the stream ended without a reply")
        return reply


def _lines(count: int) -> str:
    """Return lines that no cache has, each of about as many tokens."""
    return "\n".join(f"{number}: {secrets.token_hex(16)}" for number in range(count))


def _is_refusal(failure: ProviderError) -> bool:
    """Return whether a server that works refused this request: a plain 4xx."""
    return type(failure) is ProviderError and not failure.retryable
