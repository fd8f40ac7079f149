from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from provider_loopback import Answer, TestClock, loopback

from lmagent.core.errors import BadReply, Unreachable
from lmagent.providers.discovery import Candidate, FoundServer, discover, models
from lmagent.providers.served import Endpoint, Served
from lmagent.providers.transport import HttpTransport, Timeouts

QUICK = Timeouts(connect=1.0, first_byte=0.5, idle=0.5)


def answer(body: Any) -> Answer:
    return Answer([json.dumps(body).encode()], content_type="application/json")


def listed(*entries: dict[str, Any]) -> Answer:
    return answer({"object": "list", "data": list(entries)})


NOT_FOUND = Answer([b'{"error":"Not Found"}'], status=404, content_type="application/json")
RUBBISH = answer({"error": "Unexpected endpoint or method. (GET /x). Returning 200 anyway"})
M: dict[str, Any] = {"id": "m", "object": "model"}

WINDOWS: dict[str, tuple[dict[str, Answer], Answer, int | None]] = {
    "vLLM": ({"/v1/models": listed({**M, "owned_by": "vllm", "max_model_len": 4096})}, NOT_FOUND, 4096),
    "OpenRouter": (
        {"/v1/models": listed({**M, "context_length": 131072, "top_provider": {"context_length": 32768}}, {"id": "n"})},
        NOT_FOUND,
        32768,
    ),
    "LM Studio": (
        {
            "/v1/models": listed({**M, "owned_by": "organization_owner"}, {"id": "other"}),
            "/api/v1/models": answer(
                {"models": [
                    {"key": "other", "max_context_length": 9, "loaded_instances": []},
                    {"key": "m", "max_context_length": 131072,
                     "loaded_instances": [{"id": "m", "config": {"context_length": 8192}}]},
                ]}
            ),
        },
        RUBBISH,
        8192,
    ),
    "LM Studio, older": (
        {
            "/v1/models": listed({**M, "owned_by": "organization_owner"}),
            "/api/v0/models": listed({**M, "max_context_length": 131072, "loaded_context_length": 4096}),
        },
        RUBBISH,
        4096,
    ),
    "llama.cpp": (
        {
            "/v1/models": listed({**M, "owned_by": "llamacpp", "meta": {"n_ctx_train": 131072}}),
            "/props": answer({"default_generation_settings": {"n_ctx": 8192}, "total_slots": 4}),
        },
        NOT_FOUND,
        8192,
    ),
    "llama.cpp with a window for all slots": (
        {"/v1/models": listed(M), "/props": answer({"n_ctx": 8192, "total_slots": 4})},
        NOT_FOUND,
        2048,
    ),
    "Ollama": (
        {
            "/v1/models": listed({"id": "m:latest", "owned_by": "library"}),
            "/api/ps": answer({"models": [{"name": "m:latest", "model": "m:latest", "context_length": 4096}]}),
        },
        NOT_FOUND,
        4096,
    ),
    "Ollama with nothing loaded": (
        {"/v1/models": listed({"id": "m:latest", "owned_by": "library"}), "/api/ps": answer({"models": []})},
        NOT_FOUND,
        None,
    ),
    "200 with rubbish everywhere": ({"/v1/models": listed(M)}, RUBBISH, None),
    "200 with a web page everywhere": ({}, Answer([b"<html></html>"], content_type="text/html"), None),
    "odd shapes": (
        {"/v1/models": answer({"data": [7, {"id": "m", "max_model_len": "big"}]}),
         "/props": answer([1]), "/api/ps": answer({"models": {"m": 1}})},
        NOT_FOUND,
        None,
    ),
    "a model maximum is no served window": (
        {"/v1/models": listed({**M, "context_length": 131072, "meta": {"n_ctx_train": 131072}})}, NOT_FOUND, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WINDOWS)
def test_the_window_that_is_really_served_is_read(name: str) -> None:
    routes, otherwise, window = WINDOWS[name]

    async def go() -> tuple[int | None, int]:
        async with loopback(otherwise, routes=routes) as server:
            transport = HttpTransport({})
            model = (await Served(Endpoint(server.url), transport, TestClock()).facts("m", deep=True)).model
            await transport.aclose()
            return model.served if model is not None else None, server.connections

    assert anyio.run(go) == (window, 1)


def test_running_servers_are_found_and_everything_else_is_passed_over() -> None:
    async def go() -> tuple[list[FoundServer], list[str]]:
        transport = HttpTransport({})
        async with (
            loopback(listed({"id": "a", "owned_by": "llamacpp"})) as one,
            loopback(Answer([b"<html>hello</html>"], content_type="text/html")) as page,
            loopback(Answer(before_head=2.0)) as silent,
            loopback(listed()) as empty,
            loopback(answer({"object": "list", "owned_by": "lmagent", "data": []})) as own,
        ):
            async with loopback(NOT_FOUND) as gone:
                closed = gone.url
            urls = [one.url, page.url, silent.url, empty.url, own.url, closed]
            found = await discover(transport, [Candidate(f"c{n}", url) for n, url in enumerate(urls)], QUICK)
            await transport.aclose()
        return found, urls

    found, urls = anyio.run(go)
    assert found == [
        FoundServer("llama.cpp", urls[0], ("a",)),
        FoundServer("c3", urls[3], ()),
        FoundServer("lmagent's model server", urls[4], ()),
    ]


def test_the_models_are_listed_or_the_reason_is_given() -> None:
    async def go() -> None:
        transport = HttpTransport({})
        async with loopback(listed(M, {"id": "n"})) as server:
            url = server.url
            assert await models(url, "key", transport=transport) == ("m", "n")
            assert server.requests[0].headers["authorization"] == "Bearer key"
        with pytest.raises(Unreachable, match="nothing listens"):
            await models(url, transport=transport)
        async with loopback(RUBBISH) as server:
            with pytest.raises(BadReply, match="no list of models"):
                await models(server.url, transport=transport)
        await transport.aclose()

    anyio.run(go)
