"""Relay: one request to a model, from the lease to the last byte.

The hot path is short: `RelayExchange._stream` passes on unchanged the bytes that arrive from the engine in one turn of
the loop. All else happens before the first byte, after the last one, or to streams that have to be changed.
"""

from __future__ import annotations

import time
from typing import Any

import anyio

from lmagent.modelserver.errors import BadRequest, Lost, refused
from lmagent.modelserver.http import listing
from lmagent.modelserver.http.bodies import Receive, RelayRequest, Send
from lmagent.modelserver.http.jobs import UNPARSED, RelayJob, job_for, rest_of
from lmagent.modelserver.http.metrics import Metrics
from lmagent.modelserver.http.reply import ClientReply
from lmagent.modelserver.http.upstream import BrokenOff, EngineAnswer, Upstream
from lmagent.modelserver.pool.pool import WorkerPool
from lmagent.modelserver.pool.refusals import no_embeddings
from lmagent.modelserver.spec import ModelServerError, RunningModel
from lmagent.providers import jsontext

GRACE = 0.5  # seconds in which a refusal still gets a status of its own; then a waiting stream is begun with 200
KEEP_ALIVE = 5.0  # seconds between signs of life while a stream waits
STALLED = 300.0  # seconds in which a client has to take some bytes of its answer
_ERROR = b'"error":'


class Relay:
    def __init__(self, pool: WorkerPool, metrics: Metrics, *, keep_alive: float = KEEP_ALIVE) -> None:
        self.upstream = Upstream()
        self.pool = pool
        self.metrics = metrics
        self.keep_alive = keep_alive
        self._exchanges: set[RelayExchange] = set()
        self._over = anyio.Event()

    def name_of(self, asked: RelayRequest) -> str:
        """Return the model that a request names, the only one loaded, or the only one known.

        The demonstration model has to be named.
        """
        if asked.model:
            return asked.model
        statuses = [status for status in self.pool.statuses() if status.entry.source != "demo"]
        loaded = [status.entry.name for status in statuses if listing.is_loaded(status)]
        known = [status.entry.name for status in statuses if not status.entry.broken]
        for names in (loaded, known):
            if len(names) == 1:
                return names[0]
        if not known:
            fix = "lmagent models pull or import gets one"
            raise BadRequest("there are no models yet", status=404, code="model_not_found", param="model", fix=fix)
        text = f"the request names no model; these are known: {', '.join(known[:50])}"
        raise BadRequest(text, param="model", code="model_missing")

    async def answer(self, asked: RelayRequest, receive: Receive, send: Send) -> None:
        started, exchange = time.monotonic(), RelayExchange(self, asked, ClientReply(send, asked.route))
        self._exchanges.add(exchange)
        try:
            status = await exchange.run(receive)
        finally:
            self._exchanges.discard(exchange)
            self._over.set()
        known = status < 400 or any(one.entry.name == asked.model for one in self.pool.statuses())
        self.metrics.request(asked.model if known else "", asked.route, status, time.monotonic() - started)

    def end_all(self, why: ModelServerError) -> None:
        for exchange in self._exchanges:
            exchange.end(why)

    async def idle(self) -> None:
        while self._exchanges:
            self._over = anyio.Event()
            await self._over.wait()

    async def aclose(self) -> None:
        await self.upstream.aclose()


