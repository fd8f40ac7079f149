"""Relay: one request to a model, from the lease to the last byte.

The hot path is short: the bytes that arrive from the engine in one turn of the loop are passed on unchanged
(`Relay._pass_on`). All else happens before the first byte, after the last one, or to streams that have to be changed.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from lmagent.core.errors import LmagentError
from lmagent.modelserver.errors import BadRequest, Lost, refused
from lmagent.modelserver.http import listing
from lmagent.modelserver.http.bodies import Receive, RelayRequest, Send
from lmagent.modelserver.http.chunks import Changing, Shown, rest_of
from lmagent.modelserver.http.jobs import RelayJob, job_for
from lmagent.modelserver.http.metrics import Metrics
from lmagent.modelserver.http.recover import UNPARSED, Recovered, written_again
from lmagent.modelserver.http.reply import ClientReply
from lmagent.modelserver.http.upstream import BrokenOff, EngineAnswer, Upstream
from lmagent.modelserver.pool.journal import last_lines
from lmagent.modelserver.pool.refusals import no_embeddings
from lmagent.modelserver.spec import ModelServerError, Pool, RunningModel
from lmagent.providers import jsontext

GRACE = 0.5
"""Seconds in which a refusal still gets a status of its own; then a waiting stream is begun with 200."""

KEEP_ALIVE = 5.0
"""Seconds between signs of life while a stream waits."""

STALLED = 300.0
"""Seconds in which a client has to take some bytes of its answer."""

_ERROR = b'"error":'


class RelayExchange:
    def __init__(self) -> None:
        self.work = anyio.CancelScope()
        self.why: ModelServerError | None = None

    def end(self, why: ModelServerError | None = None) -> None:
        """Stop the request; a client that is still there gets the reason."""
        self.why = why
        self.work.cancel()


class Relay:
    def __init__(self, pool: Pool, metrics: Metrics, *, keep_alive: float = KEEP_ALIVE) -> None:
        self.upstream = Upstream()
        self._pool = pool
        self._metrics = metrics
        self._keep_alive = keep_alive
        self._exchanges: set[RelayExchange] = set()
        self._over = anyio.Event()

    def name_of(self, asked: RelayRequest) -> str:
        """Return the model that a request names, the only one loaded, or the only one known.

        The demonstration model has to be named.
        """
        if asked.model:
            return asked.model
        statuses = [status for status in self._pool.statuses() if status.entry.source != "demo"]
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
        started, reply, exchange = time.monotonic(), ClientReply(send, asked.route), RelayExchange()
        self._exchanges.add(exchange)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_watch, receive, exchange)
                group.start_soon(_watch_reading, reply, exchange)
                with exchange.work:
                    await self._answer(asked, reply)
                if exchange.work.cancelled_caught:
                    if exchange.why is None:
                        self._metrics.hung_up += 1
                    else:
                        await reply.fail(exchange.why)
                group.cancel_scope.cancel()
        finally:
            self._exchanges.discard(exchange)
            self._over.set()
            status = 499 if exchange.work.cancelled_caught and exchange.why is None else reply.status
            status = 500 if reply.failed and status == 200 else status
            self._metrics.request(asked.model, asked.route, status, time.monotonic() - started)

    def end_all(self, why: ModelServerError) -> None:
        for exchange in self._exchanges:
            exchange.end(why)

    async def idle(self) -> None:
        while self._exchanges:
            self._over = anyio.Event()
            await self._over.wait()

    async def aclose(self) -> None:
        await self.upstream.aclose()

    async def _answer(self, asked: RelayRequest, reply: ClientReply) -> None:
        try:
            asked.model = self.name_of(asked)
            async with (
                _signs_of_life(reply, self._keep_alive, wanted=asked.stream) as signs,
                self._pool.lease(asked.model) as running,
            ):
                asked.model = running.entry.name
                await self._ask(asked, reply, running, signs)
        except LmagentError as error:
            await reply.fail(error)
        except Exception as error:  # noqa: BLE001 (a surface: the client gets any error as an answer)
            await reply.fail(error)

    async def _ask(
        self, asked: RelayRequest, reply: ClientReply, running: RunningModel, signs: anyio.CancelScope
    ) -> None:
        if asked.route == "embeddings" and running.entry.engine == "llama" and not running.entry.settings.embedding:
            raise no_embeddings(running.entry)
        job = job_for(asked, running)
        if job.choice is not None:
            self._metrics.enforced += 1
        try:
            body = jsontext.dumps(job.body)
            answer = await self.upstream.send("POST", running.address + asked.path, body, running.key)
            try:
                if asked.stream and answer.status == 200 and answer.content_type.startswith(b"text/event-stream"):
                    await self._stream(asked, reply, running, job, answer, signs)
                else:
                    await self._whole(asked, reply, running, job, answer, signs)
            finally:
                with anyio.CancelScope(shield=True):
                    await answer.aclose()
        except (Lost, BrokenOff) as error:
            raise self._gone(running, error) from error

    async def _whole(
        self,
        asked: RelayRequest,
        reply: ClientReply,
        running: RunningModel,
        job: RelayJob,
        answer: EngineAnswer,
        signs: anyio.CancelScope,
    ) -> None:
        body = await answer.whole()
        if answer.status >= 400:
            if not (job.recoverable and UNPARSED.encode() in body):
                raise refused(answer.status, body, running.entry.name)
            recovered = await self._again(running, job)
            signs.cancel()
            if asked.stream:
                await self._finish(reply, rest_of(Shown(), recovered, usage=_wants_usage(asked)))
                return
            body = recovered.completion(running.model, str(job.body.get("seed", 0)))
        else:
            body = job.changed(body)
        signs.cancel()
        self._metrics.tokens(asked.model, _figures(body))
        if reply.status:  # a stream was begun while it waited, and the engine answered with one piece
            await self._finish(reply, b"data: " + body + b"\n\ndata: [DONE]\n\n")
        else:
            await reply.whole(answer.status if answer.status < 400 else 200, body, answer.content_type)

    async def _stream(
        self,
        asked: RelayRequest,
        reply: ClientReply,
        running: RunningModel,
        job: RelayJob,
        answer: EngineAnswer,
        signs: anyio.CancelScope,
    ) -> None:
        signs.cancel()
        await reply.open()
        changing = job.changing()
        if changing is not None:
            await self._change(asked, reply, running, job, answer, changing)
            return
        shown = Shown() if job.recoverable else None
        if not await self._pass_on(asked, reply, answer, shown):
            assert shown is not None
            recovered = await self._again(running, job)
            await reply.write(rest_of(shown, recovered, usage=_wants_usage(asked)))
        await reply.end()

    async def _pass_on(
        self, asked: RelayRequest, reply: ClientReply, answer: EngineAnswer, shown: Shown | None
    ) -> bool:
        """Pass a stream on; return False if it ended in a reply that has to be recovered."""
        figures = b""
        async for piece in answer.pieces():
            if _ERROR in piece and (at := _error_at(piece)) >= 0:
                before, error = piece[:at], piece[at:]
                if shown is not None and UNPARSED.encode() in error:
                    if before:
                        shown.add(before)
                        await reply.write(before)
                    return False
                if before:
                    await reply.write(before)
                raise refused(_status_in(error), error.partition(b"data:")[2].split(b"\n\n")[0], asked.model)
            if shown is not None:
                shown.add(piece)
            if b'"usage":{' in piece or b'"timings":{' in piece:
                figures = piece  # some say it with every event: the last one counts
            await reply.write(piece)
        self._metrics.tokens(asked.model, _figures(figures))
        return True

    async def _change(
        self,
        asked: RelayRequest,
        reply: ClientReply,
        running: RunningModel,
        job: RelayJob,
        answer: EngineAnswer,
        changing: Changing,
    ) -> None:
        shown, figures = Shown(), b""
        async for piece in answer.pieces():
            if changed := changing.feed(piece):
                shown.add(changed)
                await reply.write(changed)
            if b'"usage":{' in piece or b'"timings":{' in piece:
                figures = piece
            if changing.error is not None:
                break
        self._metrics.tokens(asked.model, _figures(figures))
        if changing.error is not None:
            body = jsontext.dumps(changing.error)
            if not (job.recoverable and UNPARSED.encode() in body):
                raise refused(_status_in(body), body, running.entry.name)
            recovered = await self._again(running, job)
            await reply.write(rest_of(shown, recovered, usage=_wants_usage(asked)))
        await reply.end()

    async def _again(self, running: RunningModel, job: RelayJob) -> Recovered:
        """Recover a reply that the engine could not parse."""
        self._metrics.recovered += 1
        return job.recovered(await written_again(self.upstream, running, job.body))

    async def _finish(self, reply: ClientReply, events: bytes) -> None:
        await reply.open()
        await reply.write(events)
        await reply.end()

    def _gone(self, running: RunningModel, error: Exception) -> ModelServerError:
        """Explain that an engine ended or broke off."""
        name = running.entry.name
        if running.entry.engine == "upstream":
            text = f"the server that runs {name} did not answer to the end: {error}"
            return Lost(text, status=502, code="upstream_lost", fix=f"see whether {running.address} is up")
        try:
            lines = [line.strip() for line in last_lines(self._pool.log(name)) if line.strip()]
        except LmagentError:
            lines = []
        tail = "".join(letter if letter.isprintable() else " " for letter in " | ".join(lines[-4:]))[-600:]
        said = f"; the end of its log: {tail}" if tail else ""
        text = f"the worker of {name} ended while it worked on this request{said}"
        return Lost(text, status=502, code="worker_crashed", fix=f"ask again; lmagent server logs {name} has more")


async def _watch(receive: Receive, exchange: RelayExchange) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    exchange.end()


async def _watch_reading(reply: ClientReply, exchange: RelayExchange) -> None:
    """Stop the work when its client has stopped reading: it would hold the model for ever."""
    while True:
        await anyio.sleep(STALLED / 10)
        if reply.stalled(STALLED):
            break
    exchange.end()


@asynccontextmanager
async def _signs_of_life(reply: ClientReply, every: float, *, wanted: bool) -> AsyncGenerator[anyio.CancelScope]:
    """Send comments on a stream that waits, until the scope is cancelled."""
    scope = anyio.CancelScope()

    async def tick() -> None:
        with scope:
            await anyio.sleep(min(GRACE, every))
            while True:
                await reply.comment()
                await anyio.sleep(every)

    if not wanted:
        yield scope
        return
    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        group.start_soon(tick)
        try:
            yield scope
        except Exception as error:  # noqa: BLE001 (a task group would wrap it)
            failure = error
        scope.cancel()
    if failure is not None:
        raise failure


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
        code = jsontext.loads(error.partition(b"data:")[2].split(b"\n\n")[0] if b"data:" in error else error)
        status = code["error"]["code"]
    except (ValueError, KeyError, TypeError):
        return 500
    return status if isinstance(status, int) and 400 <= status < 600 else 500


def _figures(piece: bytes) -> bytes:
    at = piece.rfind(b'"usage":')
    return piece[at:] if at >= 0 else piece[max(0, piece.rfind(b'"timings":')) :]


def _wants_usage(asked: RelayRequest) -> bool:
    options = asked.body.get("stream_options")
    return bool(options and options.get("include_usage"))
