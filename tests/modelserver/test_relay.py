"""A request on its way to an engine and back, whatever happens on it."""

from __future__ import annotations

import json
import socket
import threading
import time
from dataclasses import replace
from http.client import HTTPConnection

import pytest
from router_kit import HELLO, Lab, Model, chunks, lab, tool

from lmagent.app.logs import log_to
from lmagent.config.settings import Settings
from lmagent.modelserver.errors import BadRequest
from lmagent.modelserver.http import relay
from lmagent.modelserver.spec import ModelServerError
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call_raw, cut, error_in_stream, say, slow, status


def until(true, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def content(answer: str) -> str:
    deltas = [choice["delta"] for event in chunks(answer) for choice in event.get("choices", ())]
    return "".join(delta.get("content") or "" for delta in deltas)


def test_what_an_engine_says_is_passed_on_and_it_is_asked_by_its_own_name_and_key():
    with ScriptedServer([say("Hello you."), say("Hello again.")], api_key="k" * 9) as server:
        with lab(Model("mine", server.url, engine="upstream", key="k" * 9, served_as="theirs")) as running:
            code, answer, _ = running.chat(model="mine", temperature=0.5)
            assert (code, answer["choices"][0]["message"]["content"]) == (200, "Hello you.")
            code, text, fields = running.chat(model="mine", stream=True)
            assert content(text) == "Hello again."
            assert text.endswith("data: [DONE]\n\n")
            assert fields["content-type"].startswith("text/event-stream")
        assert server.chats[0].body == {"messages": HELLO, "model": "theirs", "temperature": 0.5}


def test_many_streams_at_once_all_come_to_their_end():
    with ScriptedServer(lambda _: slow(say("one two three " * 4, chunk=4), each=0.01)) as server:
        with lab(Model("m", server.url)) as running:
            told: list[str] = []

            def ask() -> None:
                told.append(content(running.chat(model="m", stream=True)[1]))

            threads = [threading.Thread(target=ask) for _ in range(60)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert told == ["one two three " * 4] * 60


def open_stream(running: Lab, **fields: object) -> socket.socket:
    body = json.dumps({"messages": HELLO, "stream": True, **fields}).encode()
    client = socket.create_connection(("127.0.0.1", running.port), timeout=20)
    client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body))
    client.sendall(body)
    return client


@pytest.mark.parametrize("stream", [True, False])
def test_an_engine_is_let_go_at_once_when_its_client_hangs_up(stream):
    reply = slow(say("word " * 500, chunk=5), each=0.02) if stream else replace(say("No."), before_head=2.0)
    with ScriptedServer(lambda _: reply) as server:
        with lab(Model("m", server.url)) as running:
            client = open_stream(running, model="m", stream=stream)
            until(lambda: server.chats)
            if stream:
                client.recv(200)
            client.close()
            until(lambda: running.pool.models[0].active == 0)
            if stream:  # a whole answer is noticed to be unwanted when it is written
                until(lambda: server.chats[0].hung_up)
            until(lambda: running.ask("GET", "/api/stats")[1]["hung_up"] == 1)


@pytest.mark.parametrize("reset", [True, False])
def test_an_engine_that_dies_in_the_middle_is_told_as_an_error_event_and_a_clean_end(reset):
    with ScriptedServer([cut(say("one two three"), chunks=2, reset=reset)]) as server:
        with lab(Model("m", server.url)) as running:
            code, text, _ = running.chat(model="m", stream=True)
    assert code == 200
    error = chunks(text)[-1]["error"]
    assert (error["code"], error["type"]) == ("worker_crashed", "server_error")
    assert text.endswith("data: [DONE]\n\n")


def test_an_engine_that_dies_before_it_answers_is_a_502():
    engine = socket.create_server(("127.0.0.1", 0))

    def die() -> None:
        for _ in range(2):
            client, _ = engine.accept()
            client.recv(65536)
            client.close()

    dying = threading.Thread(target=die)
    dying.start()
    with lab(Model("m", f"http://127.0.0.1:{engine.getsockname()[1]}")) as running:
        for stream in (True, False):
            code, answer, _ = running.chat(model="m", stream=stream)
            assert (code, answer["error"]["code"]) == (502, "worker_crashed")
    dying.join()
    engine.close()
    with lab(Model("gone", "http://127.0.0.1:9", engine="upstream")) as running:
        code, answer, _ = running.chat(model="gone")
    assert (code, answer["error"]["code"]) == (502, "upstream_lost")


