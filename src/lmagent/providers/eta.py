"""ETA: how long the server will still be reading the prompt, from its progress reports.

The time to read grows a little faster than the prompt, since each token attends to all before it. So the reports are
fitted by t = a·n + b·n², n being the tokens read so far, with neither a nor b below zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from lmagent.core.model import Progress

ENOUGH = 3
"""Reports from which a curve is fitted; with fewer, a line."""


class PrefillEta:
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
        return Progress(fraction, max(0.0, self._at(whole) - max(seconds, self._points[-1][1])))

    def _at(self, size: float) -> float:
        """Return the seconds at which `size` tokens will have been read."""
        line, curve = fit(self._points)
        return line * size + curve * size * size


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
    total, cached, done, ms = (_number(known.get(key)) for key in ("total", "cache", "processed", "time_ms"))
    return total, min(cached, done), done, ms / 1000 if ms > 0 else elapsed


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15 else 0.0
