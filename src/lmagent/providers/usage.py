"""Usage: token counts under the names of several servers."""

from __future__ import annotations

from typing import Any

from lmagent.core.model import Usage

BYTES_PER_TOKEN = 4
"""The estimate for a server that reports nothing."""


def read_usage(chunk: dict[str, Any]) -> Usage | None:
    """Return the token counts in a chunk; None without any, or with only zeros.

    The names: OpenAI's `usage`, with `prompt_tokens_details.cached_tokens`; `input_tokens`/`output_tokens` of some
    gateways; DeepSeek's `prompt_cache_hit_tokens`; llama.cpp's `timings` (`cache_n` + `prompt_n`, `predicted_n`).
    """
    usage, timings = _dict(chunk.get("usage")), _dict(chunk.get("timings"))
    details = _dict(usage.get("prompt_tokens_details")) or _dict(usage.get("input_tokens_details"))
    cached = _count(details, "cached_tokens") or _count(usage, "prompt_cache_hit_tokens") or _count(timings, "cache_n")
    prompt = _count(usage, "prompt_tokens") or _count(usage, "input_tokens")
    reply = _count(usage, "completion_tokens") or _count(usage, "output_tokens")
    if "prompt_n" in timings:
        prompt = prompt or _count(timings, "cache_n") + _count(timings, "prompt_n")
        reply = reply or _count(timings, "predicted_n")
    return Usage(prompt, reply, cached) if prompt or reply else None


def complete_usage(known: Usage | None, prompt_bytes: int, reply_bytes: int) -> Usage:
    """Return `known`, its missing counts estimated from sizes in bytes."""
    known = known or Usage()
    prompt = known.prompt_tokens or max(1, prompt_bytes // BYTES_PER_TOKEN)
    reply = known.completion_tokens or -(-reply_bytes // BYTES_PER_TOKEN)
    estimated = (prompt, reply) != (known.prompt_tokens, known.completion_tokens)
    return Usage(prompt, reply, known.cached_tokens, estimated)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def _count(source: dict[str, Any], key: str) -> int:
    value = source.get(key)
    return int(value) if isinstance(value, int | float) and 0 < value < 1e15 else 0
