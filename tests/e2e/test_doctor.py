"""`lmagent doctor` against each server: it tells the truth, and keeps it as the model's profile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmagent.testing.engine import EngineServer
from lmagent.testing.gguf import build_tiny_gguf
from lmagent.testing.script import call, calls, say, tool
from lmagent.testing.servers.base import Lies
from lmagent.testing.servers.generic import GenericServer
from lmagent.testing.servers.llamacpp import LlamaCppServer
from lmagent.testing.servers.lmstudio import LMStudioServer
from lmagent.testing.servers.ollama import OllamaServer
from lmagent.testing.servers.openrouter import OpenRouterServer
from lmagent.testing.servers.vllm import VLLMServer


def doctor(base_url: str, home: Path, *arguments: str) -> dict[str, dict]:
    (home / "ws").mkdir(exist_ok=True)
    command = [sys.executable, "-m", "lmagent", "doctor", "--json", "-w", str(home / "ws"), "--base-url", base_url]
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "LLM_RETRY_DELAY": "0"}
    ran = subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in ran.stderr, ran.stderr
    return {finding["name"]: finding for finding in json.loads(ran.stdout)}


def profile(home: Path) -> dict:
    (entry,) = json.loads((home / ".local/share/lmagent/models.json").read_text())["models"].values()
    return entry["profile"]


def able(received):
    """A model that does all it is asked to."""
    asked = str(received.body["messages"][-1]["content"])
    if "twice" in asked:
        return calls(tool("report_word", word="one"), tool("report_word", word="two"))
    if "report_word" in asked:
        return call("report_word", word="hello")
    if "poem" in asked:
        return say('{"number": 7}' if "response_format" in received.body or "format" in received.body else "Roses.")
    return say("Red." if "colour" in asked else "OK")


def unable(_):
    return say("I am only words.")


SERVERS = {
    "llama.cpp": (
        lambda: LlamaCppServer(able, context=32768, slots=2, vision=True),
        "16,384 tokens are served (loaded)",
    ),
    "LM Studio": (lambda: LMStudioServer(able, window=16384, maximum=131072, loaded=True), "16,384 tokens are served"),
    "Ollama": (lambda: OllamaServer(able), "16,384 tokens are served (asked for with each request)"),
    "vLLM": (lambda: VLLMServer(able, window=16384), "16,384 tokens are served"),
    "OpenRouter": (lambda: OpenRouterServer(able, window=16384), "16,384 tokens are served"),
    "KoboldCpp": (lambda: GenericServer(able, kind="koboldcpp", window=16384), "16,384 tokens are served"),
}


@pytest.mark.parametrize("label", SERVERS)
def test_each_server_is_recognised_and_examined(label, tmp_path):
    make, window = SERVERS[label]
    with make() as server:
        found = doctor(server.base_url, tmp_path)
        assert label in found["server is"]["text"] or label == "OpenRouter"
        assert window in found["window"]["text"]
        assert "structured" in found["tool calls"]["text"]
        assert found["parallel calls"]["text"] == "several calls in one reply"
        assert found["JSON schema"]["state"] == "ok"
    kept = profile(tmp_path)
    assert (kept["window"], kept["tool calls"], kept["parallel calls"], kept["JSON schema"]) == (
        16384,
        "structured",
        True,
        True,
    )
    assert kept["reads tokens/s"] > 0


def test_a_cache_that_is_kept_is_noticed_and_one_that_is_not(tmp_path):
    with LlamaCppServer(able, context=16384) as server:
        assert "is not read again" in doctor(server.base_url, tmp_path)["speed"]["text"]
    with VLLMServer(able, window=16384) as server:
        assert doctor(server.base_url, tmp_path)["speed"]["state"] in ("ok", "warning")


def test_a_model_that_can_nothing_is_told_so_with_what_to_do(tmp_path):
    with LMStudioServer(unable, window=4096, maximum=131072, loaded=True) as server:
        found = doctor(server.base_url, tmp_path)
    assert "4,096 tokens are served, which is small; the model was made for 131,072" in found["window"]["text"]
    for name in ("window", "tool calls", "JSON schema"):
        assert found[name]["state"] == "warning"
    assert found["tool calls"]["fix"]
    assert profile(tmp_path)["tool calls"] == "none"


def test_calls_in_text_are_named_with_their_format(tmp_path):
    def hermes(received):
        if "Call report_word with" not in str(received.body["messages"]):
            return say("OK")
        return say('<tool_call>\n{"name": "report_word", "arguments": {"word": "hello"}}\n</tool_call>')

    with GenericServer(hermes, window=16384) as server:
        assert "as text (hermes)" in doctor(server.base_url, tmp_path)["tool calls"]["text"]
    assert profile(tmp_path)["tool calls"] == "as text (hermes)"


def test_a_server_that_answers_questions_with_a_web_page_is_examined_all_the_same(tmp_path):
    with VLLMServer(able, window=16384, lies=Lies(html=True)) as server:
        found = doctor(server.base_url, tmp_path)
        assert found["server"]["state"] == "warning"
        assert "structured" in found["tool calls"]["text"]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineServer]:
    for package in ("xllamacpp", "gguf"):
        pytest.importorskip(package, reason=f"the real engine was NOT tested: the package {package} is missing")
    with EngineServer(build_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf"), context=16384) as server:
        yield server


@pytest.mark.engine
def test_the_real_engine_is_examined(engine, tmp_path):
    found = doctor(engine.base_url, tmp_path)
    assert "llama.cpp" in found["server is"]["text"]
    assert "16,384 tokens are served (loaded)" in found["window"]["text"]
    assert found["JSON schema"]["text"] == "enforced: calls can be constrained"
    assert "is not read again" in found["speed"]["text"]
