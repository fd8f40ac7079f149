"""Router: the routes of the model server."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import anyio
import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from lmagent import __version__
from lmagent.core.decoding import convert
from lmagent.core.errors import LmagentError
from lmagent.modelserver.errors import BadRequest, body_of, log_unexpected, status_of
from lmagent.modelserver.http import metrics as meter
from lmagent.modelserver.http.bodies import Receive, RelayRequest, Scope, Send, fields_of, read_body, understood
from lmagent.modelserver.http.guard import AccessRules, guarded
from lmagent.modelserver.http.listing import OWNER, model_fields, running_fields
from lmagent.modelserver.http.relay import KEEP_ALIVE, Relay
from lmagent.modelserver.http.reply import ClientReply
from lmagent.modelserver.library.library import Library
from lmagent.modelserver.pool.journal import follow_file, last_lines
from lmagent.modelserver.pool.pool import WorkerPool
from lmagent.modelserver.pool.refusals import closing
from lmagent.modelserver.spec import LoadOptions, ModelServerError, ModelStatus
from lmagent.providers import jsontext

ROUTES: Mapping[str, tuple[str, str]] = {
    "/v1/chat/completions": ("chat", "/v1/chat/completions"),
    "/chat/completions": ("chat", "/v1/chat/completions"),
    "/v1/completions": ("completions", "/v1/completions"),
    "/v1/embeddings": ("embeddings", "/v1/embeddings"),
    "/v1/responses": ("responses", "/v1/responses"),
    "/v1/messages": ("messages", "/v1/messages"),
    "/v1/messages/count_tokens": ("messages", "/v1/messages/count_tokens"),
    "/v1/rerank": ("rerank", "/v1/rerank"),
    "/rerank": ("rerank", "/v1/rerank"),
    "/tokenize": ("tokenize", "/tokenize"),
    "/detokenize": ("detokenize", "/detokenize"),
    "/apply-template": ("apply-template", "/apply-template"),
}
"""Routes that are passed on: kind of the request, and path at the engine."""


class _Passed:
    """A route to a model, as an ASGI application without any layer above it."""

    def __init__(self, router: Router, route: str, path: str) -> None:
        self._router = router
        self._route = route
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            raw = await read_body(scope, receive)
            asked = understood(self._route, self._path, raw)
        except BadRequest as error:
            self._router.metrics.request("", self._route, error.status, 0.0)
            await ClientReply(send, self._route).fail(error)
            return
        if self._router.leaving:
            await ClientReply(send, self._route).fail(closing())
            return
        await self._router.relay.answer(asked, receive, send)


class Router:
    """The routes, with the models and workers that they need."""

    def __init__(
        self, catalogue: Library, pool: WorkerPool, rules: AccessRules | None = None, *, keep_alive: float = KEEP_ALIVE
    ) -> None:
        self.metrics = meter.Metrics()
        self.relay = Relay(pool, self.metrics, keep_alive=keep_alive)
        self._left = anyio.Event()
        self._catalogue = catalogue
        self._pool = pool
        passed = [Route(path, _Passed(self, *to), methods=["POST"]) for path, to in ROUTES.items()]
        own = [
            Route("/v1/models", self._models),
            Route("/models", self._models),
            Route("/api/v0/models", self._models),
            Route("/v1/models/{name:path}", self._model),
            Route("/health", self._health),
            Route("/v1/health", self._health),
            Route("/metrics", self._metrics),
            Route("/props", self._props),
            Route("/api/ps", self._ps),
            Route("/api/load", self._load, methods=["POST"]),
            Route("/api/unload", self._unload, methods=["POST"]),
            Route("/api/stats", self._stats),
            Route("/api/logs", self._logs),
            Route("/", self._front),
        ]
        handlers: Any = {HTTPException: _http_error, LmagentError: _told, Exception: _told}
        app = Starlette(routes=[*passed, *own], exception_handlers=handlers)
        self.app = guarded(app, rules or AccessRules())

    @property
    def leaving(self) -> bool:
        return self._left.is_set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[Router]:
        """Close the connections to the engines after the block."""
        try:
            yield self
        finally:
            with anyio.CancelScope(shield=True):
                await self.relay.aclose()

    async def farewell(self, seconds: float) -> None:
        """Refuse new requests, wait that long for running ones, then end them."""
        self._left.set()
        self._pool.journal.say(time.time(), "stopping")
        with anyio.move_on_after(seconds):
            await self.relay.idle()
        self.relay.end_all(closing())

    def _status(self, name: str) -> ModelStatus:
        entry = self._catalogue.find(name)
        for status in self._pool.statuses():
            if status.entry.name == entry.name:
                return status
        return ModelStatus(entry, "unloaded")

    async def _models(self, request: Request) -> Response:
        """List all models; the demonstration model only while it is loaded."""
        offered = [one for one in self._pool.statuses() if one.entry.source != "demo" or one.state != "unloaded"]
        # An empty list names its owner too: else a client could only guess by the port what this server is.
        return _json({"object": "list", "owned_by": OWNER, "data": [model_fields(status) for status in offered]})

    async def _model(self, request: Request) -> Response:
        return _json(model_fields(self._status(request.path_params["name"])))

    async def _health(self, request: Request) -> Response:
        return _json({"status": "stopping" if self.leaving else "ok"}, 503 if self.leaving else 200)

    async def _front(self, request: Request) -> Response:
        return _json({"name": "lmagent model server", "version": __version__, "api": "/v1"})

    async def _metrics(self, request: Request) -> Response:
        text = self.metrics.text(self._pool.statuses(), self._pool.evictions)
        return Response(text, media_type=meter.CONTENT_TYPE)

    async def _ps(self, request: Request) -> Response:
        statuses = self._pool.statuses()
        return _json({"models": [running_fields(status) for status in statuses if _is_shown(status)]})

    async def _stats(self, request: Request) -> Response:
        statuses = self._pool.statuses()
        known = [running_fields(status) for status in statuses]
        return _json({"version": __version__, **self.metrics.summary(statuses, self._pool.evictions), "models": known})

    async def _load(self, request: Request) -> Response:
        body = await self._body(request)
        name, options = self._catalogue.find(_name_in(body)).name, _options_in(body)
        if options is not None and body.get("now") is False:
            return _json(running_fields(self._pool.prefer(name, options)))
        return _json(running_fields(await self._pool.load(name, options)))

    async def _unload(self, request: Request) -> Response:
        """Unload a model, also one whose file was removed while it was loaded: `ps` shows its name."""
        name = _name_in(await self._body(request))
        there = any(status.entry.name == name for status in self._pool.statuses())
        return _json(running_fields(await self._pool.unload(name if there else self._catalogue.find(name).name)))

    async def _body(self, request: Request) -> dict[str, Any]:
        return fields_of(await read_body(request.scope, request.receive, 65_536))

    async def _props(self, request: Request) -> Response:
        """Return the engine's own facts of a loaded model, and load nothing for it."""
        asked = RelayRequest("props", "/props", {}, str(request.query_params.get("model", "")))
        status = self._status(self.relay.name_of(asked))
        if status.state not in ("ready", "sleeping"):
            text = f"{status.entry.name} is not loaded"
            raise ModelServerError(text, status=404, code="model_not_loaded", fix="POST /api/load loads it")
        async with self._pool.lease(status.entry.name) as running:
            code, body = await self.relay.upstream.ask("GET", running.address + "/props", b"", running.key)
        if code == 200:
            fields = jsontext.loads(body)
            fields.pop("model_path", None)  # clients must not learn where files are
            body = jsontext.dumps(fields)
        return Response(body, code, media_type="application/json")

    async def _logs(self, request: Request) -> Response:
        """Return the lines of a worker or, without `model`, of the server; with `follow=1` as events."""
        asked, path = request.query_params, self._pool.journal.path
        if asked.get("model"):
            path = self._pool.log(self._catalogue.find(asked["model"]).name)
        if asked.get("follow", "0") in ("0", "false", ""):
            return _json({"lines": last_lines(path)})
        lines = follow_file(path, self._left.is_set)
        events = (b"data: " + jsontext.dumps({"line": line}) + b"\n\n" async for line in lines)
        return StreamingResponse(events, headers={"cache-control": "no-cache"}, media_type="text/event-stream")


