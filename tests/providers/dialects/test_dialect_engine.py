"""The llama.cpp dialect on the real llama.cpp engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from dialect_kit import READ, ask, request, with_transport
from testkit.engine import EngineServer
from testkit.gguf import build_tiny_gguf

from lmagent.core.messages import user
from lmagent.core.model import ModelRequest
from lmagent.providers.dialects.ask import Ask
from lmagent.providers.dialects.probe import count_tokens, dialect_of
from lmagent.providers.encode import chat_body
from lmagent.providers.transport import Timeouts, Transport

pytestmark = pytest.mark.engine
PATIENT = Timeouts(connect=5.0, first_byte=30.0, idle=30.0)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineServer]:
    for package in ("xllamacpp", "gguf"):
        pytest.importorskip(package, reason=f"the real engine was NOT tested: the package {package} is missing")
    with EngineServer(build_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf"), context=16_384) as server:
        yield server


def test_the_engine_is_recognised_with_the_window_it_was_loaded_with(engine: EngineServer) -> None:
    facts = ask(engine.base_url, timeouts=PATIENT, budget=30.0)
    assert (facts.dialect, facts.slots, facts.id_slot) == ("llamacpp", 1, True)
    assert facts.model is not None
    assert (facts.model.id, facts.model.window, facts.model.proof) == ("tiny", 16_384, "loaded")


def test_the_engine_counts_tokens_of_requests(engine: EngineServer) -> None:
    facts = ask(engine.base_url, timeouts=PATIENT, budget=30.0)

    def count(asked: ModelRequest) -> int | None:
        return with_transport(
            lambda transport: count_tokens(transport, engine.base_url, facts, asked, timeouts=PATIENT), 30.0
        )

    short, long = count(request("hello")), count(request("hello " * 50))
    assert short is not None
    assert long is not None
    assert long > short + 20


def test_the_engine_takes_what_the_dialect_adds(engine: EngineServer) -> None:
    facts = ask(engine.base_url, timeouts=PATIENT, budget=30.0)
    wanted = request(messages=[user("hi")], tools=(READ,))
    body = chat_body(wanted) | {"max_tokens": 40} | dialect_of(facts).extras(wanted, facts, 0)

    async def send(transport: Transport) -> Any:
        return await Ask(transport, engine.base_url, timeouts=PATIENT).post("/v1/chat/completions", body)

    assert isinstance(with_transport(send, 30.0), dict), "the engine refused the request"
