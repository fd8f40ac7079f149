"""A reply that does not end is cut off, and its connection closed; a long one that ends is left alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from provider_loopback import Answer, Run, TestClock, ask, delta, loopback, request, sse

from lmagent.core.messages import CUT_OFF, ToolCall
from lmagent.core.model import ModelReply
from lmagent.providers.dialects.base import ModelFacts
from lmagent.providers.dialects.ollama_chat import OllamaChat
from lmagent.providers.meters import LONGEST_CYCLE, REPEATED, repeats
from lmagent.providers.openai_chat import OpenAIChat
from lmagent.providers.retry import RetryPolicy
from lmagent.providers.transport import HttpTransport

ONCE = RetryPolicy(tries=1)


def fragment(arguments: str, **more: Any) -> dict[str, Any]:
    return delta(tool_calls=[{"index": 0, "function": {"name": "read", "arguments": arguments}, **more}])


class Writing:
    """Pieces of a body without end; `stopped` once the server could send no more of them."""

    def __init__(self, pieces: Iterator[dict[str, Any]], *, lines: bool = False) -> None:
        self.pieces, self.lines, self.stopped = pieces, lines, anyio.Event()

    def __iter__(self) -> Iterator[bytes | float]:
        try:
            for piece in self.pieces:
                yield json.dumps(piece).encode() + b"\n" if self.lines else sse(piece, done=False)
                yield 0.0
        finally:
            self.stopped.set()


def circle(piece: dict[str, Any]) -> Iterator[dict[str, Any]]:
    while True:
        yield piece


def counting(make: Any) -> Iterator[dict[str, Any]]:
    number = 0
    while True:
        number += 1
        yield make(f"{number} sheep, ")


STREAMS: dict[str, Any] = {
    "text in a circle": lambda: circle(delta(content="and so on, ")),
    "thought in a circle": lambda: circle(delta(reasoning_content="Wait, let me think again. ")),
    "arguments in a circle": lambda: circle(fragment("0, 0, ")),
    "calls in a circle": lambda: circle(fragment("{}", id="c")),
    "text beyond the bound": lambda: counting(lambda text: delta(content=text)),
    "thought beyond the bound": lambda: counting(lambda text: delta(reasoning=text)),
    "arguments beyond the bound": lambda: counting(fragment),
    "calls beyond the bound": lambda: counting(lambda text: fragment("{}", id=text, index=len(text))),
}


def stream(pieces: Iterator[dict[str, Any]], *, ollama: bool = False) -> ModelReply:
    """The reply of a server that writes these pieces, once the server has noticed that nobody reads them any more."""

    async def go() -> ModelReply:
        writing = Writing(pieces, lines=ollama)
        async with loopback(Answer(writing)) as server:  # type: ignore[arg-type]
            transport, clock = HttpTransport({}), TestClock()
            facts = ModelFacts(id="m", maximum=40_960)
            if ollama:
                chat: OpenAIChat = OllamaChat(
                    server.url, facts=facts, window=8192, transport=transport, clock=clock, retries=ONCE
                )
            else:
                chat = OpenAIChat(server.url, transport=transport, clock=clock, retries=ONCE)
            with anyio.fail_after(20):
                events = [event async for event in chat.stream(request(longest=20_000))]
                await writing.stopped.wait()
            await chat.aclose()
        assert isinstance(events[-1], ModelReply)
        return events[-1]

    return anyio.run(go)


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_without_end_is_cut_off_and_its_connection_closed(name: str) -> None:
    reply = stream(STREAMS[name]())
    assert reply.finish_reason == "endless"
    assert reply.message.text.endswith(CUT_OFF)
    assert len(reply.message.text) < 1000, "what is kept is only how it began"
    assert reply.message.tool_calls == (), "nothing in it is carried out"


@pytest.mark.parametrize("field", ["content", "thinking"])
def test_the_same_on_ollamas_own_route(field: str) -> None:
    reply = stream(
        circle({"model": "m", "message": {"role": "assistant", field: "again "}, "done": False}), ollama=True
    )
    assert reply.finish_reason == "endless"


def ended(*pieces: dict[str, Any], **fields: Any) -> Run:
    return ask(Answer([sse(*pieces)]), asked=request(**fields), retries=ONCE)


def test_a_long_reply_that_ends_is_whole() -> None:
    text = " ".join(str(number) for number in range(15_000))
    run = ended(delta(content=text), delta("stop"), longest=100_000)
    assert (run.reply.finish_reason, run.reply.message.text) == ("stop", text)


def test_a_file_of_a_thousand_equal_lines_is_written() -> None:
    arguments = json.dumps({"path": "a.txt", "content": "0,0,0,0,0\n" * 1000})
    pieces = [fragment(arguments[at : at + 20]) for at in range(0, len(arguments), 20)]
    run = ended(*pieces, delta("tool_calls"), longest=50_000)
    (call,) = run.reply.message.tool_calls
    assert isinstance(call, ToolCall)
    assert call.arguments == arguments


@pytest.mark.parametrize("size", [1, 7, 500, LONGEST_CYCLE - 1, LONGEST_CYCLE])
def test_a_piece_of_any_size_up_to_the_longest_is_recognised(size: int) -> None:
    piece = "".join(chr(32 + number % 90) + ("" if number % 7 else "x") for number in range(size))[:size]
    text = piece * (REPEATED // size + 2)
    assert repeats(text[-REPEATED:])
    assert not repeats(text[-REPEATED:-1] + "¶"), "the circle was left with the last character"
    assert not repeats("¶" + text[1 - REPEATED :]), "the circle has only just begun"


def test_counting_is_no_circle() -> None:
    assert not repeats("".join(f"{number} sheep, " for number in range(10_000))[-REPEATED:])
