"""Metrics: counts for Prometheus (text exposition format 0.0.4) and for `lmagent server stats`."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from lmagent.modelserver.spec import ModelStatus
from lmagent.providers import jsontext

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

_READ = re.compile(rb'"(?:prompt_tokens|input_tokens|prompt_n)"\s*:\s*(\d+)')
_WRITTEN = re.compile(rb'"(?:completion_tokens|output_tokens|predicted_n)"\s*:\s*(\d+)')
_EVICTED = ": unloading, it makes room"
"""The end of the pool's line about a model that makes room for another."""

MOST_UNKNOWN = 100
"""Names of models that there are not, as clients make them up; requests for more of them are counted together."""

LONGEST = 200
"""Characters of such a name."""


class Metrics:
    """The counts since the start."""

    def __init__(self) -> None:
        self.started = time.time()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._tokens: Counter[tuple[str, str]] = Counter()
        self._seconds: Counter[str] = Counter()
        self._evictions = 0
        self._loads: Counter[str] = Counter()
        self._loaded: dict[str, int] = {}
        self._known: set[str] = set()
        self._unknown: set[str] = set()
        self.recovered = 0
        self.enforced = 0
        self.hung_up = 0

    def request(self, model: str, route: str, status: int, seconds: float) -> None:
        """Count a request that ended."""
        if status < 400:
            self._known.add(model)  # it answered, so there is one of that name
        model = self._label(model)
        self._requests[model, route, status] += 1
        self._seconds[model] += seconds  # type: ignore[assignment]  # a counter adds fractions as well

    def tokens(self, model: str, told: bytes) -> None:
        """Count an engine's `usage` or `timings`."""
        for kind, pattern in (("prompt", _READ), ("completion", _WRITTEN)):
            if found := pattern.findall(told):
                self._tokens[model, kind] += max(map(int, found))

    def event(self, line: str) -> None:
        """Count a line of the pool's."""
        self._evictions += _EVICTED in line

    def seen(self, statuses: Sequence[ModelStatus]) -> None:
        """Count loads: processes that were not there the last time."""
        for status in statuses:
            name = status.entry.name
            self._known.add(name)
            if status.pid and self._loaded.get(name) != status.pid and status.state in ("ready", "sleeping"):
                self._loads[name] += 1
                self._loaded[name] = status.pid

    def _label(self, model: str) -> str:
        """Return the name that a request is counted under, shortened: clients write any text there."""
        if model in self._known:
            return model
        name = jsontext.mend(model[:LONGEST])
        if name not in self._unknown and len(self._unknown) >= MOST_UNKNOWN:
            return ""
        self._unknown.add(name)
        return name

    def summary(self, statuses: Sequence[ModelStatus]) -> dict[str, Any]:
        """Return the counts for `lmagent server stats`."""
        self.seen(statuses)
        return {
            "uptime_s": round(time.time() - self.started, 1),
            "requests": sum(self._requests.values()),
            "errors": sum(count for (_, _, status), count in self._requests.items() if status >= 400),
            "active": sum(status.active for status in statuses),
            "waiting": sum(status.waiting for status in statuses),
            "prompt_tokens": sum(count for (_, kind), count in self._tokens.items() if kind == "prompt"),
            "completion_tokens": sum(count for (_, kind), count in self._tokens.items() if kind == "completion"),
            "loads": sum(self._loads.values()),
            "evictions": self._evictions,
            "crashes": sum(status.crashes for status in statuses),
            "memory": sum(status.memory for status in statuses),
            "enforced": self.enforced,
            "recovered": self.recovered,
            "hung_up": self.hung_up,
        }

    def text(self, statuses: Sequence[ModelStatus]) -> bytes:
        """Return all counts for Prometheus."""
        self.seen(statuses)
        page = _Page()
        page.head("requests_total", "counter", "Requests, by model, route and HTTP status.")
        for (model, route, status), count in sorted(self._requests.items()):
            page.line("requests_total", count, model=model, route=route, status=status)
        page.head("errors_total", "counter", "Requests that were answered with an error.")
        errors: Counter[str] = Counter()
        for (model, _, status), count in self._requests.items():
            errors[model] += count if status >= 400 else 0
        for model, count in sorted(errors.items()):
            page.line("errors_total", count, model=model)
        page.head("request_seconds_total", "counter", "Seconds that requests took, all together.")
        for model, seconds in sorted(self._seconds.items()):
            page.line("request_seconds_total", round(seconds, 3), model=model)
        page.head("tokens_total", "counter", "Tokens as the engines count them.")
        for (model, kind), count in sorted(self._tokens.items()):
            page.line("tokens_total", count, model=model, kind=kind)
        page.head("loads_total", "counter", "Loads that were seen.")
        for model, count in sorted(self._loads.items()):
            page.line("loads_total", count, model=model)
        for name, count, words in (
            ("evictions_total", self._evictions, "Models that made room for others."),
            ("enforced_total", self.enforced, "Replies whose form was enforced by the router."),
            ("recovered_total", self.recovered, "Replies that the engine could not parse and the router did."),
            ("hung_up_total", self.hung_up, "Clients that went away before their answer was complete."),
        ):
            page.head(name, "counter", words)
            page.line(name, count)
        for name, field, kind, words in (
            ("crashes_total", "crashes", "counter", "Workers that ended by themselves."),
            ("memory_bytes", "memory", "gauge", "Memory of the worker, measured."),
            ("active_requests", "active", "gauge", "Requests that run."),
            ("waiting_requests", "waiting", "gauge", "Requests that wait for the model."),
        ):
            page.head(name, kind, words)
            for status in statuses:
                page.line(name, getattr(status, field), model=status.entry.name)
        page.head("model_loaded", "gauge", "1 while a model is ready or asleep.")
        for status in statuses:
            page.line("model_loaded", int(status.state in ("ready", "sleeping")), model=status.entry.name)
        return page.whole()


class _Page:
    def __init__(self) -> None:
        self._lines: list[str] = []

    def head(self, name: str, kind: str, words: str) -> None:
        self._lines += [f"# HELP lmagent_{name} {words}", f"# TYPE lmagent_{name} {kind}"]

    def line(self, name: str, value: float, **labels: object) -> None:
        told = ",".join(f'{label}="{_escaped(str(text))}"' for label, text in labels.items())
        self._lines.append(f"lmagent_{name}{{{told}}} {value}" if told else f"lmagent_{name} {value}")

    def whole(self) -> bytes:
        return ("\n".join(self._lines) + "\n").encode()


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