def test_a_stream_that_waits_for_its_model_shows_life_and_then_answers():
    with ScriptedServer([say("Here."), say("Here.")]) as server:
        with lab(Model("m", server.url, wait=0.7), keep_alive=0.1) as running:
            code, text, _ = running.chat(model="m", stream=True)
            assert code == 200
            assert text.startswith(": waiting")
            assert text.count(": waiting") >= 3
            assert content(text) == "Here."
            assert running.chat(model="m")[1]["choices"][0]["message"]["content"] == "Here."


def test_an_engine_that_reads_a_long_prompt_keeps_its_stream_alive_too():
    def answer(received):
        time.sleep(0.5)  # before the head of its answer, as llama.cpp does
        return say("Read.")

    with ScriptedServer(answer) as server, lab(Model("m", server.url), keep_alive=0.1) as running:
        text = running.chat(model="m", stream=True)[1]
    assert content(text) == "Read."
    assert text.startswith(": waiting")


def test_what_fails_behind_a_wait_is_an_error_event_and_what_fails_at_once_has_a_status():
    refusal = ModelServerError("no memory for it", status=503, code="out_of_memory", fix="unload another")
    slowly, fast = Model("slow", wait=0.4, refusal=refusal), Model("fast", refusal=refusal)
    with lab(slowly, fast, keep_alive=0.1) as running:
        code, text, _ = running.chat(model="slow", stream=True)
        assert (code, chunks(text)[-1]["error"]["code"]) == (200, "out_of_memory")
        for stream in (True, False):
            code, answer, _ = running.chat(model="fast", stream=stream)
            assert (code, answer["error"]["message"]) == (503, "no memory for it (unload another)")


