"""Status: the state of the gateway, its tools, and metrics in Prometheus' text format 0.0.4."""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import anyio
from msgspec import Struct
from starlette.responses import Response

from lmagent import __version__
from lmagent.core.tool import Effect
from lmagent.gateway.gateway import Gateway
from lmagent.gateway.http.route import Call, Routes
from lmagent.providers.concealed import shown
from lmagent.store.spent import UsageSums

ROUTES = Routes()

STARTED = time.monotonic()  # when this process loaded the gateway


class Status(Struct, frozen=True):
    """The gateway's state: model and mode of new sessions, seconds since the start, sessions, running turns, tools."""

    status: str
    agent: str
    version: str
    model: str
    endpoint: str
    mode: str
    workspace: str
    uptime: float
    sessions: int
    open: int
    running: int
    tools: int


@ROUTES.get("/api/status", "How the gateway is")
async def show_status(call: Call) -> Status:
    """Return the state, without querying the model server or reading logs.

    Without a thread too: while many sessions stream, a thread waits five milliseconds for each call of the system.
    """
    host = call.gateway.host
    here = list(host.sessions.values())
    return Status(
        status="running",
        agent=host.agent.name,
        version=__version__,
        model=host.agent.model,
        endpoint=shown(host.settings.endpoint),
        mode=host.settings.permission_mode,
        workspace=str(host.workspace),
        uptime=round(time.monotonic() - STARTED, 3),
        sessions=host.store.count(),
        open=len(here),
        running=sum(session.running for session in here),
        tools=sum(1 for _ in host.toolbox),
    )


# --- tools ------------------------------------------------------------------------------------------------------------


class ToolRow(Struct, frozen=True):
    """A tool, its JSON schema and other names; a deferred one is listed in a catalogue instead of in every prompt."""

    name: str
    description: str
    effect: Effect
    parameters: dict[str, Any]
    aliases: tuple[str, ...]
    deferred: bool


class Tools(Struct, frozen=True):
    """All tools, in the order of their registration."""

    tools: tuple[ToolRow, ...]


@ROUTES.get("/api/tools", "The tools, with their parameters")
async def list_tools(call: Call) -> Tools:
    return Tools(
        tuple(
            ToolRow(tool.name, tool.description, tool.effect, tool.spec.parameters, tool.aliases, tool.deferred)
            for tool in call.gateway.host.toolbox
        )
    )


# --- metrics ----------------------------------------------------------------------------------------------------------

MEDIA = "text/plain; version=0.0.4; charset=utf-8"

CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx")

PAUSE = 0.01  # seconds slept to measure the event loop's lag


@ROUTES.get("/metrics", "Metrics for Prometheus", media="text/plain")
async def show_metrics(call: Call) -> Response:
    lag, counters = await _lag(), call.gateway.counters
    spent = await to_thread.run_sync(_spent, call.gateway)
    sums = {"prompt": spent.prompt_tokens, "completion": spent.completion_tokens, "cached": spent.cached_tokens}
    tokens = {name: _rising(counters, name, value) for name, value in sums.items()}
    steps = _rising(counters, "steps", spent.steps)
    answers = {name: counters[name] for name in CLASSES}
    lines = [
        *_family("lmagent_build_info", "gauge", "Version of the gateway.", _build()),
        *_family("lmagent_http_requests_total", "counter", "Answers by class of status.", _labelled("status", answers)),
        *_family("lmagent_tokens_total", "counter", "Tokens, since the first record.", _labelled("kind", tokens)),
        *_family("lmagent_steps_total", "counter", "Model calls, since the first record.", [("", steps)]),
        *_family("lmagent_event_loop_lag_seconds", "gauge", "How late the event loop is.", [("", round(lag, 6))]),
    ]
    for name, help, value in _gauges(call.gateway):
        lines += _family(name, "gauge", help, [("", value)])
    return Response("\n".join([*lines, ""]), media_type=MEDIA)


def _spent(gateway: Gateway) -> UsageSums:
    with gateway.index() as index:
        return index.spending().total


def _rising(counters: Counter[str], name: str, value: int) -> int:
    """Return a sum without the falls that come from deleted sessions: a counter must not fall."""
    counters[f"{name} gone"] += max(0, counters[name] - value)
    counters[name] = value
    return value + counters[f"{name} gone"]


def _gauges(gateway: Gateway) -> Iterable[tuple[str, str, int]]:
    sessions = list(gateway.host.sessions.values())
    watchers = sum(len(stream.watchers) for stream in gateway.broadcast.streams.values())
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
