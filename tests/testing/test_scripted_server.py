from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import httpcore
import pytest

from lmagent.testing import (
    ScriptedServer,
    call,
    call_raw,
    cut,
    error_in_stream,
    faults,
    hang,
    quirks,
    raw,
    refuse,
    reply,
    say,
    slow,
    status,
    think,
    tool,
)
from lmagent.testing.script import Counts
from lmagent.testing.serve import load_script
from lmagent.testing.strict import violations

USER = {"role": "user", "content": "hello"}
TOOL = {"type": "function", "function": {"name": "read", "description": "", "parameters": {"type": "object"}}}


def post(server: ScriptedServer, **fields: Any) -> httpcore.Response:
    body = {"model": "m", "stream": True, "messages": [USER]} | fields
    timeout = {"read": 0.3, "connect": 2.0, "write": 2.0, "pool": 2.0}
    with httpcore.ConnectionPool() as pool:
        url = f"{server.base_url}/chat/completions"
        return pool.request("POST", url, content=json.dumps(body).encode(), extensions={"timeout": timeout})


def events(response: httpcore.Response) -> list[Any]:
    lines = response.content.decode().splitlines()
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    return [json.loads(item) for item in data if item != "[DONE]"]


def deltas(response: httpcore.Response) -> list[Mapping[str, Any]]:
    return [choice["delta"] for event in events(response) for choice in event["choices"]]


# --- replies ----------------------------------------------------------------------------------------------------------


def test_a_text_is_streamed_in_pieces_with_its_end_marked() -> None:
    with ScriptedServer([say("abcdefgh", chunk=3)]) as server:
        response = post(server)
    assert [delta.get("content") for delta in deltas(response)] == ["", "abc", "def", "gh", None]
    assert events(response)[-1]["choices"][0]["finish_reason"] == "stop"
    assert response.content.endswith(b"data: [DONE]\n\n")


