"""Faults: errors in the words of the servers that send them.

`overflow` has the texts in which servers refuse a prompt that exceeds their window; several are sent with a misleading
status (500, or 200 and an error in the stream).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lmagent.testing.script import Behaviour, PlainAnswer, Reply, error_in_stream, raw, status

OverflowFault = Callable[[int, int], Behaviour]
"""Takes the prompt's tokens and the window's, returns the server's answer."""


_LLAMACPP = "request ({} tokens) exceeds the available context size ({} tokens), try increasing it"
_LONGEST = "This model's maximum context length is {} tokens."


def bad_key() -> PlainAnswer:
    """Return 401 in OpenAI's words."""
    return _openai(401, "Incorrect API key provided: sk-****. Check your API key.", "invalid_api_key")


def unknown_model(name: str = "nope") -> PlainAnswer:
    """Return 404 in vLLM's words."""
    return _openai(404, f"The model `{name}` does not exist.", "NotFoundError")


def rate_limited(retry_after: str | None = "1") -> PlainAnswer:
    """Return 429, with a Retry-After in seconds or as an HTTP date; None leaves it out."""
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return _openai(429, "Rate limit reached for requests", "rate_limit_exceeded", headers)


def server_error(code: int = 500) -> PlainAnswer:
    """Return a 5xx with a plain text."""
    return status(code, "Internal Server Error")


def loading() -> PlainAnswer:
    """Return 503, llama.cpp's answer while it loads the model."""
    return status(503, {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}})


def html_page(code: int = 200) -> PlainAnswer:
    """Return a web page in place of a model's answer: the wrong server, or a proxy's login."""
    page = "<!doctype html><html><head><title>Welcome</title></head><body><h1>It works!</h1></body></html>"
    return raw([page.encode()], code=code, content_type="text/html; charset=utf-8", framing="length")


def empty_body() -> PlainAnswer:
    """Return 200 with an empty body."""
    return raw([], framing="length")


def empty_reply() -> Reply:
    """Return a proper stream without content."""
    return Reply()


def json_in_stream() -> PlainAnswer:
    """Return a 200 event stream whose data is no JSON."""
    return raw([b"data: {not json\n\n", b"data: [DONE]\n\n"])


def overflow_llamacpp(tokens: int = 9000, window: int = 4096) -> PlainAnswer:
    """400 with both figures as fields."""
    fields = {"type": "exceed_context_size_error", "n_prompt_tokens": tokens, "n_ctx": window}
    return status(400, {"error": {"code": 400, "message": _LLAMACPP.format(tokens, window), **fields}})


def overflow_openai(tokens: int = 9000, window: int = 4096) -> PlainAnswer:
    """400 with the code `context_length_exceeded`."""
    text = f"{_LONGEST.format(window)} However, your messages resulted in {tokens} tokens."
    return _openai(400, text, "context_length_exceeded")


def overflow_vllm(tokens: int = 9000, window: int = 4096) -> PlainAnswer:
    """400; the window holds prompt and reply together."""
    parts = f"({tokens} in the messages, 512 in the completion)"
    text = f"{_LONGEST.format(window)} However, you requested {tokens + 512} tokens {parts}."
    return status(400, {"object": "error", "message": text, "type": "BadRequestError", "param": None, "code": 400})


def overflow_lmstudio(tokens: int = 9000, window: int = 4096) -> PlainAnswer:
    """400 with the error as a bare string."""
    text = (
        f"Trying to keep the first {tokens} tokens when context the overflows. However, the model is loaded with "
        f"context length of only {window} tokens, which is not enough."
    )
    return status(400, {"error": text})


def overflow_openrouter(tokens: int = 9000, window: int = 4096) -> PlainAnswer:
    """400; tells the sender to use a transform."""
    text = (
        f"This endpoint's maximum context length is {window} tokens. However, you requested about {tokens} tokens. "
        'Please reduce the length of either one, or use the "middle-out" transform to compress your prompt.'
    )
    return status(400, {"error": {"message": text, "code": 400}})


def overflow_too_large(tokens: int = 9000, window: int = 4096) -> PlainAnswer:
    """413, with the window in the text."""
    return status(413, f"Prompt of {tokens} tokens is too long: the maximum context length is {window} tokens")


def overflow_as_500(tokens: int = 9000, window: int = 4096) -> PlainAnswer:
    """500, although nothing is wrong with the server."""
    text = f"context size exceeded: n_ctx = {window}, n_prompt_tokens = {tokens}"
    return status(500, {"error": {"code": 500, "message": text, "type": "server_error"}})


def overflow_in_stream(tokens: int = 9000, window: int = 4096) -> Reply:
    """200, and the error as the only event of the stream."""
    return error_in_stream(_LLAMACPP.format(tokens, window))


OVERFLOWS: Mapping[str, OverflowFault] = {
    "llamacpp": overflow_llamacpp,
    "openai": overflow_openai,
    "vllm": overflow_vllm,
    "lmstudio": overflow_lmstudio,
    "openrouter": overflow_openrouter,
    "too_large": overflow_too_large,
    "as_500": overflow_as_500,
    "in_stream": overflow_in_stream,
}
"""All wordings of an overflow, by server."""


def _openai(code: int, text: str, kind: str, headers: Mapping[str, str] | None = None) -> PlainAnswer:
    error: dict[str, Any] = {"message": text, "type": "invalid_request_error", "param": None, "code": kind}
    return status(code, {"error": error}, headers)