def _name_in(body: dict[str, Any]) -> str:
    name = body.get("model", body.get("name"))
    if not isinstance(name, str) or not name:
        raise BadRequest("'model' is missing; it has to be a text", param="model", code="missing_field")
    return name


def _options_in(body: dict[str, Any]) -> LoadOptions | None:
    """Return the settings that a request to load a model gives; None if it gives none."""
    given = {name: body[name] for name in LoadOptions.__struct_fields__ if name in body}
    try:
        return convert(given, LoadOptions) if given else None
    except msgspec.ValidationError as wrong:
        raise BadRequest(str(wrong), param=str(wrong).rpartition("$.")[2].rstrip("`")) from None


def _is_shown(status: ModelStatus) -> bool:
    """Tell whether `ps` shows a model: loaded, ending or quarantined, or another server's while it is used."""
    return status.active > 0 or (status.entry.engine != "upstream" and status.state != "unloaded")


def _json(value: Any, status: int = 200) -> Response:
    return Response(jsontext.dumps(value), status, media_type="application/json")


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        text = f"there is no route {request.method} {request.url.path[:200]}"
        told = BadRequest(text, status=404, code="unknown_route", fix="GET /v1/models lists the models")
    elif error.status_code == 405:
        told = BadRequest(f"{request.url.path[:200]} does not take {request.method}", status=405, code="wrong_method")
    else:
        told = BadRequest(error.detail, status=error.status_code)
    return Response(body_of(told), told.status, media_type="application/json", headers=error.headers)


async def _told(request: Request, error: Exception) -> Response:
    log_unexpected(error)
    return Response(body_of(error), status_of(error), media_type="application/json")