def test_a_reply_without_stream_is_one_json_body() -> None:
    answer = reply(text="hi", thinking="hm", calls=[tool("read", path="a")], usage=Counts(10, 2, 5))
    with ScriptedServer([answer]) as server:
        body = json.loads(post(server, stream=False).content)
    message = body["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("hi", "hm")
    assert message["tool_calls"][0]["function"] == {"name": "read", "arguments": '{"path":"a"}'}
    assert body["usage"]["prompt_tokens_details"] == {"cached_tokens": 5}


def test_usage_is_sent_when_it_is_asked_for_and_counts_the_cached_prefix() -> None:
    with ScriptedServer([say("one"), say("two")]) as server:
        assert "usage" not in events(post(server))[-1]
        more = [USER, {"role": "assistant", "content": "one"}, USER]
        usage = events(post(server, messages=more, stream_options={"include_usage": True}))[-1]["usage"]
    assert usage["prompt_tokens"] == server.prefix.rows[1].size // 4
    assert usage["prompt_tokens_details"]["cached_tokens"] == server.prefix.rows[0].size // 4


def test_the_end_of_the_script_is_an_error_that_says_so() -> None:
    with ScriptedServer([say("one")]) as server:
        assert post(server).status == 200
        assert server.left == 0
        response = post(server)
    assert response.status == 500
    assert b"script exhausted: all 1 replies" in response.content


def test_a_script_may_be_a_function_of_the_request() -> None:
    with ScriptedServer(lambda received: say(f"{len(received.messages)} messages")) as server:
        assert deltas(post(server))[1]["content"] == "1 messages"


def test_an_error_in_the_script_is_a_500_and_is_raised_when_the_server_closes() -> None:
    def broken(_: object) -> Any:
        raise LookupError("a mistake in the test")

    with pytest.raises(LookupError, match="a mistake in the test"), ScriptedServer([broken]) as server:
        assert post(server).status == 500


def test_every_request_is_recorded_with_its_times_and_its_connection() -> None:
    with ScriptedServer([say("one")]) as server:
        post(server)
        with httpcore.ConnectionPool() as pool:
            pool.request("GET", f"{server.base_url}/models?limit=1")
    chat, models = server.requests
    assert (chat.method, chat.path, chat.body["model"]) == ("POST", "/v1/chat/completions", "m")
    assert (models.path, models.query) == ("/v1/models", "limit=1")
    assert chat.t_head <= chat.t_body <= chat.t_end <= models.t_head
    assert (chat.connection, models.connection, server.connections) == (1, 2, 2)
    assert server.chats == [chat]


# --- routes -----------------------------------------------------------------------------------------------------------


def get(server: ScriptedServer, path: str, **headers: str) -> httpcore.Response:
    with httpcore.ConnectionPool() as pool:
        return pool.request("GET", server.url + path, headers=headers)


def test_extra_routes_answer_beside_the_models() -> None:
    routes = {"/props": {"n_ctx": 4096}, "/busy": status(503), "/when": lambda _: status(200, "now")}
    with ScriptedServer(models=["a", "b"], routes=routes) as server:
        assert [model["id"] for model in json.loads(get(server, "/v1/models").content)["data"]] == ["a", "b"]
        assert json.loads(get(server, "/props").content) == {"n_ctx": 4096}
        assert get(server, "/busy").status == 503
        assert get(server, "/when").content == b"now"
        assert get(server, "/other").status == 404


def test_a_server_may_answer_unknown_paths_with_200() -> None:
    with ScriptedServer(unknown=status(200, {"error": "Unexpected endpoint"})) as server:
        assert get(server, "/api/ps").status == 200


def test_a_key_can_be_required() -> None:
    with ScriptedServer([say("hi")], api_key="secret") as server:
        assert get(server, "/v1/models").status == 401
        assert get(server, "/v1/models", authorization="Bearer secret").status == 200


# --- faults -----------------------------------------------------------------------------------------------------------


def test_an_error_status_keeps_its_headers() -> None:
    with ScriptedServer([faults.rate_limited("7")]) as server:
        response = post(server)
    assert response.status == 429
    assert (b"Retry-After", b"7") in response.headers


@pytest.mark.parametrize("broken", [cut(say("abcdef", chunk=1), chunks=3), cut(say("abcdef"), bytes=250)])
def test_a_stream_can_break_off(broken: Any) -> None:
    with ScriptedServer([broken]) as server, pytest.raises(httpcore.RemoteProtocolError):
        post(server)
    assert not server.chats[0].hung_up


@pytest.mark.parametrize("behaviour", [refuse(), cut(say("abc"), chunks=1, reset=True)])
def test_a_connection_can_be_dropped(behaviour: Any) -> None:
    with ScriptedServer([behaviour]) as server, pytest.raises((httpcore.RemoteProtocolError, httpcore.ReadError)):
        post(server)


@pytest.mark.parametrize("silent", [hang(), hang(say("abc"), chunks=1), slow(say("abc"), first=5.0)])
def test_a_server_can_fall_silent_and_notices_that_the_client_left(silent: Any) -> None:
    begun = time.monotonic()
    with ScriptedServer([silent]) as server:
        with pytest.raises(httpcore.ReadTimeout):
            post(server)
        if silent.__class__.__name__ == "Plain":
            while not server.chats[0].hung_up and time.monotonic() < begun + 2:
                time.sleep(0.01)
            assert server.chats[0].hung_up
    assert time.monotonic() - begun < 2


def test_signs_of_life_fill_a_slow_start() -> None:
    with ScriptedServer([slow(say("abc"), first=0.5, keepalive=3, prefill=[0.25, 1.0], each=0.01)]) as server:
        response = post(server)
    assert response.content.count(b": keep-alive") == 3
    progress = [event["prompt_progress"] for event in events(response) if "prompt_progress" in event]
    assert [item["processed"] for item in progress] == [round(progress[0]["total"] * 0.25), progress[0]["total"]]
    assert server.chats[0].t_end - server.chats[0].t_body > 0.5


def test_an_error_may_come_inside_a_stream() -> None:
    with ScriptedServer([error_in_stream("out of memory", say("par"))]) as server:
        response = post(server)
    assert response.status == 200
    assert events(response)[-1]["error"]["message"] == "out of memory"


def test_raw_bytes_are_sent_as_they_are() -> None:
    with ScriptedServer([raw([b"data: {", b"oops\n\n"])]) as server:
        assert post(server).content == b"data: {oops\n\n"


def test_a_prompt_larger_than_the_window_is_refused_or_cut_in_silence() -> None:
    long = [{"role": "user", "content": "word " * 4000}]
    with ScriptedServer([say("hi")], window=1000) as server:
        assert post(server, messages=long).status == 400
        assert server.left == 1
    with ScriptedServer([say("hi")], window=1000, overflow=None) as server:
        usage = events(post(server, messages=long, stream_options={"include_usage": True}))[-1]["usage"]
        assert usage["prompt_tokens"] == 1000


# --- quirks -----------------------------------------------------------------------------------------------------------


def test_quirks_show_on_the_wire() -> None:
    two = reply(calls=[tool("a"), tool("b")])
    script = [
        quirks.ollama_index_zero(two),
        quirks.crlf(say("hi")),
        quirks.arguments_as_object(call("read", path="a")),
        quirks.closing_tag_only(think("hm", say("yes", chunk=99))),
        quirks.no_done(say("hi")),
    ]
    with ScriptedServer(script) as server:
        calls = [delta["tool_calls"][0] for delta in deltas(post(server)) if "tool_calls" in delta]
        assert [item["index"] for item in calls] == [0, 0]
        assert calls[0]["id"] != calls[1]["id"]
        assert b'null}]}\r\n\r\ndata: {"id"' in post(server).content
        assert deltas(post(server))[1]["tool_calls"][0]["function"]["arguments"] == {"path": "a"}
        content = "".join(delta.get("content", "") for delta in deltas(post(server)))
        assert content == "hm</think>yes"
        assert b"[DONE]" not in post(server).content


# --- strict mode and the prefix meter ---------------------------------------------------------------------------------


def assistant(*ids: str, **fields: Any) -> dict[str, Any]:
    function = {"name": "read", "arguments": '{"path":"a"}'}
    calls = [{"id": name, "type": "function", "function": function} for name in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls} | fields


def result(name: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": name, "content": "text"}


GOOD = [{"role": "system", "content": "s"}, USER, assistant("1", "2"), result("2"), result("1")]


def test_a_proper_conversation_passes_strict_mode() -> None:
    assert violations({"model": "m", "messages": GOOD, "tools": [TOOL]}) == []


BAD = {
    "system message that is not the first": [USER, {"role": "assistant", "content": "x"}, GOOD[0], USER],
    "two user messages in a row": [USER, USER],
    "has no result": [USER, assistant("1", "2"), result("1"), USER],
    "without a call": [USER, {"role": "assistant", "content": "x"}, result("9")],
    "empty content beside tool calls": [USER, assistant("1", content=""), result("1")],
    "used before": [USER, assistant("1"), result("1"), assistant("1"), result("1")],
    "not the text of a JSON object": [USER, assistant("1", tool_calls=[{"id": "1", "type": "function", "function": {
        "name": "read", "arguments": '{"path'}}]), result("1")],
    "unknown role": [USER, {"role": "developer", "content": "x"}, USER],
    "no content": [{"role": "user", "content": ""}],
    "there are no messages": [],
}  # fmt: skip


@pytest.mark.parametrize("objection", list(BAD))
def test_strict_mode_refuses(objection: str) -> None:
    with ScriptedServer([say("hi")], strict=True) as server:
        response = post(server, messages=BAD[objection])
        assert response.status == 400
        assert objection in json.loads(response.content)["error"]["message"]
        assert len(server.objections) == 1
        assert server.left == 1


def test_strict_mode_refuses_unknown_request_fields_and_empty_tool_lists() -> None:
    assert violations({"messages": [USER], "cache_prompt": True}) == ["unknown request field 'cache_prompt'"]
    assert violations({"messages": [USER], "tools": []}) != []


def test_the_prefix_meter_tells_a_continued_prompt_from_a_changed_one() -> None:
    answer = {"role": "assistant", "content": "one"}
    with ScriptedServer([say("x")] * 4) as server:
        post(server, messages=GOOD, tools=[TOOL])
        post(server, messages=[*GOOD, answer, USER], tools=[TOOL])
        assert server.prefix.ratio == 1.0
        post(server, messages=[{"role": "system", "content": "changed"}, *GOOD[1:], answer, USER], tools=[TOOL])
        assert server.prefix.breaks == [3]
        assert server.prefix.rows[2].ratio < 0.5
        post(server, messages=[{"role": "system", "content": "changed"}], tools=[TOOL])
    first, second, third, _ = server.prefix.rows
    assert first.prefilled == first.size // 4
    assert second.prefilled == (second.size - first.size) // 4
    assert server.prefix.prefilled > server.prefix.fresh
    assert third.common < first.size


def test_with_several_slots_side_calls_do_not_count_as_breaks() -> None:
    side = [{"role": "user", "content": "a title, please, for something else entirely"}]
    with ScriptedServer([say("x")] * 4, slots=2) as server:
        for messages in (GOOD, side, [*GOOD, {"role": "assistant", "content": "one"}, USER], side):
            post(server, messages=messages)
    assert server.prefix.breaks == []
    assert [row.slot for row in server.prefix.rows] == [0, 1, 0, 1]


# --- the program ------------------------------------------------------------------------------------------------------


def test_a_script_can_be_loaded_from_json() -> None:
    replies = [
        {"text": "hi", "quirks": ["crlf"], "usage": {"prompt": 5, "completion": 1}},
        {"calls": [{"name": "read", "arguments": {"path": "a"}}, {"name": "read", "arguments": "{damaged"}]},
        {"status": 429, "headers": {"Retry-After": "3"}},
    ]
    first, second, third = load_script(json.dumps(replies).encode())
    assert first == quirks.crlf(reply(text="hi", usage=Counts(5, 1)))
    assert second == reply(calls=[tool("read", path="a"), call_raw("read", "{damaged").calls[0]])
    assert third.code == 429  # type: ignore[union-attr]
    for wrong in (b"{}", b'[{"txt": "typo"}]', b'[{"text": "x", "quirks": ["nope"]}]', b"not json"):
        with pytest.raises(ValueError, match="script"):
            load_script(wrong)


def test_the_program_ends_by_sigterm_where_a_script_has_started_it_in_the_background(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('[{"text": "hello"}]')
    command = [sys.executable, "-m", "lmagent.testing", "--script", str(script)]
    ignoring = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)  # as a shell has it for what ends in &
    with subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=ignoring) as process:
        assert process.stdout
        process.stdout.readline()
        process.terminate()
        try:
            assert process.wait(timeout=10) in (0, -signal.SIGTERM)
        finally:
            process.kill()


def test_the_server_runs_as_a_program_and_writes_its_log(tmp_path: Path) -> None:
    script, log = tmp_path / "script.json", tmp_path / "log.jsonl"
    script.write_text('[{"text": "hello"}]')
    command = [sys.executable, "-m", "lmagent.testing", "--script", str(script), "--log", str(log)]
    with subprocess.Popen([*command, "--until-eof"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        port = int(process.stdout.readline())
        with httpcore.ConnectionPool() as pool:
            body = json.dumps({"messages": [USER], "stream": True}).encode()
            pool.request("POST", f"http://127.0.0.1:{port}/v1/chat/completions", content=body)
        process.stdin.close()
        assert process.wait(timeout=5) == 0
    row = json.loads(log.read_text())
    assert row["messages"] == 1
    assert row["t_end"] >= row["t_body"] > 0
    assert row["prefix"]["ratio"] == 1.0
