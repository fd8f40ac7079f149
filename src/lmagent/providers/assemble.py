"""Assemble: folds the chunks of a stream, or one whole completion, into live events and the reply.

It accepts many variants: content as text or parts; thoughts as `reasoning_content`, `reasoning`, `thinking` or tags;
`message` for `delta`; calls in any numbering (`calls.py`); usage anywhere or nowhere; finish reasons missing or wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from lmagent.core.errors import BadReply
from lmagent.core.messages import CUT_OFF, Message, Text, Thinking, ToolCall
from lmagent.core.model import FinishReason, ModelEvent, ModelReply, TextChunk, ThinkingChunk, ToolSpec, Usage
from lmagent.providers import jsontext
from lmagent.providers.calls import CallAssembler, alongside
from lmagent.providers.concealed import hidden
from lmagent.providers.meters import EndlessMeter, PrefillEta, complete_usage, read_usage
from lmagent.providers.transport import ErrorChunk

if TYPE_CHECKING:
    from lmagent.providers.formats.base import FoundCall
    from lmagent.providers.textcalls import ParsedText, Piece, TextCallParser

MAX_REPLY = 8_000_000
"""Characters of text, thought and calls beyond which a reply counts as endless (about two million tokens)."""

BEGINNING = 500
"""Characters that are kept of the text and of the thought of an endless reply."""

_THOUGHT_KEYS = ("reasoning_content", "reasoning", "thinking")
_FINISH: dict[FinishReason, tuple[str, ...]] = {
    "stop": ("", "stop", "eos", "eos_token", "end_turn", "stop_sequence"),
    "tool_calls": ("tool_calls", "tool_use", "function_call"),
    "length": ("length", "max_tokens", "model_length"),
    "content_filter": ("content_filter",),
}
"""The servers' words for each reason."""
_decode = msgspec.json.Decoder().decode


