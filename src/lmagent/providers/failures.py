"""Failures: turns the failures of servers into errors with a remedy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite
from typing import Any, cast
from urllib.parse import urljoin, urlsplit

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
from lmagent.providers import jsontext
from lmagent.providers.concealed import hidden, shown
from lmagent.providers.transport import Timeouts, TransportError
from lmagent.providers.urls import authority, is_loopback

RETRYABLE = frozenset({408, 409, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
"""Statuses after which the same request may succeed."""

LATER = frozenset({429, 502, 503, 504, 521, 522, 523, 529})
"""Statuses of a server that is missing, or too busy."""

_NOT_THE_PROMPT = frozenset({408, 429, 504})
"""Statuses that are unrelated to the prompt, whatever their text mentions."""

_LOG = "look at the server's log"

TOLD = 10.0
"""Seconds from which a wait that a server asks for is shown."""

_NO_MODEL = re.compile(
    r"model[^.]{0,120}(not found|does not exist|not exist|unknown|not loaded|not available|no such|invalid model)"
    r"|no models? (is |are )?loaded|invalid model|unknown model|no such model|not a valid model|model_not_found"
    r"|there is no model|pull(ing)? it first|model is required",
    re.IGNORECASE,
)
_LOADING = re.compile(
    r"\bloading\b.{0,40}\bmodel|\bmodel\b.{0,40}\b(is )?(still )?(being )?load(ing|ed)\b", re.IGNORECASE
)
_SECRET = re.compile(r"\b(sk-|Bearer\s+)[A-Za-z0-9_\-.*]{6,}")
_CODES = ("exceed_context_size_error", "context_length_exceeded", "context_window_exceeded", "string_above_max_length")

_SAYINGS = re.compile(
    r"""
      (exceed|larger|longer|greater|too\ (long|large|many|big)|overflow|reached|maximum|out\ of|fit|only|beyond|limit)
        .{0,160} (context[\ _-]?(length|size|window|limit)|n_ctx|num_ctx|model\ length)
    | (context[\ _-]?(length|size|window|limit)|n_ctx|num_ctx|model\ length)
        .{0,160} (exceed|larger|longer|greater|too\ (long|large|small)|overflow|reached|tokens\.\ however)
    | \bcontext\ (is\ )?(full|shift|exceed|overflow|too\ (long|large))
    | (prompt|input|request|message)s?\b (?!.{0,40}\b(image|picture|audio|video|file)) .{0,40}
        \btoo\ (long|large|many\ tokens)
    | input\ (token\ count|length) .{0,80} exceed
    | too\ many\ (input\ )?tokens
    | inputs?`?\ tokens .{0,40} must\ be\ <=
    | reduce\ the\ length\ of\ (the|your)\ (messages|prompt|input)
    | tokens\ to\ keep\ from\ the\ initial\ prompt
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)

_OTHERWISE = re.compile(
    r"deadline|time[d]?[ -]?out|took too long|rate[ _-]?limit|\bper[ _-](second|sec|minute|min|hour|day)\b|quota"
    r"|\b(v?ram|memory)\b|execution context|(fail|failed|unable|error)( to)? load",
    re.IGNORECASE,
)
"""Errors about time, a rate or the machine's memory are not about the prompt, whatever else they mention."""

_WINDOW = re.compile(
    r"(?:n_ctx|num_ctx|context[ _-]?(?:length|size|window|limit)|model length|tokens allowed|must be <=|tokens >)"
    r"[^\d.]{0,30}?(\d[\d,_]*)",
    re.IGNORECASE,
)
_FIELDS = ("n_ctx", "context_length", "max_context_length", "max_model_len", "context_window", "max_tokens_allowed")


def wrong_address(message: str) -> BadReply:
    url = "it should be the server's base URL, for example http://localhost:1234/v1"
    return BadReply(message, fix=f"check the address: {url}", terminal=f"check LLM_URL: {url}")


def _no_api(url: str, answer: str, text: str) -> BadReply:
    why = f"this is not an OpenAI-compatible server, or the path is wrong{_said(text)}"
    return wrong_address(f"{shown(url)} answered {answer}: {why}")


def from_response(status: int, headers: Mapping[str, str], body: bytes, *, url: str, model: str) -> ProviderError:
    html = is_html(body)
    payload = None if html else jsontext.loads_or_none(body)
    text = describe(payload) if payload is not None else _plain(body, html=html)
    wait = retry_after(headers)
    if failure := _of_text(status, text, payload, url=url, model=model):
        return failure
    if 300 <= status < 400:
        return _moved(headers.get("location", ""), url)
    if html and status < 500:
        return _no_api(url, "with a web page", text)
    if status in (404, 405):
        return _no_api(url, f"HTTP {status}", text)
    return _by_code(status, text, url, wait)


def from_error(error: Any, *, url: str, model: str) -> ProviderError:
    """Return the error that a server reports inside an answer with status 200."""
    text = describe(error)
    code = _code(error)
    if failure := _of_text(code, text, error, url=url, model=model):
        return failure
    if code == 0:  # no reason to believe that the request itself is at fault
        fix = f"{_LOG}, or try another model"
        return ServerFailure(f"{authority(url)} reported an error: {text}", fix=fix, retryable=True)
    return _by_code(code, text, url, None)


def _of_text(code: int, text: str, payload: Any, *, url: str, model: str) -> ProviderError | None:
    """Return the error that only the text, or the key, tells from others."""
    if code not in _NOT_THE_PROMPT and (code == 413 or is_overflow(text, payload)):
        return _overflow(text, payload)
    if code in (401, 403):
        return _auth(code, text, url)
    return _no_model(model, text, url) if code in (0, 400, 404, 422) and _NO_MODEL.search(text) else None


def from_transport(error: TransportError, *, url: str, timeouts: Timeouts) -> ProviderError:
    where = f"{urlsplit(url).scheme}://{authority(url)}"
    detail = hidden(error.detail)
    match error.kind:
        case "refused" if is_loopback(url):
            fix = f"start LM Studio, Ollama or llama-server so that it listens at {where}"
            message = f"nothing listens at {where} (connection refused)"
            return Unreachable(message, fix=fix, terminal=f"{fix}, or set LLM_URL", retryable=True)
        case "refused" | "dns" | "tls" | "connect" | "connect_timeout":
            waited = f"no answer within {timeouts.connect:g} s"
            why = "connection refused" if error.kind == "refused" else detail or waited
            fix, typed = "check that the server runs and that its address is right", ""
            if error.kind == "tls":
                fix += "; use http:// if it has no TLS"
                typed = ", or SSL_CERT_FILE for an own authority"
            return Unreachable(
                f"no connection to {where}: {why}",
                fix=fix,
                terminal=fix.replace("its address", "LLM_URL") + typed,
                retryable=error.kind not in ("dns", "tls"),
            )
        case "first_byte" | "idle":
            limit = timeouts.first_byte if error.kind == "first_byte" else timeouts.idle
            when = "began no answer" if error.kind == "first_byte" else "stopped in the middle of its answer"
            reason = f"the model server {when}: no sign of life for {limit:g} s ({where})"
            return Unreachable(reason, fix=_LOG, terminal=f"raise LLM_TIMEOUT if the model is slow, or {_LOG}")
        case "lost":
            fix = f"{_LOG}: it may have run out of memory"
            return ConnectionLost(f"the model server broke off the connection ({where})", fix=fix, retryable=True)
        case "protocol":
            return wrong_address(f"{where} does not speak HTTP as expected: {detail}")


def not_a_reply(body: bytes, content_type: str, *, url: str) -> BadReply:
    if not body.strip():
        return BadReply(f"{shown(url)} answered 200 with an empty body", fix=_LOG)
    if is_html(body):
        return _no_api(url, "with a web page", "")
    kind = content_type or "no content type"
    return wrong_address(f"{shown(url)} answered with something that is no completion ({kind}){_said(_plain(body))}")


def is_html(body: bytes) -> bool:
    head = body[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return head.startswith((b"<!doctype html", b"<html", b"<head", b"<body", b"<?xml", b"<title"))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds in `retry-after-ms` or `Retry-After` (seconds or an HTTP date, RFC 9110 §10.2.3)."""
    import time
    from email.utils import parsedate_to_datetime

    value = headers.get("retry-after", "").strip()
    try:
        if "retry-after-ms" in headers:
            seconds = float(headers["retry-after-ms"]) / 1000
        elif value[:1].isdigit():
            seconds = float(value)
        else:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
    except (ValueError, TypeError):
        return None
    return max(0.0, seconds) if isfinite(seconds) else None


def describe(error: Any) -> str:
    if isinstance(error, str):
        return _short(error)
    if isinstance(error, list):
        return _short("; ".join(describe(item) for item in error[:3]))  # pyright: ignore[reportUnknownVariableType]
    if isinstance(error, dict):
        found: dict[str, Any] = error  # pyright: ignore[reportUnknownVariableType]
        if "msg" in found and "loc" in found:  # FastAPI: the field is named in `loc`
            return _short(f"{found['msg']} ({found['loc']})")
        for key in ("error", "message", "msg", "detail", "error_message", "title"):
            if found.get(key):
                text, field = describe(found[key]), found.get("param")
                return text if not isinstance(field, str) or field in text else f"{text} ({field})"
    return _short(jsontext.dumps(error).decode()) if error is not None else "no reason given"


def _overflow(text: str, payload: Any) -> ContextOverflow:
    window = read_window(text, payload)
    served = f" of {window} tokens" if window else ""
    return ContextOverflow(
        f"the prompt does not fit the context window{served}: {text}",
        window=window,
        fix="load the model with a larger context length, or shorten the conversation",
        terminal="load the model with a larger context length, or /compact",
    )


def _auth(status: int, text: str, url: str) -> AuthError:
    host = urlsplit(url).hostname or shown(url)
    variable = "OPENROUTER_API_KEY" if host.endswith("openrouter.ai") else "LLM_API_KEY"
    message = f"{host} refused the API key (HTTP {status}): {text}"
    return AuthError(message, fix="set a valid key for it", terminal=f"set {variable} to a valid key")


def _no_model(model: str, text: str, url: str) -> ModelNotFound:
    fix = "load or download it there, or choose another"
    named = f"the model {model!r}" if model else "a request without a model name"
    return ModelNotFound(
        f"{authority(url)} does not serve {named}: {text}",
        fix=fix,
        terminal=f"{fix} with --model NAME (`lmagent doctor` lists the served models)",
    )


def _moved(location: str, url: str) -> BadReply:
    """Return the error of a redirect; a path alone is one of the same server."""
    where = shown(urljoin(url, location)) if location else "another address"
    fix = f"use the address that it redirects to: {where}"
    typed = f"set LLM_URL to the address it redirects to: {where}"
    return BadReply(f"{shown(url)} redirects to {where}", fix=fix, terminal=typed)


def _by_code(code: int, text: str, url: str, wait: float | None) -> ProviderError:
    host, long = authority(url), wait is not None and wait >= TOLD
    if code == 402:
        return ProviderError(f"{host} wants payment: {text}", fix="add credit to the account, or use another model")
    if code == 503 and _LOADING.search(text):
        return ModelLoading(f"{host} is still loading the model: {text}", fix="wait until it is loaded", retryable=True)
    if code in RETRYABLE or code >= 500:
        what, fix = f"failed (HTTP {code})", f"{_LOG}, or try another model"
        if code == 429:
            what = "is at its rate limit"
            fix = f"wait {wait:,.0f} s, or use another model" if long else "wait, or use another model"
        asks = f", and asks to wait {wait:,.0f} s" if long else ""
        failure = Unavailable if code in LATER else ServerFailure
        return failure(f"{host} {what}{asks}: {text}", fix=fix, retryable=code in RETRYABLE, retry_after=wait)
    return ProviderError(
        f"{host} refused the request (HTTP {code}): {text}",
        fix="check the model and its settings",
        terminal="check LLM_MODEL and the LLM_* settings",
    )


def _levels(error: Any) -> list[dict[str, Any]]:
    """Return an error object and the errors inside it."""
    levels: list[dict[str, Any]] = []
    while isinstance(error, dict):
        levels.append(cast("dict[str, Any]", error))
        error = levels[-1].get("error")
    return levels


def _code(error: Any) -> int:
    """Return the HTTP status in an error object, at any depth; 0 without one."""
    for level in _levels(error):
        for value in (level.get("code"), level.get("status"), level.get("status_code")):
            code = int(value) if isinstance(value, int) or (isinstance(value, str) and value.isdigit()) else 0
            if 400 <= code < 600:
                return code
        kind = str(level.get("type", ""))
        if "rate_limit" in kind or "overloaded" in kind:
            return 429
        if "invalid_request" in kind:
            return 400
    return 0


def _plain(body: bytes, *, html: bool = False) -> str:
    if html:
        title = re.search(rb"<title[^>]*>(.*?)</title>", body, re.IGNORECASE | re.DOTALL)
        body = title[1] if title else b"a web page"
    return _short(body.decode("utf-8", "replace")) or "no reason given"


def _said(text: str) -> str:
    return f" (it said: {text})" if text and text != "no reason given" else ""


def _short(text: str) -> str:
    """Return one printable line, without a key that a server echoes."""
    text = hidden(text)
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    line = _SECRET.sub(r"\1…", line)
    return line if len(line) <= 500 else f"{line[:499]}…"


def is_overflow(text: str, payload: Any = None) -> bool:
    coded = any(level.get(key) in _CODES for level in _levels(payload) for key in ("code", "type", "reason"))
    return coded or bool(_SAYINGS.search(text) and not _OTHERWISE.search(text))


def read_window(text: str, payload: Any = None) -> int | None:
    """Return the window in tokens that an overflow error names, in a field or in its text."""
    for level in _levels(payload):
        for value in map(level.get, _FIELDS):
            if isinstance(value, int) and value >= 16:
                return value
    found = _WINDOW.search(text)
    tokens = int(re.sub(r"\D", "", found[1])) if found else 0
    return tokens if 16 <= tokens <= 100_000_000 else None
