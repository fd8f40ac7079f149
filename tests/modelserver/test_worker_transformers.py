"""A worker with a transformers model: OpenAI's API, the model's own template, and the same protocol."""

from __future__ import annotations

import http.client
import json
import subprocess
import time
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import msgspec
import pytest
from worker_kit import group, until

from lmagent.modelserver.pool.machine import memory_of
from lmagent.modelserver.pool.process import program_of
from lmagent.modelserver.spec import Hello, ModelEntry, ModelSettings, WorkerSpec

TEMPLATE = """\
{% if tools %}TOOLS {{ tools|tojson }}
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments.path }}]{% endfor %}\
<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A tiny random llama and a tiny random BERT."""
    for package in ("torch", "transformers"):
        pytest.importorskip(package, reason=f"transformers models were NOT tested: the package {package} is missing")
    import tokenizers
    import transformers

    special = ["<pad>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"]
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {text: number for number, text in enumerate([*special, *letters])}
    plain = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    plain.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = tokenizers.decoders.ByteLevel()
    plain.add_special_tokens(special)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain, eos_token="<|im_end|>", pad_token="<pad>", chat_template=TEMPLATE
    )
    size = {
        "vocab_size": len(vocabulary),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": 512,
    }
    llama, bert = tmp_path_factory.mktemp("llama"), tmp_path_factory.mktemp("bert")
    ends = {"eos_token_id": 2, "pad_token_id": 0, "bos_token_id": 1}
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**size, **ends)).save_pretrained(llama)
    transformers.BertModel(transformers.BertConfig(**size)).save_pretrained(bert)
    for folder in (llama, bert):
        tokenizer.save_pretrained(folder)
    return llama, bert


@contextmanager
def worker(folder, log, **settings):
    spec = WorkerSpec(str(folder), "hf", "secret", ModelSettings(context=400, threads=1, **settings))
    command = list(program_of(ModelEntry("hf", "transformers")))
    with log.open("ab") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(spec) + b"\n")
        process.stdin.flush()
        yield process, msgspec.json.decode(process.stdout.readline(), type=Hello)
        process.stdin.close()
        process.wait(30)
    until(lambda: group(process.pid) == [])


def request(hello, method, path, body=None, key="secret"):
    address = urlsplit(hello.address)
    with closing(http.client.HTTPConnection(address.hostname, address.port, timeout=60)) as connection:
        connection.request(method, path, json.dumps(body) if body else None, {"Authorization": f"Bearer {key}"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def chat(hello, **fields):
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 12, "temperature": 0, **fields}
    status, text = request(hello, "POST", "/v1/chat/completions", body)
    return status, text if body.get("stream") else json.loads(text)


def test_a_transformers_model_chats_whole_and_as_a_stream(folders, tmp_path):
    with worker(folders[0], tmp_path / "log") as (process, hello):
        assert (hello.error, hello.pid) == ("", process.pid), (tmp_path / "log").read_text()
        assert json.loads(request(hello, "GET", "/v1/models")[1])["data"][0]["id"] == "hf"
        assert request(hello, "GET", "/v1/models", key="wrong")[0] == 401
        assert request(hello, "GET", "/health", key="")[0] == 200
        status, whole = chat(hello)
        assert status == 200
        choice, usage = whole["choices"][0], whole["usage"]
        assert choice["finish_reason"] in ("length", "stop")
        assert usage["completion_tokens"] <= 12
        assert usage["prompt_tokens"] == len("user\nhi\nassistant\n") + 3
        _, stream = chat(hello, stream=True, stream_options={"include_usage": True})
        events = [json.loads(line[6:]) for line in stream.split("\n\n") if line.startswith("data: {")]
        pieces = [event["choices"][0]["delta"].get("content", "") for event in events if event["choices"]]
        assert "".join(pieces) == choice["message"]["content"]
        assert events[-1]["usage"] == usage
        assert stream.endswith("data: [DONE]\n\n")
        drawn = [chat(hello, temperature=1.5, seed=7)[1]["choices"][0]["message"]["content"] for _ in range(2)]
        assert drawn[0] == drawn[1]
        letter = choice["message"]["content"][3:4]
        if letter and letter != "\ufffd":
            cut = chat(hello, stop=[letter])[1]["choices"][0]
            assert cut["message"]["content"] == choice["message"]["content"].split(letter)[0]
            assert cut["finish_reason"] == "stop"
    assert process.returncode == 0


def test_tools_and_past_calls_reach_the_template(folders, tmp_path):
    tool = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
    call = {"id": "1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.txt"}'}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "read it"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    with worker(folders[0], tmp_path / "log") as (_, hello):
        plain = chat(hello, messages=messages)[1]["usage"]["prompt_tokens"]
        with_tools = chat(hello, messages=messages, tools=[tool])[1]["usage"]["prompt_tokens"]
        assert plain == len("user\nread it\nassistant\n[read a.txt]\nassistant\n") + 5
        assert with_tools > plain + 50


def test_what_it_cannot_do_is_refused_with_the_reason(folders, tmp_path):
    with worker(folders[0], tmp_path / "log") as (_, hello):
        for fields, word in (
            ({"response_format": {"type": "json_schema", "json_schema": {}}}, "no grammar or JSON schema"),
            ({"tool_choice": "required"}, "auto or none"),
            ({"messages": []}, "at least one message"),
            ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "text only"),
            ({"messages": [{"role": "user", "content": "x" * 1000}]}, "exceeds the available context size"),
            ({"temperature": "hot"}, "has to be a number"),
        ):
            status, answer = chat(hello, **fields)
            assert status == 400
            assert word in answer["error"]["message"]


def test_a_model_for_embeddings_makes_them_of_length_one(folders, tmp_path):
    with worker(folders[1], tmp_path / "log") as (_, hello):
        status, text = request(hello, "POST", "/v1/embeddings", {"input": ["one", "three"]})
        assert status == 200, text
        rows = [row["embedding"] for row in json.loads(text)["data"]]
        assert [round(sum(value * value for value in row), 3) for row in rows] == [1.0, 1.0]
        assert json.loads(text)["usage"]["prompt_tokens"] == 8
        assert chat(hello)[0] == 400


def test_it_sleeps_and_a_request_wakes_it(folders, tmp_path):
    with worker(folders[0], tmp_path / "log", sleep=0.5) as (process, hello):
        first = chat(hello)[1]["choices"]
        time.sleep(2.5)
        assert memory_of(process.pid) > 0
        assert chat(hello)[1]["choices"] == first


def test_a_folder_that_is_no_model_is_told(folders, tmp_path):
    with worker(tmp_path, tmp_path / "log") as (_, hello):
        assert "cannot be loaded" in hello.error


def test_without_the_libraries_the_worker_says_what_to_install(tmp_path):
    try:
        import torch  # noqa: F401
    except ImportError:
        with worker(tmp_path, tmp_path / "log") as (process, hello):
            assert "pip install" in hello.error
            assert "[transformers]' torch" in hello.error
        assert process.returncode == 1
    else:
        pytest.skip("torch is installed")
