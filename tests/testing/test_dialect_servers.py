"""The fake servers: what each says and does over HTTP, and where it lies."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpcore
import pytest
from testkit.engine import EngineServer
from testkit.gguf import build_tiny_gguf
from testkit.servers import (
    GenericServer,
    LlamaCppServer,
    LMStudioServer,
    OllamaServer,
    OpenRouterServer,
    VLLMServer,
)
from testkit.servers.base import DialectServer, Lies

from lmagent.testing import ScriptedServer, call, cut, faults, hang, say, slow, status

EVERY = [LlamaCppServer, OllamaServer, LMStudioServer, VLLMServer, OpenRouterServer, GenericServer]
HELLO: list[dict[str, Any]] = [{"role": "user", "content": "hello"}]
LONG: list[dict[str, Any]] = [{"role": "user", "content": "x" * 80_000}]  # about 20,000 tokens


def send(url: str, body: Any = None, key: str = "") -> httpcore.Response:
    content = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with httpcore.ConnectionPool() as pool:
        return pool.request("GET" if body is None else "POST", url, content=content, headers=headers)


def said(url: str, body: Any = None) -> Any:
    answer = send(url, body)
    assert answer.status == 200, answer.content
    return json.loads(answer.content)


def chunks(answer: httpcore.Response) -> list[dict[str, Any]]:
    assert answer.status == 200, answer.content
    return [json.loads(line[6:]) for line in answer.content.decode().splitlines() if line.startswith("data: {")]


def chat(server: ScriptedServer, messages: Any = HELLO, **fields: Any) -> httpcore.Response:
    body = {"model": "m", "stream": True, "stream_options": {"include_usage": True}, "messages": messages} | fields
    return send(f"{server.base_url}/chat/completions", body)


def text(answer: httpcore.Response) -> str:
    return "".join(
        choice["delta"].get("content") or "" for chunk in chunks(answer) for choice in chunk.get("choices", [])
    )


# --- all of them ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", EVERY)
def test_every_fake_follows_its_script_and_keeps_the_account(make: type[DialectServer]) -> None:
    with make([call("read", path="a"), say("done"), faults.server_error()]) as server:
        first = chunks(chat(server))
        calls = [
            made for chunk in first for choice in chunk["choices"] for made in choice["delta"].get("tool_calls", [])
        ]
        assert calls[0]["function"]["name"] == "read"
        assert text(chat(server)) == "done"
        assert chat(server).status == 500
        assert len(server.chats) == 3
        assert server.prefix.ratio == 1.0


@pytest.mark.parametrize("make", EVERY)
def test_every_fake_lists_its_model_and_asks_for_its_key(make: type[DialectServer]) -> None:
    with make(api_key="right") as server:
        assert send(f"{server.base_url}/models").status == 401
        answer = send(f"{server.base_url}/models", key="right")
        assert json.loads(answer.content)["data"][0]["id"] == server.model


@pytest.mark.parametrize("make", EVERY)
def test_every_fake_can_be_a_web_page(make: type[DialectServer]) -> None:
    with make([say("hi")], lies=Lies(html=True)) as server:
        for path in ("/models", "/anything"):
            assert send(server.base_url + path).content.startswith(b"<!doctype html>")
        assert text(chat(server)) == "hi"


@pytest.mark.parametrize("make", EVERY)
@pytest.mark.parametrize("lie", ["zero", "missing", "wrong_field"])
def test_every_fake_can_lie_about_its_usage(make: type[DialectServer], lie: Any) -> None:
    with make([say("hi")], lies=Lies(usage=lie)) as server:
        usages = [chunk["usage"] for chunk in chunks(chat(server)) if chunk.get("usage")]
        assert usages == [] if lie != "zero" else not any(usage["prompt_tokens"] for usage in usages)


@pytest.mark.parametrize("make", [LlamaCppServer, LMStudioServer, VLLMServer, GenericServer])
def test_a_fake_refuses_what_does_not_fit_unless_it_cuts(make: type[DialectServer]) -> None:
    with make([say("hi")]) as server:
        assert chat(server, LONG).status == 400
    with make([say("hi")], lies=Lies(cut=True)) as server:
        assert chunks(chat(server, LONG))[-1]["usage"]["prompt_tokens"] == 8192


def test_a_window_can_shrink_while_the_stated_one_stays() -> None:
    with VLLMServer(
        lambda _: say("hi"), window=32_768, lies=Lies(shrinks=(32_768, 4096), stated_window=32_768)
    ) as server:
        assert chat(server, LONG).status == 200
        assert chat(server, LONG).status == 400
        assert said(f"{server.base_url}/models")["data"][0]["max_model_len"] == 32_768


def test_figures_can_be_stated_as_text() -> None:
    with VLLMServer(lies=Lies(stated_as_text=True)) as server:
        assert said(f"{server.base_url}/models")["data"][0]["max_model_len"] == "8192"


# --- llama.cpp ------------------------------------------------------------------------------------------------------


def test_the_slots_of_llamacpp_share_the_window() -> None:
    with LlamaCppServer([say("hi")], context=32_768, slots=4) as server:
        props = said(f"{server.url}/props")
        assert (props["default_generation_settings"]["n_ctx"], props["total_slots"]) == (8192, 4)
        assert [slot["n_ctx"] for slot in said(f"{server.url}/slots")] == [8192] * 4
        assert chat(server, LONG).status == 400


def test_progress_is_reported_only_to_those_who_ask() -> None:
    with LlamaCppServer(lambda _: say("hi"), context=65_536) as server:
        assert not any("prompt_progress" in chunk for chunk in chunks(chat(server, LONG)))
        again = [
            chunk["prompt_progress"]
            for chunk in chunks(chat(server, LONG, return_progress=True))
            if "prompt_progress" in chunk
        ]
        assert [row["processed"] == row["cache"] for row in again] == [True, False], "all but the last token was there"
        other = [{"role": "user", "content": "y" * 80_000}]
        rows = [
            chunk["prompt_progress"]
            for chunk in chunks(chat(server, other, return_progress=True))
            if "prompt_progress" in chunk
        ]
        assert len(rows) == 11, "2,048 tokens a batch"
        assert rows[-1]["processed"] == rows[-1]["total"]
        assert [row["processed"] for row in rows] == sorted(row["processed"] for row in rows)


def test_timings_tell_what_came_from_the_cache() -> None:
    with LlamaCppServer(lambda _: say("hi"), context=65_536) as server:
        first = chunks(chat(server, LONG))[-1]
        second = chunks(chat(server, [*LONG, {"role": "assistant", "content": "hi"}, *HELLO]))[-1]
        assert first["timings"]["cache_n"] == 0
        assert second["timings"]["cache_n"] > 19_000
        assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == second["timings"]["cache_n"]
        assert second["timings"]["cache_n"] + second["timings"]["prompt_n"] == second["usage"]["prompt_tokens"]
        assert "prompt_tokens_cached_total" in send(f"{server.url}/metrics").content.decode()


def test_a_side_call_on_a_slot_of_its_own_leaves_the_main_conversation_alone() -> None:
    def run(slots: int, pin: bool) -> LlamaCppServer:
        main = list(LONG)
        with LlamaCppServer(lambda _: say("hi"), context=65_536 * slots, slots=slots) as server:
            for turn in range(4):
                chat(server, main, **({"id_slot": 0} if pin else {}))
                side = [{"role": "user", "content": f"title for {turn} " * 500}]
                chat(server, side, **({"id_slot": 1} if pin else {}))
                main = [*main, {"role": "assistant", "content": "hi"}, {"role": "user", "content": f"turn {turn}"}]
        return server

    naive, pinned = run(1, pin=False), run(2, pin=True)
    assert naive.kv.evictions == 7
    assert pinned.kv.log[-2].evicted == 0
    assert pinned.kv.read * 2 < naive.kv.read


def test_requests_wait_for_a_free_slot_and_lose_nothing() -> None:
    with LlamaCppServer(lambda _: slow(say("hi"), first=0.15), slots=2) as server:
        threads = [threading.Thread(target=chat, args=(server,)) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert len(server.kv.log) == 5
        assert {row.slot for row in server.kv.log} == {0, 1}
        assert all(until_free(server, slot) for slot in (0, 1))


def until_free(server: LlamaCppServer, slot: int) -> bool:
    """The slot is given back when the last byte has left, which the client may see a moment earlier."""
    deadline = time.monotonic() + 5
    while not server.kv.free(slot) and time.monotonic() < deadline:
        time.sleep(0.01)
    return server.kv.free(slot)


def test_a_request_that_broke_off_gives_its_slot_back() -> None:
    with LlamaCppServer([cut(say("a long answer"), chunks=1), say("hi")]) as server:
        with pytest.raises(httpcore.RemoteProtocolError):
            chat(server)
        assert until_free(server, 0)
        assert text(chat(server)) == "hi"


def test_reading_takes_time_at_a_given_speed() -> None:
    with LlamaCppServer([say("hi"), say("hi")], context=65_536, speed=100_000) as server:
        begun = time.monotonic()
        rows = [
            chunk["prompt_progress"]
            for chunk in chunks(chat(server, LONG, return_progress=True))
            if "prompt_progress" in chunk
        ]
        assert time.monotonic() - begun > 0.19
        assert rows[-1]["time_ms"] == pytest.approx(200, abs=5)


def test_a_router_loads_a_model_for_a_question_unless_told_not_to() -> None:
    with LlamaCppServer([say("hi")], router=True) as server:
        assert said(f"{server.url}/props")["role"] == "router"
        assert send(f"{server.url}/props?model=test-model&autoload=false").status == 400
        assert server.loads == 0
        assert said(f"{server.url}/props?model=test-model")["total_slots"] == 1
        assert server.loads == 1


# --- Ollama ---------------------------------------------------------------------------------------------------------


def native(server: OllamaServer, messages: Any = HELLO, **fields: Any) -> list[dict[str, Any]]:
    answer = send(f"{server.url}/api/chat", {"model": server.model, "messages": messages} | fields)
    assert answer.status == 200, answer.content
    return [json.loads(line) for line in answer.content.splitlines()]


def test_ollama_states_a_window_only_while_the_model_is_loaded() -> None:
    with OllamaServer(lambda _: say("hi")) as server:
        assert said(f"{server.url}/api/ps")["models"] == []
        native(server, options={"num_ctx": 16_384})
        assert said(f"{server.url}/api/ps")["models"][0]["context_length"] == 16_384
        chat(server)
        assert said(f"{server.url}/api/ps")["models"][0]["context_length"] == 4096
        assert server.reloads == 1
        server.unload()
        assert said(f"{server.url}/api/ps")["models"] == []


def test_ollama_cuts_on_both_routes_unless_truncate_is_false() -> None:
    with OllamaServer(lambda _: say("hi")) as server:
        assert chunks(chat(server, LONG))[-1]["usage"]["prompt_tokens"] == 4096
        assert native(server, LONG)[-1]["prompt_eval_count"] == 4096
        refused = send(f"{server.url}/api/chat", {"messages": LONG, "truncate": False})
        assert refused.status == 400
        inner = json.loads(json.loads(refused.content)["error"])["error"]
        assert (inner["n_ctx"], inner["type"]) == (4096, "exceed_context_size_error")


def test_ollama_gives_no_more_than_the_model_has() -> None:
    with OllamaServer(lambda _: say("hi"), maximum=8192) as server:
        native(server, options={"num_ctx": 131_072})
        assert server.loaded_window == 8192


def test_a_native_stream_is_one_object_a_line_and_the_last_one_counts() -> None:
    with OllamaServer([call("read", path="a"), say("hi")]) as server:
        lines = native(server)
        assert lines[0]["message"]["tool_calls"] == [
            {"function": {"index": 0, "name": "read", "arguments": {"path": "a"}}}
        ]
        assert [line["done"] for line in lines] == [False, True]
        assert lines[-1]["done_reason"] == "stop"
        whole = native(server, stream=False)
        assert whole[0]["message"]["content"] == "hi"
        assert whole[0]["done"]


def test_ollama_knows_only_its_own_models() -> None:
    with OllamaServer(capabilities=("completion",)) as server:
        assert said(f"{server.url}/api/show", {"model": "qwen3:8b"})["capabilities"] == ["completion"]
        assert send(f"{server.url}/api/show", {"model": "other"}).status == 404


# --- the others -----------------------------------------------------------------------------------------------------


def test_lm_studio_loads_on_demand_and_answers_nonsense_with_200() -> None:
    with LMStudioServer([say("hi")], loaded=False, window=4096) as server:
        assert said(f"{server.url}/api/v1/models")["models"][0]["loaded_instances"] == []
        assert "loaded_context_length" not in said(f"{server.url}/api/v0/models")["data"][0]
        chat(server)
        config = said(f"{server.url}/api/v1/models")["models"][0]["loaded_instances"][0]["config"]
        assert config["context_length"] == 4096
        assert "error" in said(f"{server.url}/props")
        server.unload()
        assert said(f"{server.url}/api/v0/models")["data"][0]["state"] == "not-loaded"


def test_lm_studio_can_state_the_models_maximum_though_less_is_loaded() -> None:
    with LMStudioServer([say("hi")], window=4096, lies=Lies(stated_window=131_072, cut=True)) as server:
        config = said(f"{server.url}/api/v1/models")["models"][0]["loaded_instances"][0]["config"]
        assert config["context_length"] == 131_072
        assert chunks(chat(server, LONG))[-1]["usage"]["prompt_tokens"] == 4096


def test_vllm_counts_the_reply_against_the_window() -> None:
    with VLLMServer(lambda _: say("hi"), window=4096) as server:
        assert chat(server, max_tokens=4000).status == 200
        assert chat(server, max_tokens=4090).status == 400
        assert said(f"{server.url}/tokenize", {"prompt": "x" * 40})["count"] == 10


def test_openrouter_cuts_for_small_models_unless_its_plugin_is_switched_off() -> None:
    with OpenRouterServer(lambda _: say("hi"), window=8192) as server:
        assert chunks(chat(server, LONG))[-1]["usage"]["prompt_tokens"] == 8192
        plugin = {"id": "context-compression"}
        assert chat(server, LONG, plugins=[plugin | {"enabled": False}]).status == 400
        assert chat(server, LONG, plugins=[plugin]).status == 200
    with OpenRouterServer(lambda _: say("hi"), window=16_384) as server:
        assert chat(server, LONG).status == 400


def test_koboldcpp_imitates_ollama() -> None:
    with GenericServer(kind="koboldcpp") as server:
        assert said(f"{server.url}/api/version")["version"]
        assert said(f"{server.url}/api/extra/version")["result"] == "KoboldCpp"


def test_a_fake_serves_failures_and_silence_as_well() -> None:
    with LlamaCppServer([status(503), hang(say("hi"), chunks=1)]) as server:
        assert chat(server).status == 503
        url, body = f"{server.base_url}/chat/completions", json.dumps({"stream": True, "messages": HELLO}).encode()
        with httpcore.ConnectionPool() as pool, pytest.raises(httpcore.ReadTimeout):
            pool.request("POST", url, content=body, extensions={"timeout": {"read": 0.2}})


# --- beside the real engine -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineServer]:
    for package in ("xllamacpp", "gguf"):
        pytest.importorskip(package, reason=f"the real engine was NOT tested: the package {package} is missing")
    with EngineServer(build_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")) as server:
        yield server


def shape(value: Any, like: Any) -> Any:
    """Of `value` the keys that `like` has, with the kinds of their values."""
    if isinstance(like, dict):
        return (
            {key: shape(value.get(key), inner) for key, inner in like.items()} if isinstance(value, dict) else "missing"
        )
    if isinstance(like, list):
        return [shape(value[0], like[0])] if like and isinstance(value, list) and value else []
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return "number" if number else type(value).__name__


@pytest.mark.engine
def test_the_fake_llamacpp_says_nothing_in_another_shape_than_the_real_one(engine: EngineServer) -> None:
    with LlamaCppServer(lambda _: say("hi"), context=32_768) as fake:
        for path in ("/props", "/slots", "/v1/models"):
            ours = said(fake.url + path)
            assert shape(said(engine.url + path), ours) == shape(ours, ours), path
        for path, body in (
            ("/tokenize", {"content": "hello"}),
            ("/apply-template", {"messages": HELLO}),
            ("/v1/chat/completions/input_tokens", {"messages": HELLO}),
        ):
            ours = said(fake.url + path, body)
            assert shape(said(engine.url + path, body), ours) == shape(ours, ours), path


@pytest.mark.engine
def test_the_fake_llamacpp_reports_progress_and_timings_as_the_real_one_does(engine: EngineServer) -> None:
    body = {"stream": True, "messages": HELLO, "return_progress": True, "stream_options": {"include_usage": True}}
    body |= {"max_tokens": 3, "id_slot": 0}
    with LlamaCppServer(lambda _: say("hi"), context=32_768) as fake:
        for _ in range(2):
            ours = chunks(send(f"{fake.base_url}/chat/completions", body))
            theirs = chunks(send(f"{engine.base_url}/chat/completions", body))
            for pick in (0, -1):
                assert shape(theirs[pick], ours[pick]) == shape(ours[pick], ours[pick])
            done = [(row["processed"] - row["cache"] == 0, row["total"] == row["processed"]) for row in progress(ours)]
            assert done == [
                (row["processed"] - row["cache"] == 0, row["total"] == row["processed"]) for row in progress(theirs)
            ]


def progress(events: list[dict[str, Any]]) -> list[dict[str, int]]:
    return [event["prompt_progress"] for event in events if "prompt_progress" in event]
