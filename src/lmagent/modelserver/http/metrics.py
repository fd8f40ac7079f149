"""Metrics: counts for Prometheus (text exposition format 0.0.4) and for `lmagent server stats`."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from lmagent.modelserver.spec import ModelStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_TOKENS = {
    "prompt": re.compile(rb'"(?:prompt_tokens|input_tokens|prompt_n)"\s*:\s*(\d+)'),
    "completion": re.compile(rb'"(?:completion_tokens|output_tokens|predicted_n)"\s*:\s*(\d+)'),
}


class Metrics:
    """The counts since the start."""

    def __init__(self) -> None:
        self.started = time.time()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._tokens: Counter[tuple[str, str]] = Counter()
        self._seconds: Counter[str] = Counter()
        self.recovered = 0
        self.enforced = 0
        self.hung_up = 0

    def request(self, model: str, route: str, status: int, seconds: float) -> None:
        """Count a request that ended; `model` is empty for all names that no model has, as clients make them up."""
        self._requests[model, route, status] += 1
        self._seconds[model] += seconds  # type: ignore[assignment]  # a counter adds fractions as well

    def tokens(self, model: str, told: bytes) -> None:
        """Count an engine's `usage` or `timings`."""
        for kind, pattern in _TOKENS.items():
            if found := pattern.findall(told):
                self._tokens[model, kind] += max(map(int, found))

    def summary(self, statuses: Sequence[ModelStatus], evictions: int) -> dict[str, Any]:
        """Return the counts for `lmagent server stats`."""
        summed = ("active", "waiting", "loads", "crashes", "memory")
        return {
            "uptime_s": round(time.time() - self.started, 1),
            "requests": sum(self._requests.values()),
            "errors": sum(self._errors().values()),
            **{f"{kind}_tokens": sum(n for (_, k), n in self._tokens.items() if k == kind) for kind in _TOKENS},
            **{field: sum(getattr(status, field) for status in statuses) for field in summed},
            "evictions": evictions,
            "enforced": self.enforced,
            "recovered": self.recovered,
            "hung_up": self.hung_up,
        }

    def _errors(self) -> Counter[str]:
        errors: Counter[str] = Counter()
        for (model, _, status), count in self._requests.items():
            errors[model] += count if status >= 400 else 0
        return errors

    def text(self, statuses: Sequence[ModelStatus], evictions: int) -> bytes:
        """Return all counts for Prometheus."""
        requests: _Rows = {("model", m, "route", r, "status", s): n for (m, r, s), n in sorted(self._requests.items())}
        tokens: _Rows = {("model", m, "kind", kind): n for (m, kind), n in sorted(self._tokens.items())}
        loaded = {status.entry.name: int(status.state in ("ready", "sleeping")) for status in statuses}

        def of(field: str) -> _Rows:
            return _by_model({status.entry.name: getattr(status, field) for status in statuses})

        families: tuple[tuple[str, str, _Rows], ...] = (
            ("requests_total", "Requests, by model, route and HTTP status.", requests),
            ("errors_total", "Requests that were answered with an error.", _by_model(self._errors())),
            ("request_seconds_total", "Seconds that requests took, all together.", _by_model(self._seconds)),
            ("tokens_total", "Tokens as the engines count them.", tokens),
            ("loads_total", "Loads that went well.", of("loads")),
            ("evictions_total", "Models that made room for others.", {(): evictions}),
            ("enforced_total", "Replies whose form was enforced by the router.", {(): self.enforced}),
            ("recovered_total", "Replies that the engine could not parse and the router did.", {(): self.recovered}),
            ("hung_up_total", "Clients that went away before their answer was complete.", {(): self.hung_up}),
            ("crashes_total", "Workers that ended by themselves.", of("crashes")),
            ("memory_bytes", "Memory of the worker, measured.", of("memory")),
            ("active_requests", "Requests that run.", of("active")),
            ("waiting_requests", "Requests that wait for the model.", of("waiting")),
            ("model_loaded", "1 while a model is ready or asleep.", _by_model(loaded)),
        )
        return "".join(_family(*family) for family in families).encode()


_Rows = Mapping[tuple[object, ...], float]  # A value for each set of labels: name, value, name, value, …


def _by_model(values: Mapping[str, float]) -> _Rows:
    return {("model", name): round(value, 3) for name, value in sorted(values.items())}


def _family(name: str, words: str, rows: _Rows) -> str:
    kind = "counter" if name.endswith("_total") else "gauge"
    lines = [f"# HELP lmagent_{name} {words}", f"# TYPE lmagent_{name} {kind}"]
    for labels, value in rows.items():
        pairs = ",".join(
            f'{label}="{_escaped(str(text))}"' for label, text in zip(labels[::2], labels[1::2], strict=True)
        )
        lines.append(f"lmagent_{name}{{{pairs}}} {value}" if pairs else f"lmagent_{name} {value}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
