"""Embedders that fail, change or come late, and the one that comes along."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from testkit.search_kit import ConceptEmbedder, opened, said

from lmagent.core.errors import ConfigError, ProviderError
from lmagent.memory.search import embedding, vectors
from lmagent.memory.search.endpoint import EndpointEmbedder
from lmagent.memory.search.minilm import MiniLM
from lmagent.memory.search.sources import SqliteSourcedIndex
from lmagent.testing.loopback import Hang, LoopbackServer, Received, Response, held_port

TALK = said("Ann: Our new puppy sleeps all day", session="a") + said("Bob: The soup was cold", session="b")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "SOONEST", 0.05)
    monkeypatch.setattr(embedding, "REST", 0.05)


def answer(request: Received, count: int | None = None, width: int = 32) -> Response:
    texts = request.fields["input"]
    made = ConceptEmbedder(width=width).embed(texts)[:count]
    data = [{"index": place, "embedding": vector} for place, vector in enumerate(made)]
    return Response((json.dumps({"data": data[::-1]}).encode(),))


@contextmanager
def serving(*answers: Callable[[Received], Response]) -> Iterator[LoopbackServer]:
    """A server whose first answers are these; the last one repeats."""
    left = list(answers)

    async def handle(request: Received) -> Response:
        return (left.pop(0) if len(left) > 1 else left[0])(request)

    with LoopbackServer(handle) as server:
        yield server


def endpoint(server: LoopbackServer) -> EndpointEmbedder:
    return EndpointEmbedder(f"{server.url}/v1", "concepts", "secret", timeout=0.3)


def test_an_endpoint_gives_vectors(tmp_path: Path) -> None:
    with serving(answer) as server:
        index, notices = opened(tmp_path, endpoint(server))
        index.index(TALK)
        assert index.wait_embedded(20)
        assert index.search("which pet", 1)[0].id == "a1"
        assert notices == []
        index.close()


def test_the_vector_of_a_query_is_made_once(tmp_path: Path) -> None:
    embedder = ConceptEmbedder()
    index, _ = opened(tmp_path, embedder)
    index.index(TALK)
    assert index.wait_embedded(20)
    for _ in range(3):
        index.search("which pet", 1)
    assert embedder.texts.count("which pet") == 1


FAULTS: dict[str, Callable[[Received], Response]] = {
    "500": lambda request: Response((b"out of memory",), 500),
    "half a batch": lambda request: answer(request, len(request.fields["input"]) // 2),
    "no JSON": lambda request: Response((b"<html>",), 200),
    "hang": lambda request: Response((), before_head=(Hang(),)),
    "no numbers": lambda request: Response((b'{"data": [{"index": 0, "embedding": []}]}',), 200),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_with_a_faulty_server_writes_and_searches_succeed_and_vectors_come_when_it_is_well(
    tmp_path: Path, fault: str
) -> None:
    with serving(*[FAULTS[fault]] * 4, answer) as server:
        index, notices = opened(tmp_path, endpoint(server))
        index.index(TALK)
        assert index.search("puppy", 1)[0].id == "a1"
        assert index.wait_embedded(30)
        assert index.fault == ""
        assert "found by their words alone" in notices[0]
        time.sleep(0.1)
        assert index.search("which pet", 1)[0].id == "a1"
        index.close()


def test_a_server_that_is_not_there_costs_a_search_nothing(tmp_path: Path) -> None:
    with held_port() as port:
        index, notices = opened(tmp_path, f"http://127.0.0.1:{port}")
        index.index(TALK)
        assert index.search("puppy", 1)[0].id == "a1"
        assert not index.wait_embedded(0.3)
        assert "cannot be reached" in index.fault
        assert len(notices) == 1
        index.close()


def test_one_text_that_a_server_refuses_leaves_the_others_their_vectors(tmp_path: Path) -> None:
    def choosy(request: Received) -> Response:
        bad = any("poison" in text for text in request.fields["input"])
        return Response((b"no",), 400) if bad else answer(request)

    with serving(choosy) as server:
        index, _ = opened(tmp_path, endpoint(server))
        index.index([{"id": "p", "text": "poison"}, *TALK, *said(*[f"Cid: entry {n}" for n in range(40)], session="c")])
        assert not index.wait_embedded(2)
        assert index.search("which pet", 1)[0].id == "a1"
        assert index.search("poison", 1)[0].id == "p"
        index.close()


def test_another_dimension_than_before_makes_all_vectors_anew(tmp_path: Path) -> None:
    with serving(answer) as server:
        index, _ = opened(tmp_path, endpoint(server))
        index.index(TALK)
        assert index.wait_embedded(20)
        index.close()
    with serving(lambda request: answer(request, width=48)) as server:
        index, _ = opened(tmp_path, endpoint(server))
        assert index.search("puppy", 1)[0].id == "a1"
        index.index(said("Cid: A flight in May", session="c"))
        assert index.wait_embedded(20)
        assert index.search("which pet", 1)[0].id == "a1"
        assert index.search("her journey", 1)[0].id == "c1"
        index.close()


def test_another_model_makes_all_vectors_anew(tmp_path: Path) -> None:
    index, _ = opened(tmp_path, ConceptEmbedder("old", 64))
    index.index(TALK)
    assert index.wait_embedded(20)
    index.close()
    embedder = ConceptEmbedder("new")
    index, _ = opened(tmp_path, embedder)
    index.search("puppy", 1)
    assert index.wait_embedded(20)
    assert {"Our new puppy sleeps all day", "The soup was cold"} <= set(embedder.texts)
    assert index.search("which pet", 1)[0].id == "a1"


def test_items_indexed_without_an_embedder_get_vectors_later(tmp_path: Path) -> None:
    index, _ = opened(tmp_path)
    index.index(TALK)
    index.close()
    index, _ = opened(tmp_path, ConceptEmbedder())
    assert index.wait_embedded(20)
    assert index.search("which pet", 1)[0].id == "a1"


def test_without_numpy_words_count_alone_and_the_notice_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lmagent.memory.search.vectors", None)
    index, notices = opened(tmp_path, ConceptEmbedder())
    index.index(TALK)
    assert index.search("puppy", 1)[0].id == "a1"
    assert not index.wait_embedded(5)
    assert "pip install 'lmagent-local[embed]'" in notices[0]


def test_without_the_models_files_words_count_alone_and_the_notice_says_what_to_install(tmp_path: Path) -> None:
    index, notices = opened(tmp_path / "index", MiniLM(tmp_path))
    index.index(TALK)
    assert index.search("puppy", 1)[0].id == "a1"
    assert not index.wait_embedded(5)
    assert "cannot be read" in notices[0]


def test_the_memory_that_means_the_same_is_found_however_many_messages_do(tmp_path: Path) -> None:
    index = SqliteSourcedIndex(tmp_path / "index.db", ConceptEmbedder(), print)
    index.index([{"id": "m-1", "text": "The dog is a puppy"}, {"id": "m-2", "text": "The soup was cold"}])
    index.index(
        said(*[f"Ada: our dog, a pet, a puppy, no cat, {n}" for n in range(40)], session="20261127_120000_abcdef#")
    )
    index.index({"id": f"x{n}", "text": f"entry {n}"} for n in range(40))
    assert index.wait_embedded(20)
    assert index.alike("a pet, our dog", 0.8, "m-") == "m-1"
    assert index.alike("her journey by train", 0.8, "m-") == ""
    index.remove(["m-1"])
    assert index.alike("a pet, our dog", 0.8, "m-") == ""
    index.close()


class Random:
    """A vector of its own for each text."""

    name = "random"

    def embed(self, texts: Sequence[str]) -> object:
        import zlib

        import numpy as np

        return [np.random.default_rng(zlib.crc32(text.encode())).standard_normal(64) for text in texts]


def test_above_the_limit_signs_find_what_whole_vectors_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "SAMPLE", 300)
    monkeypatch.setattr(vectors, "RESCORED", 50)
    index, _ = opened(tmp_path, Random())
    index.index({"id": str(n), "text": f"entry {n}"} for n in range(700))
    assert index.wait_embedded(60)
    whole = [index.search(f"entry {n}", 1)[0].id for n in range(0, 700, 70)]
    index.close()
    monkeypatch.setattr(vectors, "SMALL", 100)
    index, _ = opened(tmp_path, Random())
    assert [index.search(f"entry {n}", 1)[0].id for n in range(0, 700, 70)] == whole
    index.index([{"id": "new", "text": "a late one"}, {"id": "70", "text": "changed"}])
    assert index.wait_embedded(20)
    assert index.search("a late one", 1)[0].id == "new"
    assert index.search("changed", 1)[0].id == "70"
    assert index.search("entry 70", 1)[0].id != "70"
    index.close()
    index, _ = opened(tmp_path, Random())
    assert index.search("changed", 1)[0].id == "70"


def test_minilm_makes_the_published_vectors() -> None:
    import numpy as np

    from lmagent.memory.search.bert import pooled
    from lmagent.memory.search.minilm import loaded_model, package_folder

    model, tokenizer = loaded_model(package_folder())
    texts = ("That is a happy person", "That is a happy dog", "That is a very happy person", "Today is a sunny day")
    found = []
    for text in texts:
        tokens = np.array([[tokenizer.first, *tokenizer.tokens(text, 50), tokenizer.last]])
        vector = pooled(model.hidden(tokens, np.array([tokens.shape[1]])), np.ones(tokens.shape, np.float32))[0]
        found.append(vector / np.linalg.norm(vector))
    # From the model card's example on the hub, computed by the original implementation.
    assert [float(found[0] @ other) for other in found[1:]] == pytest.approx([0.694577, 0.942915, 0.256876], abs=2e-5)


def test_minilm_gives_a_text_the_same_vector_alone_and_in_a_batch() -> None:
    import numpy as np

    texts = ["A puppy", "", "世界 and a much longer text about ships, harbours and lighthouses", "a " * 3000]
    whole = MiniLM().embed(texts)
    assert np.isfinite(whole).all()
    for place, text in enumerate(texts):
        assert MiniLM().embed([text])[0] @ whole[place] == pytest.approx(1, abs=1e-5)


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        opened(tmp_path, "http://")
    with pytest.raises(ProviderError, match="cannot be reached"), held_port() as port:
        EndpointEmbedder(f"http://127.0.0.1:{port}").embed(["x"])
