"""A reply that the engine wrote and could not parse is not lost."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from typing import Any

import pytest
from router_kit import HELLO, Model, calling_gguf, chunks, joined_calls, lab, tool
from testkit.engine import EngineServer

from lmagent.testing.loopback import LoopbackServer, Received, Response
from lmagent.testing.script import status
from lmagent.testing.wire import plain_response

UNPARSED = {"error": {"code": 500, "message": "The model produced output that does not match the expected x format"}}
TOOLS = [tool("read"), tool("ls")]


def direct(url: str, body: dict[str, Any]) -> tuple[int, Any]:
    connection = HTTPConnection(url.removeprefix("http://"))
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    answer = connection.getresponse()
    value = json.loads(answer.read())
    connection.close()
    return answer.status, value


@pytest.mark.engine
def test_on_the_real_engine_a_reply_of_broken_letters_is_had_all_the_same(tmp_path):
    for package in ("xllamacpp", "gguf"):
        pytest.importorskip(package, reason=f"the real engine was NOT tested: the package {package} is missing")
    model = calling_gguf(tmp_path / "raw.gguf", more_letters=[chr(code) for code in range(0xC4, 0x100)])
    with EngineServer(model, context=4096) as engine, lab(Model("tiny", engine.url)) as running:
        lost = []
        for seed in range(120):
            fields = {"messages": HELLO, "tools": TOOLS, "max_tokens": 40, "seed": seed}
            if direct(engine.url, fields)[0] == 500:
                lost.append(fields)
        assert lost, "the engine parsed all: this test needs another model"
        for fields in lost:
            code, answer, _ = running.ask("POST", "/v1/chat/completions", fields)
            assert code == 200
            choice = answer["choices"][0]
            assert choice["finish_reason"] in ("stop", "length", "tool_calls")
            assert answer["usage"]["completion_tokens"] > 0
            assert "<|im_end|>" not in choice["message"]["content"]
            events = chunks(running.ask("POST", "/v1/chat/completions", {**fields, "stream": True})[1])
            assert not any("error" in event for event in events)
            deltas = [choice["delta"] for event in events for choice in event["choices"]]
            streamed = "".join(delta.get("content") or "" for delta in deltas)
            assert streamed.strip() == choice["message"]["content"].strip()
        assert running.ask("GET", "/api/stats")[1]["recovered"] == 2 * len(lost)


class Engine:
    """An engine that parses nothing; `text` is what its model wrote."""

    def __init__(self, text: str, streamed: str = "") -> None:
        self.text = text
        self.streamed = streamed
        self.asked: list[tuple[str, Any]] = []

    async def __call__(self, received: Received) -> Response:
        self.asked.append((received.path, received.body))
        body = received.body
        if body.get("stream"):
            chunk = {"id": "c", "object": "chat.completion.chunk", "model": "m"}
            parts = [{**chunk, "choices": [{"index": 0, "delta": {"content": self.streamed}}]}, UNPARSED]
            data = b"".join(b"data: " + json.dumps(part).encode() + b"\n\n" for part in parts)
            return plain_response(status(200, data, {"Content-Type": "text/event-stream"}))
        if body.get("reasoning_format") != "none":
            return plain_response(status(500, UNPARSED))
        message = {"role": "assistant", "content": self.text}
        usage = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
        answer = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}
        return plain_response(status(200, {"object": "chat.completion", **answer}))


CALLED = 'Now.\n<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>'


def test_calls_in_such_a_reply_are_found_and_what_was_shown_is_not_shown_twice():
    engine = Engine(CALLED, streamed="Now")
    with LoopbackServer(engine) as server, lab(Model("m", server.url)) as running:
        _, answer, _ = running.chat(tools=TOOLS, max_tokens=50, temperature=0.3)
        message = answer["choices"][0]["message"]
        assert message["content"].strip() == "Now."
        assert message["tool_calls"][0]["function"] == {"name": "read", "arguments": '{"path":"a"}'}
        assert answer["choices"][0]["finish_reason"] == "tool_calls"
        first, again = (body for _, body in engine.asked)
        changed = {"tool_choice": "none", "reasoning_format": "none", "stream": False}
        assert again == {**first, **changed}
        assert first["seed"] >= 0
        _, text, _ = running.chat(tools=TOOLS, stream=True, stream_options={"include_usage": True})
    events = chunks(text)
    assert "".join(c["delta"].get("content") or "" for e in events for c in e["choices"]).strip() == "Now."
    assert joined_calls(events) == [("read", '{"path":"a"}')]
    assert events[-1]["usage"] == {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
    assert text.endswith("data: [DONE]\n\n")


def test_a_seed_of_the_clients_own_is_kept():
    engine = Engine("Plain.")
    with LoopbackServer(engine) as server, lab(Model("m", server.url)) as running:
        assert running.chat(seed=77)[1]["choices"][0]["message"]["content"] == "Plain."
    assert [body["seed"] for path, body in engine.asked if "seed" in body] == [77, 77]


def test_where_it_cannot_be_had_again_either_the_reason_is_told():
    async def broken(received: Received) -> Response:
        if received.body.get("reasoning_format") != "none":
            return plain_response(status(500, UNPARSED))
        return plain_response(status(400, {"error": {"message": "no template"}}))

    with LoopbackServer(broken) as server, lab(Model("m", server.url)) as running:
        code, answer, _ = running.chat()
    assert (code, answer["error"]["message"]) == (400, "no template")
