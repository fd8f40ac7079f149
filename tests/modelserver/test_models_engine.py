"""From the hub to the engine: a model that was pulled is found, loaded and answers."""

from __future__ import annotations

import json
import urllib.request

import anyio
import pytest
from fakehub import REPO, FakeHub
from testkit.engine import EngineServer

from lmagent.modelserver.library.download import Ports
from lmagent.modelserver.library.hub import ModelHub
from lmagent.modelserver.library.library import Library
from lmagent.modelserver.library.pull import Puller
from lmagent.providers.transport import HttpTransport


class Nothing:
    def begin(self, name: str, size: int, have: int) -> None: ...

    def advance(self, count: int) -> None: ...

    def note(self, text: str) -> None: ...


@pytest.mark.engine
def test_a_pulled_model_is_found_loaded_and_answers(tmp_path):
    for package in ("xllamacpp", "gguf"):
        pytest.importorskip(package, reason=f"the real engine was NOT tested: the package {package} is missing")
    from testkit.gguf import build_tiny_gguf

    content = build_tiny_gguf(tmp_path / "tiny.gguf").read_bytes()

    async def pull(hub: FakeHub) -> None:
        transport = HttpTransport(hub.env)
        await Puller(ModelHub(transport, hub.env), tmp_path / "models", Ports(Nothing())).pull(REPO)
        await transport.aclose()

    with FakeHub({"Tiny-F32.gguf": content}, cuts=[100_000]) as hub:
        anyio.run(pull, hub)
    entry = Library(tmp_path / "models", {"HOME": str(tmp_path)}).find("tiny")
    assert entry.broken == ""
    with EngineServer(entry.path, context=entry.settings.context) as engine:
        body = {"model": "tiny", "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]}
        request = urllib.request.Request(
            f"{engine.base_url}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert json.load(answer)["usage"]["completion_tokens"] == 4