class RelayExchange:
    """One request, from the lease to the last byte."""

    def __init__(self, relay: Relay, asked: RelayRequest, reply: ClientReply) -> None:
        self._relay = relay
        self._asked = asked
        self._reply = reply
        self._work = anyio.CancelScope()
        self._signs = anyio.CancelScope()
        self._why: ModelServerError | None = None

    def end(self, why: ModelServerError | None = None) -> None:
        """Stop the request; a client that is still there gets the reason."""
        self._why = why
        self._work.cancel()

    async def run(self, receive: Receive) -> int:
        """Answer the request; return the HTTP status to count it under."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._watch, receive)
            group.start_soon(self._watch_reading)
            if self._asked.stream:
                group.start_soon(self._show_life)
            with self._work:
                try:
                    await self._answer()
                except Exception as error:  # noqa: BLE001 (a surface: the client gets any error as an answer)
                    self._signs.cancel()
                    await self._reply.fail(error)
            self._signs.cancel()
            if self._work.cancelled_caught and self._why is not None:
                await self._reply.fail(self._why)
            group.cancel_scope.cancel()
        if self._work.cancelled_caught and self._why is None:
            self._relay.metrics.hung_up += 1
            return 499
        return 500 if self._reply.failed and self._reply.status == 200 else self._reply.status

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.end()

    async def _watch_reading(self) -> None:
        """Stop the work when its client has stopped reading: it would hold the model for ever."""
        while True:
            await anyio.sleep(STALLED / 10)
            if self._reply.stalled(STALLED):
                self.end()

    async def _show_life(self) -> None:
        """Send comments on a stream that waits."""
        every = self._relay.keep_alive
        with self._signs:
            await anyio.sleep(min(GRACE, every))
            while True:
                await self._reply.comment()
                await anyio.sleep(every)

    async def _answer(self) -> None:
        asked, relay = self._asked, self._relay
        asked.model = relay.name_of(asked)
        async with relay.pool.lease(asked.model) as running:
            asked.model = running.entry.name
            if asked.route == "embeddings" and running.entry.engine == "llama" and not running.entry.settings.embedding:
                raise no_embeddings(running.entry)
            job = job_for(asked, running)
            relay.metrics.enforced += job.choice is not None
            try:
                body = jsontext.dumps(job.body)
                answer = await relay.upstream.send("POST", running.address + asked.path, body, running.key)
                try:
                    if asked.stream and answer.status == 200 and answer.content_type.startswith(b"text/event-stream"):
                        await self._stream(job, answer, running)
                    else:
                        await self._whole(job, answer, running)
                finally:
                    with anyio.CancelScope(shield=True):
                        await answer.aclose()
            except (Lost, BrokenOff) as error:
                raise self._gone(running, error) from error

    async def _whole(self, job: RelayJob, answer: EngineAnswer, running: RunningModel) -> None:
        body = await answer.whole()
        if answer.status < 400:
            body = job.changed(body)
        elif not (job.recoverable and UNPARSED in body):
            raise refused(answer.status, body, running.entry.name)
        elif self._asked.stream:
            await self._finish(b"", job, running)
            return
        else:
            body = jsontext.dumps(await self._recovered(job, running))
        self._signs.cancel()
        self._relay.metrics.tokens(self._asked.model, _figures(body))
        if self._reply.status:  # a stream was begun while it waited, and the engine answered with one piece
            await self._reply.write(b"data: " + body + b"\n\ndata: [DONE]\n\n")
            await self._reply.end()
        else:
            await self._reply.whole(answer.status if answer.status < 400 else 200, body, answer.content_type)

    async def _stream(self, job: RelayJob, answer: EngineAnswer, running: RunningModel) -> None:
        self._signs.cancel()
        reply, shown, figures = self._reply, bytearray(), b""
        await reply.open()
        async for piece in job.changed_stream(answer.pieces()):
            if _ERROR in piece and (at := _error_at(piece)) >= 0:
                if at:
                    await reply.write(piece[:at])
                if job.recoverable and UNPARSED in piece[at:]:
                    await self._finish(bytes(shown) + piece[:at], job, running)
                    return
                error = piece[at:].partition(b"data:")[2].split(b"\n\n")[0]
                raise refused(_status_in(error), error, running.entry.name)
            if job.recoverable:
                shown += piece
            if b'"usage":{' in piece or b'"timings":{' in piece:
                figures = piece  # some say it with every event: the last one counts
            await reply.write(piece)
        self._relay.metrics.tokens(self._asked.model, _figures(figures))
        await reply.end()

    async def _finish(self, shown: bytes, job: RelayJob, running: RunningModel) -> None:
        """Recover a reply for a client that has received the events `shown` of it."""
        recovered = await self._recovered(job, running)
        self._signs.cancel()
        options: dict[str, Any] = self._asked.body.get("stream_options") or {}
        await self._reply.open()
        await self._reply.write(rest_of(shown, recovered, usage=bool(options.get("include_usage"))))
        await self._reply.end()

    async def _recovered(self, job: RelayJob, running: RunningModel) -> dict[str, Any]:
        self._relay.metrics.recovered += 1
        return await job.again(self._relay.upstream, running)

    def _gone(self, running: RunningModel, error: Exception) -> ModelServerError:
        """Explain that an engine ended or broke off."""
        name = running.entry.name
        if running.entry.engine == "upstream":
            text = f"the server that runs {name} did not answer to the end: {error}"
            return Lost(text, status=502, code="upstream_lost", fix=f"see whether {running.address} is up")
        text = f"the worker of {name} ended while it worked on this request"
        return Lost(text, status=502, code="worker_crashed", fix=f"ask again; lmagent server logs {name} has more")


def _error_at(piece: bytes) -> int:
    """Return where an error's event begins among events; -1 if they have no error."""
    at = 0
    while at >= 0:
        begin = at
        end = piece.find(b"\n\n", begin)
        payload = piece[begin : end if end >= 0 else len(piece)].partition(b"data:")[2].lstrip()
        if payload.startswith((b'{"error":', b'{ "error":')):
            return begin
        at = end + 2 if end >= 0 else -1
    return -1


def _status_in(error: bytes) -> int:
    """Return the status that llama.cpp repeats as a number in `code`."""
    try:
        status = jsontext.loads(error)["error"]["code"]
    except (ValueError, KeyError, TypeError):
        return 500
    return status if isinstance(status, int) and 400 <= status < 600 else 500


def _figures(piece: bytes) -> bytes:
    at = piece.rfind(b'"usage":')
    return piece[at:] if at >= 0 else piece[max(0, piece.rfind(b'"timings":')) :]