@pytest.mark.parametrize(
    ("reply", "code", "words"),
    [
        (status(400, {"error": {"message": "too long", "code": 400}}), 400, "too long"),
        (status(500, {"error": {"message": "it broke", "code": 500}}), 500, "it broke"),
        (status(503, b"<html>busy</html>"), 503, "busy"),
        (status(500, b""), 500, "no reason"),
        (status(500, {"error": {"message": "image input is not supported - hint: …", "code": 500}}), 400, "image"),
        (status(401, {"error": {"message": "bad key"}}), 502, "refused our key"),
        (status(422, {"detail": "odd"}), 422, "odd"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_an_engines_refusal_keeps_its_status_and_reason_in_our_shape(monkeypatch, reply, code, words, stream):
    monkeypatch.setattr(relay, "GRACE", 30.0)  # a machine that stands still for half a second begins the stream
    with ScriptedServer([reply]) as server, lab(Model("m", server.url, engine="upstream"), keep_alive=30.0) as running:
        told, answer, _ = running.chat(model="m", stream=stream)
    assert told == code
    assert words in answer["error"]["message"]
    assert set(answer["error"]) == {"message", "type", "param", "code"}


def test_a_prompt_that_does_not_fit_has_the_code_by_which_clients_know_it():
    words = "request (27016 tokens) exceeds the available context size (2048 tokens), try increasing it"
    refusal = status(400, {"error": {"message": words, "code": 400, "type": "exceed_context_size_error"}})
    with ScriptedServer([refusal]) as server, lab(Model("m", server.url)) as running:
        code, answer, _ = running.chat(model="m")
    assert (code, answer["error"]["code"], answer["error"]["message"]) == (400, "context_length_exceeded", words)


def test_a_limit_beyond_32_bits_is_none_and_another_servers_choices_are_its_own():
    with ScriptedServer(lambda _: say("Hello.")) as server:
        other = Model("other", server.url, engine="upstream")
        with lab(Model("m", server.url), other) as running:
            for limit in (2**31 - 1, 2**32, 2**40, 10**30):
                assert running.chat(model="m", max_tokens=limit, max_completion_tokens=limit)[0] == 200
            assert running.chat(model="other", max_tokens=2**40, tools=[tool("a")], tool_choice="any")[0] == 200
        sent = [request.fields for request in server.requests]
    assert {body["max_tokens"] for body in sent[:-1]} == {2**31 - 1}
    assert {body["max_completion_tokens"] for body in sent[:-1]} == {2**31 - 1}
    assert (sent[-1]["max_tokens"], sent[-1]["tool_choice"]) == (2**40, "any")


def test_an_error_inside_a_stream_ends_it_in_our_shape():
    with ScriptedServer([error_in_stream("out of luck", say("par"))]) as server, lab(Model("m", server.url)) as running:
        text = running.chat(model="m", stream=True)[1]
    assert content(text) == "par"
    assert chunks(text)[-1]["error"]["message"] == "out of luck"
    assert text.count("[DONE]") == 1


def test_a_client_that_reads_slowly_gets_all_and_keeps_nobody_from_theirs():
    text = "0123456789abcdef" * 4
    with ScriptedServer(lambda _: say(text * 2000, chunk=64)) as server, lab(Model("m", server.url)) as running:
        sleeper = open_stream(running, model="m")
        assert content(running.chat(model="m", stream=True)[1]) == text * 2000
        data = b""
        while b"[DONE]" not in data[-100:]:
            data += sleeper.recv(1 << 16)
        sleeper.close()
        assert data.count(b"content") >= 2000


def test_what_a_transformers_model_writes_passes_as_it_is_and_no_call_can_be_enforced():
    said = 'I look.\n<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>'
    with ScriptedServer([say(said, chunk=3), say(said)]) as server:
        with lab(Model("m", server.url, engine="transformers")) as running:
            assert content(running.chat(model="m", stream=True, tools=[tool("read")])[1]) == said
            answer = running.chat(model="m", tools=[tool("read")])[1]["choices"][0]
            assert answer["message"]["content"] == said
            code, told, _ = running.chat(model="m", tools=[tool("read")], tool_choice="required")
            assert (code, told["error"]["param"]) == (400, "tool_choice")


def test_a_server_that_stops_lets_replies_end_and_tells_those_that_take_too_long():
    replies = [slow(say("short " * 4, chunk=6), each=0.05), slow(say("long " * 400, chunk=5), each=0.05)]
    with ScriptedServer(replies) as server, lab(Model("m", server.url), grace=1.0) as running:
        told: dict[int, str] = {}

        def ask(number: int) -> None:
            told[number] = running.chat(model="m", stream=True)[1]

        threads = []
        for number in range(2):
            threads.append(threading.Thread(target=ask, args=(number,)))
            threads[-1].start()
            until(lambda count=number + 1: len(server.chats) == count)
        running.server.should_exit = True
        for thread in threads:
            thread.join()
    assert content(told[0]) == "short " * 4
    assert chunks(told[1])[-1]["error"]["code"] == "shutting_down"


def test_tokens_requests_and_errors_are_counted():
    with ScriptedServer([say("Hello."), call_raw("x", "{}")]) as server, lab(Model('m"x', server.url)) as running:
        running.chat(model='m"x')
        running.chat(model='m"x', stream=True, stream_options={"include_usage": True})
        running.chat(model="other")
        text = running.ask("GET", "/metrics")[1]
    assert 'lmagent_requests_total{model="m\\"x",route="chat",status="200"} 2' in text
    assert 'lmagent_requests_total{model="",route="chat",status="404"} 1' in text
    assert 'lmagent_errors_total{model=""} 1' in text
    counted = [line for line in text.splitlines() if line.startswith("lmagent_tokens_total") and "completion" in line]
    assert int(counted[0].split()[-1]) > 0
    assert 'lmagent_active_requests{model="m\\"x"} 0' in text


def test_no_name_that_a_client_makes_up_fills_or_breaks_the_metrics():
    with ScriptedServer([say("Hello.")]) as server, lab(Model("m", server.url)) as running:
        for number in range(20):
            assert running.chat(model=f"made-up-{number}" + "y" * 5000)[0] == 404
        raw = b'{"model": "\\ud800", "messages": [{"role": "user", "content": "hi"}]}'
        connection = HTTPConnection("127.0.0.1", running.port, timeout=30)
        connection.request("POST", "/v1/chat/completions", raw, {"Content-Type": "application/json"})
        assert connection.getresponse().status == 404
        connection.close()
        running.chat(model="m")
        code, text, _ = running.ask("GET", "/metrics")
    assert code == 200
    assert len(text) < 10_000
    assert 'lmagent_requests_total{model="m",route="chat",status="200"} 1' in text
    assert 'lmagent_requests_total{model="",route="chat",status="404"} 21' in text


def test_an_error_has_the_field_that_it_is_about():
    assert BadRequest("x", param="messages").param == "messages"


def test_an_error_that_nobody_foresaw_is_told_in_a_sentence_and_its_traceback_is_logged(tmp_path):
    log_to(tmp_path / "lmagent.log", Settings(workspace=tmp_path, agent_data_dir=tmp_path))
    try:
        with lab(Model("m", refusal=ValueError("a defect of ours"))) as running:
            code, answer, _ = running.chat(model="m")
    finally:
        log_to(None, Settings(workspace=tmp_path, agent_data_dir=tmp_path))
    assert code == 500
    text = "unexpected error in the model server: ValueError: a defect of ours (details: lmagent.log)"
    assert answer["error"]["message"] == text
    assert "Traceback (most recent call last)" in (tmp_path / "lmagent.log").read_text()
