"""Overflow: recognises "the prompt does not fit" in many servers' messages, and reads the window from them."""

from __future__ import annotations

import re
from typing import Any

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

_NUMBER = r"(\d[\d,_]*)"
_WINDOWS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\d[\d,_]*(?: tokens)? > " + _NUMBER,
        r"must be <= " + _NUMBER,
        r"n_ctx\D{0,20}?" + _NUMBER,
        r"num_ctx\D{0,20}?" + _NUMBER,
        r"context[ _-]?(?:length|size|window|limit)\D{0,30}?" + _NUMBER,
        r"(?:model|input|prompt) length (?:is|of|limit)?\D{0,20}?" + _NUMBER,
        _NUMBER + r" (?:tokens )?(?:maximum )?context",
        r"maximum (?:number of tokens|of|is|allowed)\D{0,30}?" + _NUMBER,
        r"limit(?:ed)? (?:is|of|to) " + _NUMBER,
    )
)
_FIELDS = ("n_ctx", "context_length", "max_context_length", "max_model_len", "context_window", "max_tokens_allowed")


def is_overflow(text: str, payload: Any = None) -> bool:
    """Return whether an error's text or its machine-readable code reports that the prompt does not fit."""
    return _has_code(payload) or bool(_SAYINGS.search(text) and not _OTHERWISE.search(text))


def read_window(text: str, payload: Any = None) -> int | None:
    """Return the window in tokens that an overflow error names, in a field or in its text."""
    named = _field(payload)
    if named:
        return named
    for pattern in _WINDOWS:
        if found := pattern.search(text):
            tokens = int(re.sub(r"\D", "", found[1]))
            if 16 <= tokens <= 100_000_000:
                return tokens
    return None


def _has_code(payload: Any) -> bool:
    if isinstance(payload, dict):
        found: dict[str, Any] = payload  # pyright: ignore[reportUnknownVariableType]
        if any(found.get(key) in _CODES for key in ("code", "type", "reason")):
            return True
        return _has_code(found.get("error"))
    return False


def _field(payload: Any) -> int | None:
    if not isinstance(payload, dict):
        return None
    found: dict[str, Any] = payload  # pyright: ignore[reportUnknownVariableType]
    for key in _FIELDS:
        value = found.get(key)
        if isinstance(value, int) and value >= 16:
            return value
    return _field(found.get("error"))
