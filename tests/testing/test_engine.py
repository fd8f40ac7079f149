"""The real llama.cpp engine on a model of random weights: real streams, real calls, real figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpcore
import pytest
from testkit.engine import EngineServer
from testkit.forced import ForcedAnswer, ForcedCalls, Option, grammar, read_all_then_write
from testkit.gguf import build_tiny_gguf, vocabulary

TASK = "Summarise all Python files in this workspace into SUMMARY.md"


def test_a_grammar_lists_the_calls_that_may_come() -> None:
    rule = grammar([Option("read", {"path": ['a "b".py', "c.py"], "limit": [5]}), Option("write", {"content": 9})])
    assert rule == (
        'root ::= "{\\"name\\":\\"read\\",\\"arguments\\":{" "\\"path\\":" '
        '("\\"a \\\\\\"b\\\\\\".py\\"" | "\\"c.py\\"") ",\\"limit\\":" ("5") "}}"'
        ' | "{\\"name\\":\\"write\\",\\"arguments\\":{" "\\"content\\":" "\\"" [a-zA-Z0-9 .,]{1,9} "\\"" "}}"'
    )
    assert grammar(ForcedAnswer(1, 5)) == "root ::= [a-zA-Z0-9 .,]{1,5}"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineServer]:
    for package in ("xllamacpp", "gguf"):
        pytest.importorskip(package, reason=f"the real engine was NOT tested: the package {package} is missing")
    with EngineServer(build_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")) as server:
        yield server


def chat(url: str, **fields: Any) -> list[dict[str, Any]]:
    body = {"messages": [{"role": "user", "content": "hello"}], "stream": True, "max_tokens": 300} | fields
    with httpcore.ConnectionPool() as pool:
        answer = pool.request("POST", f"{url}/chat/completions", content=json.dumps(body).encode())
    assert answer.status == 200, answer.content
    lines = answer.content.decode().splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


@pytest.mark.engine
def test_the_engine_follows_a_json_schema_with_random_weights(engine: EngineServer) -> None:
    schema = {
        "type": "object",
        "properties": {"path": {"enum": ["a.txt", "b.txt"]}},
        "required": ["path"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    chunks = chat(engine.base_url, response_format=form, stream_options={"include_usage": True})
    text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    assert json.loads(text)["path"] in ("a.txt", "b.txt")
    assert chunks[-1]["usage"]["completion_tokens"] > 3


@pytest.mark.engine
def test_a_forced_call_comes_as_deltas_with_the_engines_own_figures(engine: EngineServer) -> None:
    tools = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]
    with ForcedCalls(engine.url, lambda _: [Option("read", {"path": ["a.py", "b.py"]})]) as server:
        chunks = chat(server.base_url, tools=tools, stream_options={"include_usage": True})
    calls = [call for chunk in chunks for choice in chunk["choices"] for call in choice["delta"].get("tool_calls", [])]
    assert calls[0]["function"]["name"] == "read"
    arguments = "".join(call["function"].get("arguments", "") for call in calls)
    assert json.loads(arguments)["path"] in ("a.py", "b.py")
    assert chunks[-1]["usage"] == server.usage[0]
    assert server.usage[0]["prompt_tokens"] > 30  # the tools are in the prompt that was read


@pytest.mark.engine
def test_a_prompt_beyond_the_window_gets_the_engines_own_refusal(engine: EngineServer) -> None:
    body = {"messages": [{"role": "user", "content": "x" * 40_000}], "stream": True}
    with ForcedCalls(engine.url, lambda _: ForcedAnswer()) as server, httpcore.ConnectionPool() as pool:
        answer = pool.request("POST", f"{server.base_url}/chat/completions", content=json.dumps(body).encode())
    assert answer.status == 400
    assert json.loads(answer.content)["error"]["n_ctx"] == engine.context


@pytest.mark.engine
def test_the_whole_program_does_the_main_job_on_the_real_engine(engine: EngineServer, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    files = {"one.py": "def one():\n    return 1\n", "sub/two.py": "TWO = 2\n", "three.py": "print(3)\n"}
    for name, text in files.items():
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with ForcedCalls(engine.url, read_all_then_write(list(files), "SUMMARY.md")) as server:
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LLM_URL": server.base_url, "LLM_MODEL": "tiny"}
        command = [str(Path(sys.executable).with_name("lmagent")), TASK, "--permission", "auto", "-w", str(workspace)]
        ran = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr.decode()
    assert (workspace / "SUMMARY.md").read_text().strip()
    assert len(ran.stdout.decode().strip()) >= 15
    assert len(server.usage) == 5
    told = [usage["prompt_tokens_details"]["cached_tokens"] for usage in server.usage]
    before = [usage["prompt_tokens"] for usage in server.usage]
    # The engine itself took the whole earlier prompt from its cache, but for the last few tokens of a message's border.
    assert all(cached >= size - 8 for cached, size in zip(told[1:], before[:-1], strict=True))


def test_the_vocabulary_is_ascii_and_each_merge_makes_a_token() -> None:
    tokens, merges = vocabulary()
    assert len(tokens) == len(set(tokens))
    for merge in merges:
        left, right = merge.split(" ")
        assert {left, right, left + right} <= set(tokens)
