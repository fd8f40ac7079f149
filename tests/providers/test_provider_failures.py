# ruff: noqa: E501  (tables of raw answers read best one to a line)
"""Servers that refuse, lie or break: the typed error, its words, and whether it may be tried again."""

from __future__ import annotations

import json
from email.utils import formatdate
from time import time
from typing import Any

import pytest
from provider_loopback import Answer, ask, delta, request, sse

from lmagent.core.errors import (
    AuthError,
    BadReply,
    ConnectionLost,
    ContextOverflow,
    ModelLoading,
    ModelNotFound,
    ProviderError,
    ServerFailure,
    Unavailable,
    Unreachable,
)
from lmagent.core.model import TextChunk
from lmagent.providers import concealed
from lmagent.providers.failures import from_response, not_a_reply, retry_after
from lmagent.providers.retry import RetryPolicy

ONCE = RetryPolicy(tries=1)
URL = "http://127.0.0.1:1234/v1/chat/completions"


def answered(status: int, body: Any, headers: dict[str, str] | None = None, model: str = "m") -> ProviderError:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return from_response(status, headers or {}, raw, url=URL, model=model)


OVERFLOWS: dict[str, tuple[int, Any, int | None]] = {
    "llama.cpp": (400, {"error": {"code": 400, "message": "the request exceeds the available context size (4096 tokens), try increasing it", "type": "exceed_context_size_error", "n_prompt_tokens": 5000, "n_ctx": 4096}}, 4096),
    "llama.cpp, in words": (500, {"error": {"message": "the prompt exceeds the context size. n_prompt = 9000, n_ctx = 4096"}}, 4096),
    "llama.cpp, older": (500, {"error": {"code": 500, "message": "the request exceeds the available context size. try increasing the context size or enable context shift", "type": "server_error"}}, None),
    "OpenAI": (400, {"error": {"message": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens.", "code": "context_length_exceeded"}}, 8192),
    "vLLM": (400, {"object": "error", "message": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4500 in the messages, 500 in the completion).", "code": 400}, 4096),
    "vLLM, newer": (400, {"error": {"message": "The decoder prompt (length 5000) is longer than the maximum model length of 4096."}}, 4096),
    "LM Studio": (400, {"error": "Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough."}, 4096),
    "LM Studio, other": (400, {"error": "The number of tokens to keep from the initial prompt is greater than the context length."}, None),
    "LM Studio, midway": (500, {"error": "Reached context length of 4096 tokens with this model"}, 4096),
    "Ollama": (400, {"error": {"message": "prompt is too long; input length exceeds the context length", "type": "api_error"}}, None),
    "Anthropic's words": (400, {"error": {"message": "prompt is too long: 210000 tokens > 200000 maximum"}}, 200000),
    "Gemini's words": (400, {"error": {"message": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."}}, 1048576),
    "TGI": (422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens"}, 4096),
    "SGLang": (400, {"message": "The input (5000 tokens) is longer than the model's context length (4096 tokens)."}, 4096),
    "a bare 413": (413, b"Payload Too Large", None),
    "a proxy's 413": (413, b"<html><title>413 Request Entity Too Large</title></html>", None),
    "code only": (400, {"error": {"message": "bad", "code": "context_length_exceeded"}}, None),
}  # fmt: skip


@pytest.mark.parametrize("name", OVERFLOWS)
def test_an_overflow_is_recognised_and_its_window_read(name: str) -> None:
    status, body, window = OVERFLOWS[name]
    failure = answered(status, body)
    assert isinstance(failure, ContextOverflow), failure
    assert failure.window == window
    assert failure.fix


@pytest.mark.parametrize("name", OVERFLOWS)
def test_an_overflow_inside_a_200_is_recognised_too(name: str) -> None:
    _, body, window = OVERFLOWS[name]
    if isinstance(body, bytes):
        return
    shaped = body if "error" in body else {"error": body}
    for answer in (
        Answer([b"data: " + json.dumps(shaped).encode() + b"\n\n"]),
        Answer([json.dumps(shaped).encode()], content_type="application/json"),
    ):
        run = ask(answer)
        assert isinstance(run.error, ContextOverflow)
        assert run.error.window == window
        assert len(run.server.requests) == 1


@pytest.mark.parametrize(
    "text",
    [
        "Rate limit reached: 30000 tokens per min, request too large",
        "The model produced invalid content",
        "context canceled",
        "failed to parse grammar",
        "Invalid value for 'temperature': maximum is 2",
    ],
)
def test_other_refusals_are_not_taken_for_an_overflow(text: str) -> None:
    assert not isinstance(answered(429 if "Rate" in text else 400, {"error": {"message": text}}), ContextOverflow)


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (500, "timed out waiting for llama runner: context deadline exceeded"),
        (504, "The request took too long to process, please retry."),
        (408, "the prompt exceeds the context size"),
        (500, "Failed to load model: the context length 131072 is too large for the available memory"),
        (400, "input image too large"),
        (500, "execution context limit reached"),
        (400, "Request too large: 30000 tokens per minute are allowed"),
    ],
)
def test_time_rates_and_memory_are_not_taken_for_an_overflow(status: int, text: str) -> None:
    assert not isinstance(answered(status, {"error": text}), ContextOverflow)


def test_a_rate_limit_inside_a_200_is_not_taken_for_an_overflow() -> None:
    said = {"error": {"code": 429, "message": "Rate limit reached: too many tokens, the context length is 8192"}}
    run = ask(Answer([b"data: " + json.dumps(said).encode() + b"\n\n"]), retries=ONCE)
    assert type(run.error) is Unavailable
    assert "rate limit" in run.error.message
    assert "127.0.0.1" in run.error.message


CASES: dict[str, tuple[int, Any, type[ProviderError], str, bool]] = {
    "bad key": (401, {"error": {"message": "Incorrect API key"}}, AuthError, "LLM_API_KEY", False),
    "forbidden": (403, {"error": "no"}, AuthError, "refused the API key", False),
    "unknown model": (404, {"error": {"message": "The model `m` does not exist.", "code": "model_not_found"}}, ModelNotFound, "'m'", False),
    "unknown to our own server": (404, {"error": {"message": "there is no model 'm' (lmagent models list shows what there is)", "code": "model_not_found"}}, ModelNotFound, "lmagent models list", False),
    "unknown model, Ollama": (404, {"error": {"message": 'model "m" not found, try pulling it first'}}, ModelNotFound, "--model NAME", False),
    "no model loaded": (400, {"error": "No models loaded. Please load a model in the developer page"}, ModelNotFound, "load", False),
    "invalid model": (400, {"error": {"message": "m is not a valid model ID", "code": 400}}, ModelNotFound, "'m'", False),
    "wrong path": (404, {"detail": "Not Found"}, BadReply, "LLM_URL", False),
    "a web site": (404, b"<!DOCTYPE html><html><title>Nothing here</title></html>", BadReply, "Nothing here", False),
    "wrong method": (405, b"Method Not Allowed", BadReply, "LLM_URL", False),
    "moved": (301, b"", BadReply, "redirects", False),
    "bad request": (400, {"error": {"message": "temperature must be at most 2"}}, ProviderError, "at most 2", False),
    "tools unsupported": (400, {"error": "m does not support tools"}, ProviderError, "does not support tools", False),
    "no credit": (402, {"error": {"message": "Insufficient credits"}}, ProviderError, "credit", False),
    "rate limit": (429, {"error": {"message": "slow down"}}, Unavailable, "rate limit", True),
    "timeout": (408, b"", ServerFailure, "408", True),
    "conflict": (409, {"error": "loading"}, ServerFailure, "loading", True),
    "internal": (500, {"error": {"message": "CUDA out of memory"}}, ServerFailure, "CUDA out of memory", True),
    "loading": (503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}, ModelLoading, "Loading model", True),
    "gateway page": (502, b"<html><title>502 Bad Gateway</title></html>", Unavailable, "502 Bad Gateway", True),
    "not implemented": (501, b"", ServerFailure, "501", False),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_status_becomes_an_error_that_says_what_to_do(name: str) -> None:
    status, body, kind, words, retryable = CASES[name]
    failure = answered(status, body)
    assert type(failure) is kind
    assert words in str(failure)
    assert failure.retryable is retryable
    assert failure.fix


def test_a_key_that_the_server_echoes_is_not_shown() -> None:
    assert "abcdefgh" not in str(answered(401, {"error": {"message": "Incorrect API key provided: sk-abcdefgh123."}}))


@pytest.fixture
def concealing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concealed, "_secrets", set())


@pytest.mark.usefixtures("concealing")
@pytest.mark.parametrize("status", [200, 400, 401, 404, 429, 500])
def test_the_very_key_that_was_sent_is_never_shown(status: int) -> None:
    key = "lmk-very/secret 0123456789"
    concealed.conceal(key)
    for said in (key, key.replace("/", "%2F"), "lmk-very/secret"):
        failure = answered(status, {"error": {"message": f"Incorrect API key provided: {said}. Find it at…"}})
        assert "lmk-very" not in str(failure)
        assert "Incorrect API key provided" in str(failure)


@pytest.mark.usefixtures("concealing")
def test_a_word_that_stands_in_for_a_key_stays_in_the_texts() -> None:
    words = ("ollama", "lm-studio", "none", "not-needed", "sk-no-key-required")
    for placeholder in words:
        concealed.conceal(placeholder)
    assert all(word in str(answered(500, {"error": f"{word} failed"})) for word in words[:-1])
    concealed.conceal("onlyletters")
    assert "onlyletters" not in str(answered(500, {"error": "onlyletters failed"}))


@pytest.mark.usefixtures("concealing")
@pytest.mark.parametrize("status", [200, 301, 401, 404, 429, 500])
def test_user_password_and_parameters_of_a_url_are_not_shown(status: int) -> None:
    url = "http://bob:hunter2secret@127.0.0.1:1234/v1/chat/completions?api_key=QSECRET123"
    concealed.conceal("", url)
    for body in (b"<!doctype html><html><title>nope</title></html>", b'{"error": "bob:hunter2secret?QSECRET123"}', b""):
        for failure in (
            from_response(status, {"location": url + "/x"}, body, url=url, model="m"),
            not_a_reply(body, "", url=url),
        ):
            assert "hunter2" not in str(failure)
            assert "QSECRET" not in str(failure)


def test_a_redirect_by_its_path_alone_names_the_whole_address() -> None:
    failure = answered(308, b"", {"location": "/llm/v1/chat/completions"})
    assert (
        "set LLM_URL to the address it redirects to: http://127.0.0.1:1234/llm/v1/chat/completions" in failure.terminal
    )


def test_a_long_wait_that_the_server_asks_for_is_told() -> None:
    failure = answered(429, {"error": "slow down"}, {"retry-after": "9999"})
    assert "asks to wait 9,999 s" in failure.message
    assert "9,999" in failure.fix
    assert retry_after({"retry-after": "9" * 500}) is None


def test_the_wait_that_a_server_asks_for_is_read_in_every_form() -> None:
    assert retry_after({"retry-after": "7"}) == 7
    assert retry_after({"retry-after-ms": "1500"}) == 1.5
    assert 25 < (retry_after({"retry-after": formatdate(time() + 30, usegmt=True)}) or 0) <= 30
    assert retry_after({"retry-after": formatdate(time() - 30, usegmt=True)}) == 0
    assert retry_after({"retry-after": "soon"}) is None
    assert retry_after({}) is None


INSIDE: dict[str, tuple[bytes, type[ProviderError], bool]] = {
    "error chunk": (b'data: {"error":{"message":"CUDA error","code":500}}\n\n', ServerFailure, True),
    "error text": (b'data: {"error":"it broke"}\n\n', ServerFailure, True),
    "error event": (b'event: error\ndata: {"message":"it broke"}\n\n', ServerFailure, True),
    "error event in words": (b"event: error\ndata: it broke\n\n", ServerFailure, True),
    "error field": (b'error: {"code":500,"message":"it broke"}\n\n', ServerFailure, True),
    "error object of old": (b'data: {"object":"error","message":"it broke","code":400}\n\n', ProviderError, False),
    "finish reason error": (sse(delta("error")), ServerFailure, True),
    "bad key": (b'data: {"error":{"message":"no","code":401}}\n\n', AuthError, False),
    "invalid request": (b'data: {"error":{"message":"no","type":"invalid_request_error"}}\n\n', ProviderError, False),
    "plain error": (b'{"error":"Unexpected endpoint"}', ServerFailure, True),
}


@pytest.mark.parametrize("name", INSIDE)
def test_an_error_inside_a_200_is_an_error(name: str) -> None:
    body, kind, retryable = INSIDE[name]
    run = ask(Answer([body]), retries=ONCE)
    assert type(run.error) is kind, run.error
    assert isinstance(run.error, ProviderError)
    assert (run.error.retryable, run.error.partial) == (retryable, False)


def test_an_error_behind_shown_text_is_partial_and_not_repeated() -> None:
    run = ask(Answer([sse(delta(content="Hel lo"), {"error": "it broke"})]))
    assert run.events == [TextChunk("Hel lo")]
    assert isinstance(run.error, ServerFailure)
    assert run.error.partial
    assert len(run.server.requests) == 1


NOT_REPLIES: dict[str, tuple[bytes, str, str]] = {
    "web page": (b"<!doctype html><html><body>Welcome</body></html>", "text/html", "web page"),
    "web page as a stream": (b"\n <html></html>", "text/event-stream", "web page"),
    "empty": (b"", "text/event-stream", "empty"),
    "blank": (b"\n\n", "application/json", "empty"),
    "words": (b"It works!", "text/plain", "It works!"),
    "other JSON": (b'{"status": "ok"}', "application/json", "no completion"),
    "empty stream": (b"data: [DONE]\n\n", "text/event-stream", ""),
    "comments only": (b": hello\n\n: hello\n\n", "text/event-stream", ""),
    "rubbish in the stream": (b"data: {nonsense\n\ndata: [DONE]\n\n", "text/event-stream", "not JSON"),
    "broken JSON": (b'{"choices": [', "application/json", "not JSON"),
}


@pytest.mark.parametrize("name", NOT_REPLIES)
def test_a_200_that_is_no_reply_is_never_taken_for_one(name: str) -> None:
    body, content_type, words = NOT_REPLIES[name]
    run = ask(Answer([body], content_type=content_type))
    assert type(run.error) is BadReply, (run.error, run.events)
    assert words in str(run.error)
    assert len(run.server.requests) == 1


def test_a_stream_that_breaks_off_in_its_first_chunk_is_quoted_and_asked_again() -> None:
    half = Answer([b'data: {"choices":[{"delta":{"content":"hel'])
    run = ask(half, half)
    assert type(run.error) is ConnectionLost
    assert run.server.url.split("/")[2] in str(run.error)
    assert '"delta":{"content":"hel' in str(run.error)
    assert len(run.server.requests) > 1


CUTS: dict[str, bytes] = {
    "in a payload": sse(delta(content="Hello you"), done=False) + b'data: {"choices":[{"del',
    "between payloads": sse(delta(content="Hello you"), done=False),
}


@pytest.mark.parametrize("name", CUTS)
@pytest.mark.parametrize("end", ["cut", "complete"])
def test_a_stream_that_breaks_off_behind_text_is_partial_and_may_be_asked_again(name: str, end: str) -> None:
    run = ask(Answer([CUTS[name]], end=end))
    assert run.events == [TextChunk("Hello you")]
    assert isinstance(run.error, ServerFailure)
    assert (run.error.partial, run.error.retryable) == (True, True)
    assert len(run.server.requests) == 1, "what was shown is never repeated silently"


def test_a_stream_cut_off_after_its_finish_reason_is_complete() -> None:
    run = ask(Answer([sse(delta("stop", content="Hello"), done=False)], end="cut"))
    assert run.reply.message.text == "Hello"


def test_an_unfinished_stream_without_length_is_not_a_reply() -> None:
    run = ask(Answer([sse(delta(content="Hello you"), done=False)], chunked=False))
    assert isinstance(run.error, ServerFailure)
    assert run.error.partial


def test_a_server_that_never_ends_its_stream_does_not_hold_up_the_reply() -> None:
    run = ask(Answer([sse(delta("stop", content="Hello"))], end="open"))
    assert run.reply.message.text == "Hello"
    assert run.reply.total_s < 2


def test_nothing_that_listens_says_what_to_start() -> None:
    from lmagent.providers.failures import from_transport
    from lmagent.providers.transport import Timeouts, TransportError

    failure = from_transport(TransportError("refused"), url=URL, timeouts=Timeouts())
    assert isinstance(failure, Unreachable)
    assert "http://127.0.0.1:1234" in failure.message
    assert "LM Studio" in failure.fix
    assert failure.retryable


def test_a_model_name_in_a_refusal_is_the_one_that_was_asked_for() -> None:
    run = ask(Answer([b'{"error":{"message":"model not found"}}'], status=404), asked=request(model="qwen9"))
    assert isinstance(run.error, ModelNotFound)
    assert "'qwen9'" in run.error.message
