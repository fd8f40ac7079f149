# ruff: noqa: E501  (tables of raw answers read best one to a line)
"""Every quirk of a stream, as raw bytes over real HTTP, cut at awkward places."""

from __future__ import annotations

import json
from typing import Any

import pytest
from provider_loopback import Answer, ask, call, cut_every, delta, request, sse

from lmagent.core.messages import Message, ToolCall, assistant
from lmagent.core.model import ModelReply

A, B = '{"path":"a"}', '{"path":"b"}'
USAGE = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 64}}


def calls(*entries: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return delta(finish, tool_calls=list(entries))


Expected = dict[str, Any]
QUIRKS: dict[str, tuple[bytes, Expected]] = {
    "plain text": (sse(delta(role="assistant"), delta(content="Hel"), delta(content="lo"), delta("stop")), {"text": "Hello"}),
    "no blank behind data:": (
        sse(delta(content="Hello"), delta("stop")).replace(b"data: ", b"data:"),
        {"text": "Hello"},
    ),
    "CR LF": (sse(delta(content="Hello"), delta("stop")).replace(b"\n", b"\r\n"), {"text": "Hello"}),
    "CR only": (sse(delta(content="Hello"), delta("stop")).replace(b"\n", b"\r"), {"text": "Hello"}),
    "comments and keep-alives": (
        sse(b": OPENROUTER PROCESSING\n\n", delta(content="Hello"), b":\n\n", b"event: ping\ndata: {}\n\n", delta("stop")),
        {"text": "Hello"},
    ),
    "characters of four bytes": (sse(delta(content="größer 🦙"), delta("stop")), {"text": "größer 🦙"}),
    "raw UTF-8": (
        'data: {"choices":[{"delta":{"content":"größer 🦙"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'.encode(),
        {"text": "größer 🦙"},
    ),
    "surrogates in two deltas": (
        sse(
            b'data: {"choices":[{"delta":{"content":"\\ud83e"}}]}\n\n',
            b'data: {"choices":[{"delta":{"content":"\\udd99"}}]}\n\n',
            delta("stop"),
        ),
        {"text": "🦙"},
    ),
    "a broken byte": (
        sse(b'data: {"choices":[{"delta":{"content":"a\xffb"}}]}\n\n', delta("stop")),
        {"text": "a\ufffdb"},
    ),
    "missing [DONE]": (sse(delta(content="Hello"), delta("stop"), done=False), {"text": "Hello"}),
    "missing finish reason": (sse(delta(content="Hello")), {"text": "Hello"}),
    "missing finish reason and [DONE], but usage": (
        sse(delta(content="Hello"), {"choices": [], "usage": USAGE}, done=False),
        {"text": "Hello", "prompt": 100},
    ),
    "no blank line at the end": (
        sse(delta(content="Hello"), delta("stop"), done=False).rstrip(b"\n"),
        {"text": "Hello"},
    ),
    "events without blank lines between them": (
        sse(delta(content="Hel"), delta(content="lo"), delta("stop")).replace(b"\n\n", b"\n"),
        {"text": "Hello"},
    ),
    "finish reason with the last content": (sse(delta(content="Hel"), delta("stop", content="lo")), {"text": "Hello"}),
    "finish reason in every chunk": (sse(delta("stop", content="Hel"), delta("stop", content="lo")), {"text": "Hello"}),
    "unknown finish reason": (sse(delta(content="Hello"), delta("weird")), {"text": "Hello", "finish": "other"}),
    "eos": (sse(delta(content="Hello"), delta("eos")), {"text": "Hello", "finish": "stop"}),
    "empty choices first": (sse({"choices": []}, delta(content="Hello"), delta("stop")), {"text": "Hello"}),
    "null choices": (sse({"choices": None, "id": "x"}, delta(content="Hello"), delta("stop")), {"text": "Hello"}),
    "null delta": (
        sse({"choices": [{"delta": None}]}, delta(content="Hello"), {"choices": [{"finish_reason": "stop"}]}),
        {"text": "Hello"},
    ),
    "null everything": (
        sse(delta(content=None, tool_calls=None, function_call=None, reasoning_content=None), delta("stop", content="x")),
        {"text": "x"},
    ),
    "content as parts": (
        sse(delta(content=[{"type": "text", "text": "Hel"}]), delta("stop", content=[{"type": "text", "text": "lo"}])),
        {"text": "Hello"},
    ),
    "content as parts with a thought": (
        sse(delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]), delta("stop", content="x")),
        {"text": "x", "thinking": "hm"},
    ),
    "message for delta": (
        sse({"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}),
        {"text": "Hello"},
    ),
    "the whole message once more at the end": (
        sse(
            delta(content="Hel"),
            delta(content="lo"),
            {"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]},
        ),
        {"text": "Hello"},
    ),
    "reasoning_content": (
        sse(delta(reasoning_content="h"), delta(reasoning_content="m"), delta("stop", content="x")),
        {"text": "x", "thinking": "hm"},
    ),
    "reasoning": (sse(delta(reasoning="hm"), delta("stop", content="x")), {"text": "x", "thinking": "hm"}),
    "thinking": (sse(delta(thinking="hm"), delta("stop", content="x")), {"text": "x", "thinking": "hm"}),
    "one thought under two names": (
        sse(delta(reasoning="hm", reasoning_content="hm"), delta("stop", content="x")),
        {"text": "x", "thinking": "hm"},
    ),
    "think tags": (
        sse(delta(content="<thi"), delta(content="nk>hm</think>\n\nx"), delta("stop")),
        {"text": "x", "thinking": "hm"},
    ),
    "unclosed think tag": (sse(delta(content="<think>hm"), delta("stop")), {"text": "", "thinking": "hm"}),
    "closing think tag only": (
        sse(delta(content="hm\n</th"), delta(content="ink>\nx"), delta("stop")),
        {"text": "x", "thinking": "hm"},
    ),
    "usage in a last chunk": (
        sse(delta(content="x"), delta("stop"), {"choices": [], "usage": USAGE}),
        {"text": "x", "prompt": 100, "completion": 7, "cached": 64},
    ),
    "usage in the finish chunk": (
        sse(delta(content="x"), {**delta("stop"), "usage": USAGE}),
        {"text": "x", "prompt": 100, "cached": 64},
    ),
    "usage growing with every chunk": (
        sse({**delta(content="x"), "usage": {"prompt_tokens": 5, "completion_tokens": 1}}, {**delta("stop"), "usage": USAGE}),
        {"text": "x", "prompt": 100},
    ),
    "usage zero": (
        sse(delta(content="x"), delta("stop"), {"choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 0}}),
        {"text": "x", "estimated": True},
    ),
    "usage with null details": (
        sse(delta("stop", content="x"), {"choices": [], "usage": {**USAGE, "prompt_tokens_details": None}}),
        {"text": "x", "prompt": 100, "cached": 0},
    ),
    "llama.cpp timings": (
        sse(delta(content="x"), {**delta("stop"), "timings": {"cache_n": 60, "prompt_n": 40, "predicted_n": 7}}),
        {"text": "x", "prompt": 100, "completion": 7, "cached": 60},
    ),
    "llama.cpp timings beside usage": (
        sse(delta("stop", content="x"), {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}, "timings": {"cache_n": 4, "prompt_n": 5}}),
        {"text": "x", "prompt": 9, "cached": 4},
    ),
    "one call in pieces": (
        sse(
            calls(call("", id="c1", index=0, name="read")),
            calls(call('{"path"', index=0)),
            calls(call(':"a"}', index=0)),
            delta("tool_calls"),
        ),
        {"calls": [("c1", "read", A)]},
    ),
    "two calls in turn, by index": (
        sse(
            calls(call("", id="c1", index=0, name="read"), call("", id="c2", index=1, name="read")),
            calls(call('{"path":', index=0), call('{"path":', index=1)),
            calls(call('"b"}', index=1)),
            calls(call('"a"}', index=0)),
            delta("tool_calls"),
        ),
        {"calls": [("c1", "read", A), ("c2", "read", B)]},
    ),
    "keyed by id without index": (
        sse(calls(call('{"path":', id="c1", name="read")), calls(call('"a"}', id="c1")), delta("tool_calls")),
        {"calls": [("c1", "read", A)]},
    ),
    "keyed by position": (
        sse(calls(call('{"path":', name="read")), calls(call('"a"}')), delta("tool_calls")),
        {"calls": [("*", "read", A)]},
    ),
    "Ollama: index 0 for all, ids": (
        sse(calls(call(A, id="c1", index=0, name="read")), calls(call(B, id="c2", index=0, name="read")), delta("stop")),
        {"calls": [("c1", "read", A), ("c2", "read", B)], "finish": "tool_calls"},
    ),
    "Ollama: index 0 for all, no ids": (
        sse(calls(call(A, index=0, name="read")), calls(call(B, index=0, name="read")), delta("stop")),
        {"calls": [("*", "read", A), ("*", "read", B)]},
    ),
    "Ollama: index 0, other names": (
        sse(calls(call("{}", index=0, name="ls"), call(A, index=0, name="read")), delta("stop")),
        {"calls": [("*", "ls", "{}"), ("*", "read", A)]},
    ),
    "no index, two calls in two deltas": (
        sse(calls(call(A, name="read")), calls(call(B, name="read")), delta("stop")),
        {"calls": [("*", "read", A), ("*", "read", B)]},
    ),
    "one id for two calls": (
        sse(calls(call(A, id="x", index=0, name="read"), call(B, id="x", index=1, name="read")), delta("tool_calls")),
        {"calls": [("x", "read", A), ("*", "read", B)]},
    ),
    "empty ids": (
        sse(calls(call(A, id="", index=0, name="read"), call(B, id="", index=1, name="read")), delta("tool_calls")),
        {"calls": [("*", "read", A), ("*", "read", B)]},
    ),
    "an id used before": (
        sse(calls(call(A, id="old", index=0, name="read")), delta("tool_calls")),
        {"calls": [("*", "read", A)]},
    ),
    "a new id with every piece": (
        sse(calls(call('{"path":', id="r1", index=0, name="read")), calls(call('"a"}', id="r2", index=0)), delta("tool_calls")),
        {"calls": [("r1", "read", A)]},
    ),
    "name with every piece": (
        sse(
            calls(call('{"path":', id="c1", index=0, name="read")),
            calls(call('"a"}', id="c1", index=0, name="read")),
            delta("tool_calls"),
        ),
        {"calls": [("c1", "read", A)]},
    ),
    "name in parts": (
        sse(
            calls(call(None, id="c1", index=0, name="re")),
            calls(call(None, index=0, name="ad")),
            calls(call(A, index=0)),
            delta("tool_calls"),
        ),
        {"calls": [("c1", "read", A)]},
    ),
    "name after the id": (
        sse(calls({"id": "c1", "index": 0}), calls(call(A, index=0, name="read")), delta("tool_calls")),
        {"calls": [("c1", "read", A)]},
    ),
    "arguments as an object": (
        sse(calls(call({"path": "a"}, id="c1", index=0, name="read")), delta("tool_calls")),
        {"calls": [("c1", "read", A)]},
    ),
    "arguments null": (
        sse(calls({"id": "c1", "index": 0, "function": {"name": "ls", "arguments": None}}), delta("tool_calls")),
        {"calls": [("c1", "ls", "{}")]},
    ),
    "arguments missing": (
        sse(calls(call(id="c1", index=0, name="ls")), delta("tool_calls")),
        {"calls": [("c1", "ls", "{}")]},
    ),
    "damaged arguments stay as they are": (
        sse(calls(call('{"path": a}', id="c1", index=0, name="read")), delta("tool_calls")),
        {"calls": [("c1", "read", '{"path": a}')]},
    ),
    "empty deltas between": (
        sse(
            calls(call('{"path":', id="c1", index=0, name="read")),
            delta(),
            delta(content=""),
            calls({"index": 0, "function": None}),
            calls(call("", index=0)),
            delta(tool_calls=[]),
            calls(call('"a"}', index=0)),
            delta("tool_calls"),
        ),
        {"calls": [("c1", "read", A)]},
    ),
    "the whole call once more": (
        sse(
            calls(call('{"path":', id="c1", index=0, name="read")),
            calls(call('"a"}', index=0)),
            calls(call(A, id="c1", index=0, name="read"), finish="tool_calls"),
        ),
        {"calls": [("c1", "read", A)]},
    ),
    "every delta twice": (
        sse(
            *[calls(call("", id="c1", index=0, name="read"))] * 2,
            *[calls(call('{"path"', index=0))] * 2,
            *[calls(call(':"a"}', index=0))] * 2,
            delta("tool_calls"),
        ),
        {"calls": [("c1", "read", A)]},
    ),
    "function_call of old": (
        sse(
            delta(function_call={"name": "read", "arguments": '{"path":'}),
            delta(function_call={"arguments": '"a"}'}),
            delta("function_call"),
        ),
        {"calls": [("*", "read", A)]},
    ),
    "call without a function object": (
        sse(calls({"id": "c1", "index": 0, "name": "read", "arguments": A}), delta("tool_calls")),
        {"calls": [("c1", "read", A)]},
    ),
    "finish reason stop with calls": (
        sse(calls(call(A, id="c1", index=0, name="read")), delta("stop")),
        {"calls": [("c1", "read", A)], "finish": "tool_calls"},
    ),
    "finish reason tool_calls without calls": (sse(delta("tool_calls", content="x")), {"text": "x", "finish": "stop"}),
    "cut off by length in the call": (
        sse(calls(call('{"path":"a', id="c1", index=0, name="read")), delta("length")),
        {"calls": [("c1", "read", '{"path":"a')], "finish": "length", "truncated": {"c1"}},
    ),
    "cut off by length behind a whole call": (
        sse(calls(call(A, id="c1", index=0, name="read"), call(B, id="c2", index=1, name="read")), delta("length")),
        {"calls": [("c1", "read", A), ("c2", "read", B)], "finish": "length", "truncated": {"c2"}},
    ),
    "cut off by length before any argument": (
        sse(calls(call("", id="c1", index=0, name="read")), delta("length")),
        {"calls": [("c1", "read", "")], "finish": "length", "truncated": {"c1"}},
    ),
    "no finish reason and half a call": (
        sse(calls(call('{"path":"a', id="c1", index=0, name="read"))),
        {"calls": [("c1", "read", '{"path":"a')], "truncated": {"c1"}},
    ),
    "text and calls": (
        sse(delta(content="I read."), calls(call(A, id="c1", index=0, name="read")), delta("tool_calls")),
        {"text": "I read.", "calls": [("c1", "read", A)]},
    ),
    "blank text beside calls": (
        sse(delta(content="\n\n"), calls(call(A, id="c1", index=0, name="read")), delta("tool_calls")),
        {"text": "", "calls": [("c1", "read", A)]},
    ),
    "a second choice": (
        sse({"choices": [{"index": 0, "delta": {"content": "x"}}, {"index": 1, "delta": {"content": "y"}}]}, delta("stop")),
        {"text": "x"},
    ),
    "a list of chunks": (sse(b'data: [{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}]\n\n'), {"text": "x"}),
    "an empty reply": (sse(delta(role="assistant", content=""), delta("stop")), {"text": ""}),
}  # fmt: skip


def check(reply: ModelReply, expected: Expected) -> None:
    message = reply.message
    assert message.text == expected.get("text", "")
    thoughts = [part.text for part in message.parts if type(part).__name__ == "Thinking"]
    assert thoughts == ([expected["thinking"]] if "thinking" in expected else [])
    found = [(c.id, c.name, c.arguments) for c in message.tool_calls]
    wanted = expected.get("calls", [])
    assert [(name, args) for _, name, args in found] == [(name, args) for _, name, args in wanted]
    assert all(id == want or want == "*" for (id, _, _), (want, _, _) in zip(found, wanted, strict=True))
    assert len({id for id, _, _ in found} | {"old"}) == len(found) + 1, "ids are unique and new"
    assert reply.finish_reason == expected.get("finish", "tool_calls" if wanted else "stop")
    assert reply.truncated_calls == expected.get("truncated", set())
    for key, value in (("prompt", reply.usage.prompt_tokens), ("completion", reply.usage.completion_tokens),
                       ("cached", reply.usage.cached_tokens), ("estimated", reply.usage.estimated)):  # fmt: skip
        assert value == expected.get(key, value)


HISTORY = [Message("assistant", (ToolCall("old", "read", A),)), assistant("x")]


@pytest.mark.parametrize("name", QUIRKS)
def test_a_stream_with_this_quirk_gives_the_right_reply(name: str) -> None:
    body, expected = QUIRKS[name]
    asked = request(messages=HISTORY)
    for pieces in ([body], cut_every(body, 7)):
        run = ask(Answer(pieces), asked=asked)
        check(run.reply, expected)
        assert len(run.server.requests) == 1


@pytest.mark.parametrize("size", [1, 2, 3])
def test_bytes_one_by_one_give_the_same_reply(size: int) -> None:
    body, expected = QUIRKS["characters of four bytes"]
    check(ask(Answer(cut_every(body, size))).reply, expected)


@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream", ""])
def test_a_whole_completion_in_answer_to_a_stream_request_is_taken(content_type: str) -> None:
    message = {
        "role": "assistant",
        "content": "Hi",
        "reasoning_content": "hm",
        "tool_calls": [call(A, id="c1", name="read")],
    }
    body = json.dumps(
        {"object": "chat.completion", "model": "q", "choices": [{"message": message}], "usage": USAGE}, indent=1
    )
    reply = ask(Answer(cut_every(body.encode(), 50), content_type=content_type)).reply
    check(reply, {"text": "Hi", "thinking": "hm", "calls": [("c1", "read", A)], "prompt": 100})
    assert reply.model == "q"
