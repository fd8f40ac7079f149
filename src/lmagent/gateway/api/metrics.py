"""Metrics in Prometheus' text format 0.0.4, and the counters that they need."""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import anyio
from anyio import to_thread
from starlette.responses import Response

from lmagent import __version__
from lmagent.gateway.api.usage import spent_since
from lmagent.gateway.gateway import Gateway
from lmagent.gateway.http.guard import App, Message, Receive, Scope, Send
from lmagent.gateway.http.route import Call, Route

MEDIA = "text/plain; version=0.0.4; charset=utf-8"

CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx")

PAUSE = 0.01
"""Seconds slept to measure the event loop's lag."""

_COUNTS, _RISING = "lmagent.requests", "lmagent.rising"


class Rising:
    """Counters made from sums that can fall: deleting a session lowers the sums, but counters must not fall."""

    def __init__(self) -> None:
        self._gone: Counter[str] = Counter()
        self._last: Counter[str] = Counter()

    def raised(self, sums: Mapping[str, int]) -> dict[str, int]:
        for name, value in sums.items():
            self._gone[name] += max(0, self._last[name] - value)
            self._last[name] = value
        return {name: value + self._gone[name] for name, value in sums.items()}


def counted(app: App) -> App:
    """Return an application that counts the answers of `app` by class of status, for `/metrics`."""
    counts: dict[str, int] = dict.fromkeys(CLASSES, 0)
    rising = Rising()

    async def counting(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await app(scope, receive, send)
            return
        scope[_COUNTS], scope[_RISING] = counts, rising

        async def sender(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                counts[f"{message['status'] // 100}xx"] += 1
            elif message["type"] == "websocket.accept":
                counts["1xx"] += 1
            await send(message)

        await app(scope, receive, sender)

    return counting


async def show_metrics(call: Call) -> Response:
    lag = await _lag()
    spent = (await to_thread.run_sync(spent_since, call.gateway.host.store.root, "")).total
    sums = {"prompt": spent.prompt_tokens, "completion": spent.completion_tokens, "cached": spent.cached_tokens}
    rising: Rising = call.request.scope.get(_RISING) or Rising()
    tokens = rising.raised({**sums, "steps": spent.steps})
    steps = tokens.pop("steps")
    counts: dict[str, int] = call.request.scope.get(_COUNTS, {})
    lines = [
        *_family("lmagent_build_info", "gauge", "Version of the gateway.", _build()),
        *_family("lmagent_http_requests_total", "counter", "Answers by class of status.", _labelled("status", counts)),
        *_family(
            "lmagent_tokens_total",
            "counter",
            "Tokens by kind, since the first record.",
            _labelled("kind", tokens),
        ),
        *_family("lmagent_steps_total", "counter", "Model calls, since the first record.", [("", steps)]),
        *_family("lmagent_event_loop_lag_seconds", "gauge", "How late the event loop is.", [("", round(lag, 6))]),
    ]
    for name, help, value in _gauges(call.gateway):
        lines += _family(name, "gauge", help, [("", value)])
    return Response("\n".join([*lines, ""]), media_type=MEDIA)


def _gauges(gateway: Gateway) -> Iterable[tuple[str, str, int]]:
    sessions = list(gateway.host.sessions.values())
    watchers = sum(len(stream.stream.watchers) for stream in gateway.broadcast.streams.values())
    yield "lmagent_sessions_open", "Sessions that are open for writing.", len(sessions)
    yield "lmagent_turns_running", "Turns that run.", sum(session.running for session in sessions)
    yield "lmagent_watchers", "Streams of events that are read.", watchers + len(gateway.broadcast.feed.stream.watchers)
    waiting = sum(len(session.state.approvals) for session in sessions)
    yield "lmagent_approvals_waiting", "Approvals that wait for the user.", waiting


def _build() -> list[tuple[str, Any]]:
    return [(f'{{version="{__version__}",python="{platform.python_version()}"}}', 1)]


def _labelled(label: str, values: dict[str, int]) -> list[tuple[str, Any]]:
    return [(f'{{{label}="{name}"}}', value) for name, value in values.items()]


def _family(name: str, kind: str, help: str, samples: Iterable[tuple[str, Any]]) -> list[str]:
    return [f"# HELP {name} {help}", f"# TYPE {name} {kind}", *(f"{name}{labels} {value}" for labels, value in samples)]


async def _lag() -> float:
    begun = time.monotonic()
    await anyio.sleep(PAUSE)
    return max(0.0, time.monotonic() - begun - PAUSE)


ROUTES = (Route("GET", "/metrics", show_metrics, "Metrics for Prometheus", media="text/plain"),)
