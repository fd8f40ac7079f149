"""Status: the state of the gateway, its tools, and metrics in Prometheus' text format 0.0.4."""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import anyio
from anyio import to_thread
from msgspec import Struct
from starlette.responses import Response

from lmagent import __version__
from lmagent.core.tool import Effect
from lmagent.gateway.gateway import Gateway, Load
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


@ROUTES.get("/api/status", "How the gateway is", place="gateway")
async def show_status(call: Call) -> Status:
    """Return the state, without querying the model server or reading logs."""
    host = call.gateway.host
    agent = host.parts(host.named).agent
    load = await call.gateway.load()
    return Status(
        status="running",
        agent=agent.name,
        version=__version__,
        model=agent.model,
        endpoint=shown(host.settings.endpoint),
        mode=host.mode_of(host.named),
        workspace=call.gateway.place,
        uptime=round(time.monotonic() - STARTED, 3),
        sessions=load.sessions,
        open=load.open,
        running=load.running,
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


@ROUTES.get("/metrics", "Metrics for Prometheus", media="text/plain", place="gateway")
async def show_metrics(call: Call) -> Response:
    lag, counters = await _lag(), call.gateway.counters
    spent = await to_thread.run_sync(_spent, call.gateway)
    sums = {"prompt": spent.prompt_tokens, "completion": spent.completion_tokens, "cached": spent.cached_tokens}
    steps = _rising(counters, "steps", spent.steps)
    tokens = {f'{{kind="{name}"}}': _rising(counters, name, value) for name, value in sums.items()}
    answers = {f'{{status="{name}"}}': counters[name] for name in CLASSES}
    build = f'{{version="{__version__}",python="{platform.python_version()}"}}'
    lines = [
        *_family("build_info", "gauge", "Version of the gateway.", {build: 1}),
        *_family("http_requests_total", "counter", "Answers by class of status.", answers),
        *_family("tokens_total", "counter", "Tokens, since the first record.", tokens),
        *_family("steps_total", "counter", "Model calls, since the first record.", steps),
        *_family("event_loop_lag_seconds", "gauge", "How late the event loop is.", round(lag, 6)),
        *_gauges(call.gateway, await call.gateway.load()),
    ]
    return Response("\n".join([*lines, ""]), media_type=MEDIA)


def _spent(gateway: Gateway) -> UsageSums:
    with gateway.index() as index:
        return index.spending().total


def _rising(counters: Counter[str], name: str, value: int) -> int:
    """Return a sum without the falls that come from deleted sessions: a counter must not fall."""
    counters[f"{name} gone"] += max(0, counters[name] - value)
    counters[name] = value
    return value + counters[f"{name} gone"]


def _gauges(gateway: Gateway, load: Load) -> Iterable[str]:
    streams = [*gateway.broadcast.streams.values(), gateway.broadcast.feed.stream]
    watchers = sum(len(stream.watchers) for stream in streams)
    yield from _family("sessions_open", "gauge", "Sessions that are open for writing.", load.open)
    yield from _family("turns_running", "gauge", "Turns that run.", load.running)
    yield from _family("watchers", "gauge", "Streams of events that are read.", watchers)
    yield from _family("approvals_waiting", "gauge", "Approvals that wait for the user.", load.approvals)


def _family(name: str, kind: str, help: str, value: float | dict[str, int]) -> list[str]:
    """Return the lines of a metric; with labels, `value` has a value for each."""
    samples = value if isinstance(value, dict) else {"": value}
    head = [f"# HELP lmagent_{name} {help}", f"# TYPE lmagent_{name} {kind}"]
    return head + [f"lmagent_{name}{labels} {one}" for labels, one in samples.items()]


async def _lag() -> float:
    begun = time.monotonic()
    await anyio.sleep(PAUSE)
    return max(0.0, time.monotonic() - begun - PAUSE)
