"""Meters of one reply: token counts under the names of several servers, the time that is left, and endlessness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from lmagent.core.model import Progress, Usage

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


ENOUGH = 3
"""Reports from which a curve is fitted; with fewer, a line."""


class PrefillEta:
    """How long the server will still be reading the prompt, from its progress reports.

    The time to read grows a little faster than the prompt, since each token attends to all before it. So the reports
    are fitted by t = a·n + b·n², n being the tokens read so far, with neither a nor b below zero.
    """

    def __init__(self) -> None:
        self._points: list[tuple[float, float]] = []

    def read(self, report: Any, elapsed: float) -> Progress:
        """Return the progress in a report.

        Args:
            report: llama.cpp's `prompt_progress` {total, cache, processed, time_ms}, in tokens, `processed` with
                `cache`; or a fraction from 0 to 1, as other servers send it.
            elapsed: seconds since the request was sent, for a report without time.
        """
        total, cached, done, seconds = _numbers(report, elapsed)
        if total <= 0:
            return Progress()
        fraction = min(1.0, max(0.0, done / total))
        fresh, whole = done - cached, total - cached
        if fresh > 0 and seconds > 0 and (not self._points or fresh > self._points[-1][0]):
            self._points.append((fresh, seconds))
        if not self._points or fresh <= 0:
            return Progress(fraction)
        line, curve = fit(self._points)
        end = line * whole + curve * whole * whole
        return Progress(fraction, max(0.0, end - max(seconds, self._points[-1][1])))


def fit(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return a and b of t = a·n + b·n² by least squares, neither below zero."""
    n2 = sum(n * n for n, _ in points)
    nt = sum(n * t for n, t in points)
    if len(points) >= ENOUGH:
        n3, n4 = sum(n**3 for n, _ in points), sum(n**4 for n, _ in points)
        n2t = sum(n * n * t for n, t in points)
        spread = n2 * n4 - n3 * n3
        if spread > 1e-9 * n2 * n4:
            line, curve = (nt * n4 - n2t * n3) / spread, (n2t * n2 - nt * n3) / spread
            if line >= 0 and curve >= 0:
                return line, curve
            if line < 0:
                return 0.0, n2t / n4
    return nt / n2, 0.0


def _numbers(report: Any, elapsed: float) -> tuple[float, float, float, float]:
    if isinstance(report, int | float) and not isinstance(report, bool):
        return 1.0, 0.0, float(report), elapsed
    if not isinstance(report, dict):
        return 0.0, 0.0, 0.0, 0.0
    known = cast("dict[str, Any]", report)
    total, cached, done, ms = (float(_count(known, key)) for key in ("total", "cache", "processed", "time_ms"))
    return total, min(cached, done), done, ms / 1000 if ms > 0 else elapsed


LONGEST_CYCLE = 2000
"""Characters of the longest repeated piece."""

REPEATED = 12_000
"""Characters at the end of a reply that are one repeated piece: no more content is expected from there on."""


class EndlessMeter:
    """Notices a reply that repeats itself; it counts as endless after `longest` characters in any case."""

    def __init__(self, longest: int) -> None:
        self.endless = False
        self.size = 0
        self._longest = longest
        self._tail = ""
        self._pieces: list[str] = []
        self._looked = 0

    def add(self, piece: str) -> None:
        self.size += len(piece)
        self._pieces.append(piece)
        if self.size - self._looked >= LONGEST_CYCLE:
            self._tail = "".join((self._tail, *self._pieces))[-REPEATED:]
            self._pieces.clear()
            self._looked = self.size
            self.endless = self.endless or repeats(self._tail)
        self.endless = self.endless or self.size > self._longest


def repeats(tail: str) -> bool:
    """Return whether a text of `REPEATED` characters is one piece of at most `LONGEST_CYCLE`, repeated."""
    if len(tail) < REPEATED:
        return False
    before = tail.rfind(tail[-LONGEST_CYCLE:], -2 * LONGEST_CYCLE, -1)
    period = len(tail) - LONGEST_CYCLE - before
    return before >= 0 and tail[period:] == tail[:-period]
