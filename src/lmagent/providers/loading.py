"""Loading: have a model server load, unload or download a model, by the routes of its dialect."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal

from msgspec import Struct

from lmagent.core.errors import BadReply, ProviderError, ServerFailure
from lmagent.providers import jsontext
from lmagent.providers.concealed import shown
from lmagent.providers.dialects.fields import at, mapping, number, text
from lmagent.providers.failures import describe, from_transport
from lmagent.providers.served import Endpoint
from lmagent.providers.sse import LineReader
from lmagent.providers.transport import Timeouts, Transport, TransportError, TransportResponse, json_headers, read_all
from lmagent.providers.urls import authority, server_root

Action = Literal["load", "unload", "download"]

PATIENCE = Timeouts(connect=5.0, first_byte=1800.0, idle=600.0)
"""Loading a large model from a slow disk takes minutes, during which a server is silent."""

ANSWER = 1 << 20

Ask = tuple[str, Callable[[str], dict[str, Any]]]
"""A path under the server's root, and the body for a model's name."""

ROUTES: dict[str, dict[Action, Ask]] = {
    "lmagent": {
        "load": ("/api/load", lambda name: {"model": name}),
        "unload": ("/api/unload", lambda name: {"model": name}),
    },
    "lmstudio": {
        "load": ("/api/v1/models/load", lambda name: {"model": name}),
        "unload": ("/api/v1/models/unload", lambda name: {"instance_id": name}),
    },
    "ollama": {
        # A request without a prompt loads the model; https://docs.ollama.com/api/generate
        "load": ("/api/generate", lambda name: {"model": name, "stream": False}),
        "unload": ("/api/generate", lambda name: {"model": name, "stream": False, "keep_alive": 0}),
        "download": ("/api/pull", lambda name: {"model": name, "stream": True}),
    },
}
"""The abilities of each dialect. Servers that are not listed load models by themselves, or at their start."""


class Pulled(Struct, frozen=True):
    """The progress of a server's download: bytes that it has, bytes of the known files, and its current step."""

    have: int
    total: int
    text: str


def actions(dialect: str) -> frozenset[Action]:
    return frozenset(ROUTES.get(dialect, {}))


async def change(
    transport: Transport,
    endpoint: Endpoint,
    dialect: str,
    action: Action,
    model: str,
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Have the server load or unload a model, wait until it has, and return its answer.

    `more`: fields for the request, as the dialect's server knows them. Raises ProviderError if the server cannot.
    """
    async with _asked(transport, endpoint, dialect, action, model, more) as response:
        body = await read_all(response, ANSWER)
    answer = jsontext.loads_or_none(body)
    if answer is None:
        raise BadReply(f"{authority(endpoint.url)} answered with something that is no JSON", fix=_LOG)
    if at(answer, "error"):  # LM Studio answers unknown requests with 200
        raise _refused(endpoint, action, model, answer)
    return mapping(answer)


async def pull(transport: Transport, endpoint: Endpoint, dialect: str, model: str) -> AsyncGenerator[Pulled]:
    """Have the server download a model; end when the server has it. Closing the generator stops the download.

    Raises:
        ProviderError: the server cannot download it, or breaks off; the server keeps the part that it has.
    """
    layers: dict[str, tuple[int, int]] = {}
    async with _asked(transport, endpoint, dialect, "download", model) as response:
        async for payload in _payloads(response):
            line = mapping(jsontext.loads_or_none(payload))
            if "error" in line:
                raise _refused(endpoint, "download", model, line)
            if (digest := text(line, "digest")) and (total := number(line, "total")) is not None:
                layers[digest] = (number(line, "completed") or 0, total)
            step = text(line, "status")
            have, total = sum(have for have, _ in layers.values()), sum(total for _, total in layers.values())
            yield Pulled(have, total, step[:200])
            if step == "success":
                return
    raise ServerFailure(
        f"{authority(endpoint.url)} ended the download of {model} before it was complete",
        fix="begin it again: the part that is there is kept",
    )


async def _payloads(response: TransportResponse) -> AsyncGenerator[bytes]:
    reader = LineReader()
    async for chunk in response.chunks:
        for payload in reader.feed(chunk):
            yield payload
    for payload in reader.finish():
        yield payload


_LOG = "look at the server's log, or do it in the server's own window"


@asynccontextmanager
async def _asked(
    transport: Transport,
    endpoint: Endpoint,
    dialect: str,
    action: Action,
    model: str,
    more: Mapping[str, Any] | None = None,
) -> AsyncGenerator[TransportResponse]:
    path, body = ROUTES[dialect][action]
    url = f"{server_root(endpoint.url)}{path}"
    asked = jsontext.dumps({**body(model), **(more or {})})
    try:
        async with await transport.send("POST", url, json_headers(endpoint.key), asked, PATIENCE) as response:
            if response.status != 200:
                answer = jsontext.loads_or_none(await read_all(response, ANSWER))
                raise _refused(endpoint, action, model, answer, response.status)
            yield response
    except TransportError as error:
        raise from_transport(error, url=url, timeouts=PATIENCE) from error


def _refused(endpoint: Endpoint, action: Action, model: str, answer: Any, status: int = 200) -> ProviderError:
    said = describe(answer) if answer else f"HTTP {status}"
    if status in (404, 405) and not answer:
        return BadReply(f"{shown(endpoint.url)} cannot {action} models: it is too old for that", fix=_LOG)
    return ServerFailure(f"{authority(endpoint.url)} could not {action} {model}: {said}", fix=_LOG)