class Assembler:
    """Folds one reply.

    Args:
        tools: the callable tools, also for calls in text that the server did not recognise.
        known: the tools of the request if calls in text do not count; otherwise as `tools`.
        longest: see `ModelRequest.longest`.

    Attributes:
        done: `[DONE]` was read.
        finish: the finish reason as the server gave it; empty for none.
        usage: token counts; None until the server gives some.
        chunks: how many chunks of a completion were read.
        spoke: whether the last of them brought text, thought or calls.
    """

    def __init__(
        self,
        elapsed: Callable[[], float] = lambda: 0.0,
        tools: Sequence[ToolSpec] = (),
        known: Sequence[ToolSpec] | None = None,
        server: str = "the model server",
        longest: int = 0,
    ) -> None:
        self.done = False
        self.server = server
        self.finish = ""
        self.usage: Usage | None = None
        self.chunks = 0
        self.spoke = False
        self._closed = False
        self._failure: ErrorChunk | BadReply | None = None
        self._model = ""
        self._content: list[str] = []
        self._content_size = 0
        self._thought: list[str] = []
        self._kind: Literal["text", "thinking"] = "text"
        self._fresh: list[str] = []
        self._meter = EndlessMeter(min(longest or MAX_REPLY, MAX_REPLY))
        self._deltas = False
        self._odd = False
        self._calls = CallAssembler(tools if known is None else known)
        self._tools = tools
        self._reader: TextCallParser | None = None
        self._parsed: ParsedText | None = None
        self._eta = PrefillEta()
        self._elapsed = elapsed

    @property
    def started(self) -> bool:
        return bool(self._content or self._thought or self._calls)

    @property
    def ended(self) -> bool:
        """Whether the server has marked the reply as complete, in any way."""
        return bool(self.done or self.finish or self._closed)

    @property
    def endless(self) -> bool:
        """Whether the reply does not end and is to be cut off here."""
        return (self._meter.endless or self._calls.size > MAX_REPLY) and not self.ended

    def feed(self, *payloads: bytes) -> list[ModelEvent]:
        """Take payloads that came together and return their visible events: text of the same kind in one event.

        Raises:
            ErrorChunk: the first is an error report; a later one is kept for `check`.
            BadReply: the first is not JSON; likewise.
        """
        events: list[ModelEvent] = []
        try:
            for payload in payloads:
                self._read(payload, events)
        except (ErrorChunk, BadReply) as failure:
            self._show_news(events)
            if not events:
                raise
            self._failure = failure
        self._show_news(events)
        return events

    def check(self) -> None:
        """Raise the error that `feed` found after visible content."""
        if self._failure is not None:
            raise self._failure

    def _read(self, payload: bytes, events: list[ModelEvent]) -> None:
        try:
            chunk = _decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._read_odd(payload, events)
        else:
            self._take(chunk, events)

    def flush(self) -> list[ModelEvent]:
        """Return the text and thoughts that were held back as possible markup."""
        events: list[ModelEvent] = []
        if self._reader is not None:
            self._parsed = self._reader.finish()
            self._show("thinking", self._reader.rest_of_thought, events)
            self._show("text", self._reader.rest, events)
        return events

    def reply(self, *, taken: Collection[str], prompt_bytes: int, first_token_s: float, total_s: float) -> ModelReply:
        """Return the whole reply; `taken` are call ids used earlier, and `prompt_bytes` replaces a missing count."""
        named = cast("FinishReason", next((each for each in _FINISH if self.finish.lower() in _FINISH[each]), "other"))
        if self.endless:
            return self._cut_off(prompt_bytes, first_token_s, total_s)
        text, tagged, found = self._called(taken, cut=named == "length")
        thought = "\n".join(filter(None, ("".join(self._thought).strip(), tagged)))
        calls = [call.tool_call() for call in found]
        finish: FinishReason = named
        if calls and named in ("stop", "other"):
            finish = "tool_calls"
        elif not calls and named == "tool_calls":
            finish = "stop"
        size = len(text) + len(thought) + sum(len(call.name) + len(call.arguments) for call in calls)
        return ModelReply(
            message=_message(thought, text, calls),
            finish_reason=finish,
            usage=complete_usage(self.usage, prompt_bytes, size),
            model=self._model,
            truncated_calls=frozenset(call.id for call in found if call.truncated),
            text_format=next((call.format for call in found if call.format), ""),
            first_token_s=first_token_s,
            total_s=total_s,
        )

    def _cut_off(self, prompt_bytes: int, first_token_s: float, total_s: float) -> ModelReply:
        """Return the beginning of an endless reply. It has no calls: one that is cut off never runs."""
        parsed = self._parse(calls=False)
        thought = f"{''.join(self._thought)}{parsed.thinking}"[:BEGINNING]
        return ModelReply(
            message=_message(thought.strip(), f"{parsed.content[:BEGINNING].strip()}\n{CUT_OFF}".strip()),
            finish_reason="endless",
            usage=complete_usage(self.usage, prompt_bytes, self._meter.size),
            model=self._model,
            first_token_s=first_token_s,
            total_s=total_s,
        )

    def _parse(self, *, calls: bool) -> ParsedText:
        from lmagent.providers.textcalls import ParsedText, parse_text

        return parse_text("".join(self._content), self._tools, calls=calls) if self._content else ParsedText("")

    def _called(self, taken: Collection[str], *, cut: bool) -> tuple[str, str, list[FoundCall]]:
        """Return the text, its thoughts, and the calls: those that the server recognised, and others."""
        # A whole message is complete whatever its finish reason; a stream may have been cut.
        finished = bool(self.finish) or not self._deltas
        understood = self._calls.finish(taken, cut=cut, finished=finished)
        parsed = self._parsed or self._parse(calls=bool(self._tools))
        if not parsed.calls and parsed.cut is None:
            return parsed.content, parsed.thinking, understood
        from lmagent.providers.textcalls import find_calls

        text = "".join(self._content)
        found = find_calls(text, self._tools, cut=cut, parsed=parsed)
        both = alongside(understood, found.calls, text) if understood else list(found.calls)
        if both is not None:
            return found.content, found.thinking, both
        plain = self._parse(calls=False)
        return plain.content, plain.thinking, understood

    def _read_odd(self, payload: bytes, events: list[ModelEvent]) -> None:
        """Read `[DONE]`, several chunks in one event, or JSON with flaws in its strings."""
        if not payload.strip():
            return
        if payload.strip() == b"[DONE]":
            self.done = True
            return
        try:
            chunk = jsontext.loads(payload)
        except ValueError:
            lines = [line for line in payload.splitlines() if line.strip()]
            if len(lines) < 2:
                said = payload[:200].decode("utf-8", "replace")
                raise BadReply(
                    f"the stream of {self.server} holds something that is not JSON: {hidden(said)!r}",
                    fix="look at the server's log, and whether a proxy is in between",
                ) from None
            for line in lines:
                self._read(line.removeprefix(b"data:").strip(), events)
            return
        self._odd = True
        self._take(chunk, events)

    def _take(self, chunk: Any, events: list[ModelEvent]) -> None:
        if isinstance(chunk, list):
            for item in cast("list[Any]", chunk):
                self._take(item, events)
            return
        if not isinstance(chunk, dict):
            return
        known = cast("dict[str, Any]", chunk)
        choices = known.get("choices")
        if known.get("error") or known.get("object") == "error" or (choices is None and known.get("detail")):
            raise ErrorChunk(known)
        self.chunks += "choices" in known
        if not self._model and isinstance(known.get("model"), str):
            self._model = known["model"]
        if known.get("usage") or "timings" in known:
            self.usage = read_usage(known) or self.usage
            self._closed = self._closed or (self.started and not choices)
        if "prompt_progress" in known:
            self._show_news(events)
            events.append(self._eta.read(known["prompt_progress"], self._elapsed()))
        if choices and isinstance(choices, list) and isinstance(choices[0], dict):
            self._choice(cast("dict[str, Any]", choices[0]), events)

    def _choice(self, choice: dict[str, Any], events: list[ModelEvent]) -> None:
        delta, message = choice.get("delta"), choice.get("message")
        self.spoke = False
        if delta and isinstance(delta, dict):
            self._delta(cast("dict[str, Any]", delta), events)
            self._deltas = True
        elif message and isinstance(message, dict):
            self._delta(self._news(cast("dict[str, Any]", message)), events)
        finish = choice.get("finish_reason")
        if finish and isinstance(finish, str):
            if finish == "error":
                raise ErrorChunk(choice.get("error") or "the server ended the reply with an error")
            self.finish = finish

    def _delta(self, delta: dict[str, Any], events: list[ModelEvent]) -> None:
        for key in _THOUGHT_KEYS:
            if thought := delta.get(key):
                self._think(_plain(thought), events)
                break
        content = delta.get("content") or delta.get("refusal")
        self.spoke = bool(content)
        if content:
            if isinstance(content, str):
                self._say(content, events)
            else:
                self._parts(content, events)
        if calls := delta.get("tool_calls"):
            self._meter.add(self._calls.feed(calls, self._content_size))
            self.spoke = True
        if call := delta.get("function_call"):
            self._meter.add(self._calls.feed([{"function": call}], self._content_size))

    def _news(self, message: dict[str, Any]) -> dict[str, Any]:
        news = dict(message)
        content, known = _plain(message.get("content")), "".join(self._content)
        if content.startswith(known):
            news["content"] = content[len(known) :] if known else message.get("content")
        elif self._deltas:
            news["content"] = None
        if self._deltas and self._thought:
            for key in _THOUGHT_KEYS:
                news.pop(key, None)
        if self._deltas and self._calls:
            news.pop("tool_calls", None)
            news.pop("function_call", None)
        return news

    def _parts(self, content: Any, events: list[ModelEvent]) -> None:
        for part in cast("list[Any]", content if isinstance(content, list) else [content]):
            kind = cast("dict[str, Any]", part).get("type", "text") if isinstance(part, dict) else "text"
            if kind in ("thinking", "reasoning"):
                self._think(_plain(part), events)
            elif text := _plain(part):
                self._say(text, events)

    def _say(self, text: str, events: list[ModelEvent]) -> None:
        self._content.append(text)
        self._content_size += len(text)
        self._add("text", text, events)

    def _think(self, text: str, events: list[ModelEvent]) -> None:
        if text:
            self._thought.append(text)
            self._add("thinking", text, events)

    def _add(self, kind: Literal["text", "thinking"], text: str, events: list[ModelEvent]) -> None:
        self._meter.add(text)
        if kind != self._kind:
            self._show_news(events)
            self._kind = kind
        self._fresh.append(text)

    def _show_news(self, events: list[ModelEvent]) -> None:
        """Show the latest text or thought: only one of the two exists."""
        if self._fresh:
            text = "".join(self._fresh)
            self._fresh.clear()
            for kind, piece in [(self._kind, text)] if self._kind == "thinking" else self._read_text(text):
                self._show(kind, piece, events)

    def _show(self, kind: str, text: str, events: list[ModelEvent]) -> None:
        if text:
            shown = jsontext.mend(text) if self._odd else text
            events.append(TextChunk(shown) if kind == "text" else ThinkingChunk(shown))

    def _read_text(self, text: str) -> list[Piece]:
        if self._reader is None:
            # loaded with the first text, when no request waits for it
            from lmagent.providers.textcalls import TextCallParser

            self._reader = TextCallParser(self._tools, calls=bool(self._tools))
        return self._reader.read(text)


def _message(thought: str, text: str, calls: Sequence[ToolCall] = ()) -> Message:
    thoughts = (Thinking(jsontext.mend(thought)),) if thought else ()
    texts = (Text(jsontext.mend(text)),) if text.strip() else ()
    return Message("assistant", (*thoughts, *texts, *calls))


def _plain(content: Any) -> str:
    """Return the text in content of any shape: text, a part, or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_plain(part) for part in cast("list[Any]", content))
    if isinstance(content, dict):
        part = cast("dict[str, Any]", content)
        for key in ("text", "thinking", "reasoning", "content", "summary"):
            if part.get(key):
                return _plain(part[key])
    return ""
