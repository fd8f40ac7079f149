"""`lmagent doctor` against each server: it tells the truth, and keeps it as the model's profile."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from testkit.amount import mostly_long
from testkit.engine import EngineServer
from testkit.gguf import build_tiny_gguf
from testkit.servers.base import Lies
from testkit.servers.compatible import GenericServer, OpenRouterServer, VLLMServer
from testkit.servers.llamacpp import LlamaCppServer
from testkit.servers.lmstudio import LMStudioServer
from testkit.servers.ollama import OllamaServer

from lmagent.app.options import HostOptions
from lmagent.app.servers.doctor import examine
from lmagent.testing import faults
from lmagent.testing.script import call, hang, say, status


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


@pytest.mark.parametrize("label", mostly_long(SERVERS, kept=3))
def test_each_server_is_recognised_and_examined(label, tmp_path):
    make, window = SERVERS[label]
    with make() as server:
        found = doctor(server.base_url, tmp_path, "-m", server.model)  # OpenRouter chooses no model by itself
        assert label in found["server is"]["text"] or label == "OpenRouter"
        assert window in found["window"]["text"]
        assert "structured" in found["tool calls"]["text"]
        assert found["JSON schema"]["state"] == "ok"
    kept = profile(tmp_path)
    assert (kept["window"], kept["tool calls"], kept["JSON schema"]) == (16384, "structured", True)
    assert kept["reads tokens/s"] > 0


LIARS = {
    "llama.cpp that cuts": (
        lambda: LlamaCppServer(able, context=4096, lies=Lies(cut=True, stated_window=131072)),
        ("131,072 tokens are stated", "cut without a word; 4,096 are served"),
        4096,
    ),
    "vLLM that refuses": (
        lambda: VLLMServer(able, window=4096, lies=Lies(stated_window=131072)),
        ("131,072 tokens are stated", "refused"),
        4096,
    ),
    "one that says nothing and cuts": (
        lambda: GenericServer(able, window=4096, lies=Lies(cut=True)),
        ("no window is stated and 32,768 is assumed", "cut without a word; 4,096 are served"),
        4096,
    ),
    "one that shrinks": (
        lambda: LlamaCppServer(able, context=16384, lies=Lies(cut=True, shrinks=(16384, 2048))),
        ("16,384 tokens are stated", "2,048 are served"),
        2048,
    ),
}


@pytest.mark.parametrize("liar", mostly_long(LIARS))
def test_a_window_that_is_smaller_than_it_is_said_to_be_is_found_out(liar, tmp_path):
    make, words, served = LIARS[liar]
    with make() as server:
        found = doctor(server.base_url, tmp_path)["window"]
    assert found["state"] == "warning"
    assert all(word in found["text"] for word in words)
    assert "LMAGENT_CONTEXT_WINDOW" in found["fix"]
    assert profile(tmp_path)["window"] == served


def test_a_window_that_is_stated_once_the_model_is_loaded_is_told(tmp_path):
    with LMStudioServer(able, window=4096, maximum=131072, loaded=False) as server:
        assert "4,096 tokens are served" in doctor(server.base_url, tmp_path)["window"]["text"]


@pytest.mark.parametrize("usage", mostly_long(["zero", "missing", "wrong_field"]))
def test_a_server_that_does_not_count_is_believed_about_its_window(usage, tmp_path):
    with LlamaCppServer(able, context=16384, lies=Lies(usage=usage)) as server:
        found = doctor(server.base_url, tmp_path)
    assert "16,384 tokens are served" in found["window"]["text"]
    assert "estimated by us" in found["tool calls"]["text"]


def test_a_cache_that_is_kept_is_noticed_and_one_that_is_not(tmp_path):
    with LlamaCppServer(able, context=16384) as server:
        assert "the prompt cache works" in doctor(server.base_url, tmp_path)["speed"]["text"]
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


def ran(base_url: str, home: Path, **environment: str) -> tuple[int, dict[str, dict]]:
    (home / "ws").mkdir(exist_ok=True)
    command = [sys.executable, "-m", "lmagent", "doctor", "--json", "-w", str(home / "ws"), "--base-url", base_url]
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "LLM_RETRY_DELAY": "0"} | environment
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    return done.returncode, {finding["name"]: finding for finding in json.loads(done.stdout)}


BROKEN = {
    "refuses the key": lambda _: status(401, {"error": {"message": "Incorrect API key provided: lmk-secret-012345"}}),
    "fails": lambda _: status(500, {"error": "CUDA out of memory"}),
    "is at its limit": lambda _: status(429, {"error": "rate limited"}, {"Retry-After": "0"}),
    "answers with a web page": lambda _: faults.html_page(),
    "refuses everything": lambda _: status(400, {"error": "temperature must be at most 2"}),
}


@pytest.mark.parametrize("how", mostly_long(BROKEN))
def test_a_server_whose_chat_never_answers_is_one_fault_and_changes_no_profile(how, tmp_path):
    behaviour = able
    with GenericServer(lambda received: behaviour(received), window=16384) as server:
        assert ran(server.base_url, tmp_path)[0] in (0, 1)  # the machine may lack a sandbox
        before = profile(tmp_path)
        asked, behaviour = len(server.chats), BROKEN[how]
        code, found = ran(server.base_url, tmp_path, LLM_API_KEY="lmk-secret-012345")
        assert code == 1
        assert found["chat"]["state"] == "fault"
        assert "vision" not in found
        assert "tool calls" not in found
        assert "lmk-secret" not in str(found)
        assert len(server.chats) - asked <= 6
    assert profile(tmp_path) == before


@pytest.mark.long
def test_a_server_that_gives_no_sign_of_life_is_waited_for_once(tmp_path):
    with GenericServer(lambda _: hang(), window=16384) as server:
        begun = time.monotonic()
        code, found = ran(server.base_url, tmp_path, LLM_TIMEOUT="2")
        assert time.monotonic() - begun < 20
        assert (code, len(server.chats)) == (1, 1)
        assert "no sign of life" in found["chat"]["text"]


NO_IMAGES = {
    "plainly": status(400, {"error": "only text is taken"}),
    "with a 500": status(500, {"error": {"code": 500, "message": "image input is not supported"}}),
}


@pytest.mark.parametrize("how", NO_IMAGES)
@pytest.mark.long
def test_a_failure_over_an_image_does_not_say_that_the_model_takes_none(how, tmp_path):
    over_an_image = None

    def seer(received):
        pictured = "image_url" in str(received.body["messages"])
        return over_an_image if over_an_image and pictured else able(received)

    with GenericServer(seer, window=16384) as server:
        assert "sees" in ran(server.base_url, tmp_path)[1]["vision"]["text"]
        over_an_image = status(500, {"error": "CUDA out of memory"})
        assert ran(server.base_url, tmp_path)[1]["vision"]["state"] == "warning"
        assert profile(tmp_path)["vision"] is True, "what was measured earlier stays"
        over_an_image = NO_IMAGES[how]
        assert ran(server.base_url, tmp_path)[1]["vision"]["text"] == "the model takes no images"
        assert profile(tmp_path)["vision"] is False


def test_a_model_that_takes_no_tools_is_examined_for_the_rest(tmp_path):
    def plain(received):
        return status(400, {"error": "m does not support tools"}) if received.body.get("tools") else able(received)

    with GenericServer(plain, window=16384) as server:
        found = doctor(server.base_url, tmp_path)
    assert "does not support tools" in found["tool calls"]["text"]
    assert found["JSON schema"]["state"] == "ok"
    assert "chat" not in found


def test_the_latest_tag_of_a_model_may_be_left_out(tmp_path):
    with OllamaServer(able, model="llama3:latest") as server:
        assert doctor(server.base_url, tmp_path, "--model", "llama3")["model"]["state"] == "ok"
        assert doctor(server.base_url, tmp_path, "--model", "llama9")["model"]["state"] == "warning"


def test_findings_are_told_as_they_come(tmp_path):
    told = []

    async def main():
        with GenericServer(able, window=16384) as server:
            options = HostOptions(tmp_path, {"llm_url": server.base_url, "agent_data_dir": str(tmp_path)})
            asked = []
            found = await examine(options, lambda finding: (told.append(finding), asked.append(len(server.chats))))
            assert found == told
            assert asked[0] == 0
            assert len(set(asked)) > 4

    anyio.run(main)


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
    assert "the prompt cache works" in found["speed"]["text"]


def test_a_server_that_was_found_is_no_warning_and_what_nothing_needs_is_not_mentioned(tmp_path):
    with OllamaServer(able) as server:
        found = asked_as_a_user(tmp_path, server)
    assert "! configuration" not in found
    assert f"configuration  Found Ollama at {server.base_url}" in found
    assert not {"rg", "node", "bwrap"} & {line.split()[1] for line in found.splitlines() if line[:1] in "✓!✗"}


def test_the_report_ends_with_what_it_amounts_to(tmp_path):
    with OllamaServer(able) as server:
        closing = asked_as_a_user(tmp_path, server).splitlines()[-1]
    assert closing == "all good: type lmagent" or re.fullmatch(r"(\d+ faults?)?(, )?(\d+ warnings?)?", closing), closing
    with OllamaServer(unable) as server:
        closing = asked_as_a_user(tmp_path, server).splitlines()[-1]
    assert re.search(r"\b[1-9]\d* warnings?$", closing), closing


def test_marks_have_colours_at_a_terminal_unless_none_are_wanted(tmp_path):
    with OllamaServer(able) as server:
        assert "\x1b[32m✓\x1b[0m" in asked_at_a_terminal(tmp_path, server)
        assert "\x1b[" not in asked_at_a_terminal(tmp_path, server, NO_COLOR="1")


def as_a_user(home: Path, server: OllamaServer, **more: str) -> dict[str, Any]:
    (home / "ws").mkdir(exist_ok=True)
    host = server.base_url.split("/")[2]
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "OLLAMA_HOST": host, "LLM_RETRY_DELAY": "0", **more}
    return {"env": env, "cwd": home / "ws", "timeout": 120}


def asked_as_a_user(home: Path, server: OllamaServer) -> str:
    command = [sys.executable, "-m", "lmagent", "doctor"]
    return subprocess.run(command, **as_a_user(home, server), capture_output=True, text=True).stdout


def asked_at_a_terminal(home: Path, server: OllamaServer, **more: str) -> str:
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "lmagent", "doctor"]
    subprocess.run(command, **as_a_user(home, server, **more), stdout=slave, stderr=slave, check=False)
    os.close(slave)
    shown = b""
    with suppress(OSError):
        while piece := os.read(master, 65536):
            shown += piece
    os.close(master)
    return shown.decode()
