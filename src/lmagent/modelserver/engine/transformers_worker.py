"""Transformers worker: a Hugging Face model in a process of its own.

Run as `python -m lmagent.modelserver.engine.transformers_worker`.
The same protocol as `worker`: a `WorkerSpec` on standard
input, a `Hello` on standard output. It answers OpenAI's chat completions, models and embeddings. Calls of tools stay in
the text, in the format that the model learnt. It keeps to no grammar or JSON schema, and says so.
"""

from __future__ import annotations

import hmac
import os
import socket
import threading
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread
import anyio.to_thread
import msgspec

from lmagent.core.decoding import decode_json
from lmagent.modelserver.engine import lifeline
from lmagent.modelserver.engine.transformers_chat import asked_for, part
from lmagent.modelserver.engine.transformers_model import LoadError, RequestError, TransformersModel
from lmagent.modelserver.spec import Hello, WorkerSpec

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Message, Receive, Scope, Send

NAP = 1.0
"""Seconds between looks at whether it is time to sleep."""


def build_app(model: TransformersModel, spec: WorkerSpec) -> Starlette:
    """The HTTP server's application.

    Args:
        model: what answers.
        spec: its name and key.
    """
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": spec.alias, "object": "model", "owned_by": "lmagent"}]})

    async def chat(request: Request) -> Any:
        if model.embeds:
            raise RequestError("this model makes embeddings and does not chat", "not_a_chat_model")
        body = await _body(request)
        asked = await anyio.to_thread.run_sync(asked_for, model, body)
        return Reply(model, spec.alias, body, asked)

    async def embeddings(request: Request) -> Response:
        body = await _body(request)
        texts = body.get("input")
        texts = [texts] if isinstance(texts, str) else texts
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):  # pyright: ignore[reportUnknownVariableType]
            raise RequestError("`input` has to be a text or a list of texts")
        vectors, tokens = await anyio.to_thread.run_sync(model.embed, texts)  # pyright: ignore[reportUnknownArgumentType]
        rows = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(vectors)]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return JSONResponse({"object": "list", "model": spec.alias, "data": rows, "usage": usage})

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_nap, model, spec.settings.sleep)
            yield
            tasks.cancel_scope.cancel()

    routes = [
        Route("/health", health),
        Route("/v1/models", _kept(spec.key, models)),
        Route("/v1/chat/completions", _kept(spec.key, chat), methods=["POST"]),
        Route("/v1/embeddings", _kept(spec.key, embeddings), methods=["POST"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


class Reply:
    """A chat's answer, whole or as a stream; an ASGI application. A client that hangs up ends the computation."""

    def __init__(self, model: TransformersModel, alias: str, body: dict[str, Any], asked: Any) -> None:
        self._model = model
        self._asked = asked
        self._stream = bool(body.get("stream"))
        self._usage_wanted = bool(part(body, "stream_options").get("include_usage"))
        kind = "chat.completion.chunk" if self._stream else "chat.completion"
        self._head = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": kind,
            "created": int(time.time()),
            "model": alias,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve it."""
        stop = threading.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_until_gone, receive, stop)
            await (self._streamed(send, stop) if self._stream else self._whole(send, stop))
            tasks.cancel_scope.cancel()

    async def _whole(self, send: Send, stop: threading.Event) -> None:
        pieces: list[str] = []
        done = await anyio.to_thread.run_sync(self._model.generate, self._asked, pieces.append, stop)
        message = {"role": "assistant", "content": "".join(pieces)}
        choice = {"index": 0, "message": message, "finish_reason": done.reason, "logprobs": None}
        content = msgspec.json.encode({**self._head, "choices": [choice], "usage": self._usage(done.tokens)})
        await send(_start("application/json", len(content)))
        await send({"type": "http.response.body", "body": content})

    async def _streamed(self, send: Send, stop: threading.Event) -> None:
        async def show(text: str) -> None:
            await send(self._event({"content": text}))

        def emit(text: str) -> None:
            anyio.from_thread.run(show, text)

        await send(_start("text/event-stream"))
        await send(self._event({"role": "assistant", "content": ""}))
        try:
            done = await anyio.to_thread.run_sync(self._model.generate, self._asked, emit, stop)
        except (RuntimeError, ValueError, MemoryError) as error:
            failure = {"error": {"message": str(error), "type": "server_error", "code": "engine_error"}}
            await send(_piece(b"data: " + msgspec.json.encode(failure) + b"\n\n"))
            await send({"type": "http.response.body", "body": b""})
            return
        await send(self._event({}, done.reason))
        if self._usage_wanted:
            last: dict[str, Any] = {**self._head, "choices": [], "usage": self._usage(done.tokens)}
            await send(_piece(b"data: " + msgspec.json.encode(last) + b"\n\n"))
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})

    def _event(self, delta: dict[str, str], reason: str | None = None) -> Message:
        event = {**self._head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
        return _piece(b"data: " + msgspec.json.encode(event) + b"\n\n")

    def _usage(self, tokens: int) -> dict[str, int]:
        prompt = len(self._asked.tokens)
        return {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}


def _piece(data: bytes) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": True}


def _start(kind: str, length: int | None = None) -> Message:
    headers = [(b"content-type", kind.encode())]
    if length is not None:
        headers.append((b"content-length", str(length).encode()))
    return {"type": "http.response.start", "status": 200, "headers": headers}


async def _until_gone(receive: Receive, stop: threading.Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    stop.set()


async def _nap(model: TransformersModel, after: float) -> None:
    """Give the memory back when nobody asks for a while."""
    while after > 0:
        await anyio.sleep(NAP)
        if time.monotonic() - model.used >= after:
            await anyio.to_thread.run_sync(model.sleep)


def _kept(key: str, endpoint: Callable[[Request], Awaitable[Any]]) -> Callable[[Request], Awaitable[Any]]:
    """The endpoint for those who have the key; failures as OpenAI writes them."""
    from starlette.responses import JSONResponse

    def failed(status: int, message: str, code: str) -> Response:
        kind = "authentication_error" if status == 401 else "invalid_request_error" if status < 500 else "server_error"
        return JSONResponse({"error": {"message": message, "type": kind, "param": None, "code": code}}, status)

    async def guarded(request: Request) -> Any:
        sent = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        if key and not hmac.compare_digest(sent.encode(), key.encode()):
            return failed(401, "the API key is missing or wrong", "invalid_api_key")
        try:
            return await endpoint(request)
        except RequestError as error:
            return failed(400, str(error), error.code)
        except (RuntimeError, MemoryError) as error:  # torch, mostly: out of memory
            return failed(500, str(error), "engine_error")

    return guarded


async def _body(request: Request) -> dict[str, Any]:
    try:
        return decode_json(await request.body(), dict[str, Any])
    except msgspec.DecodeError as error:
        raise RequestError(f"the body is not a JSON object: {error}") from error


async def serve(app: Any, ready: Callable[[str], None]) -> None:
    """Serve on a free port of loopback; endless.

    Args:
        app: the application.
        ready: is called with the address once it answers.
    """
    import uvicorn

    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    config = uvicorn.Config(app, log_level="warning", lifespan="on", access_log=False)
    server = uvicorn.Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(server.serve, sockets=[listener]))
        with anyio.fail_after(60):
            while not server.started:  # noqa: ASYNC110 - the library has no event for it
                await anyio.sleep(0.01)
        ready(f"http://127.0.0.1:{listener.getsockname()[1]}")


def main() -> None:
    """Serve until standard input ends."""
    began = time.monotonic()
    try:
        spec = lifeline.read_spec()
        lifeline.hold()
        model = TransformersModel(spec)
    except (LoadError, ValueError, OSError) as error:
        lifeline.fail(str(error))

    def ready(address: str) -> None:
        lifeline.say(Hello(address, os.getpid(), round(time.monotonic() - began, 3), gpu=model.gpu_memory()))
        threading.Thread(target=lifeline.wait, daemon=True).start()

    anyio.run(serve, build_app(model, spec), ready)


if __name__ == "__main__":
    main()
