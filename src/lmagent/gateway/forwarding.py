"""Gateway of a cluster: it runs no sessions. It answers from the database, and forwards the rest to workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import anyio
import anyio.to_thread
import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lmagent.app.host import Host
from lmagent.cluster.requests import RequestEnd, RequestHead, Requests
from lmagent.cluster.store import ClusterStore
from lmagent.core.errors import LmagentError, StoreError, WorkerMissing, ungrouped
from lmagent.gateway.broadcast.stream import SessionStream
from lmagent.gateway.gateway import Gateway, Load
from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.http.route import Call, Route, told
from lmagent.gateway.turns import event_of

if TYPE_CHECKING:
    from lmagent.gateway.http.access import Caller

BROKEN = "broken"
"""Type of the message of a worker whose answer broke off."""

KEPT = frozenset({b"cookie", b"authorization"})
"""Headers that the gateway keeps to itself."""

LOOK = 1.0
"""Seconds between two looks at whether a session is still watched."""


class ForwardingGateway(Gateway):
    """A gateway whose sessions are run by workers."""

    def __init__(self, host: Host, *, say: Callable[[str], None]) -> None:
        super().__init__(host, say=say)
        self._store = store = cast("ClusterStore", host.store)
        store.presence.kind = "gateway"
        self.requests = Requests(store.member, store.workspace)
        self.forwarder = Forwarder(self.requests)
        self.broadcast.live = ForwardedText(self.requests).bring

    @property
    def place(self) -> str:
        return self.requests.workspace

    async def load(self) -> Load:
        return await anyio.to_thread.run_sync(self._load)

    def _load(self) -> Load:
        """Return the work of all workers."""
        with self.index() as index:
            running, approvals = index.at_work()
        return Load(self._store.count(), self._store.count_open(), running, approvals)

    async def work(self) -> None:
        async with self.runner.running():
            await self.requests.run()


class Forwarder:
    """Lets workers answer what clients ask."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def response(self, route: Route, call: Call) -> ASGIApp:
        """Return the answer of a worker, or the error, to a request that is let in."""

        async def answer(scope: Scope, _receive: Receive, send: Send) -> None:
            begun = False

            async def sender(message: Message) -> None:
                nonlocal begun
                begun = True
                await send(message)

            try:
                if route.place == "machine":
                    raise _of_one_machine(route)
                session, receive = call.path.get("session", ""), call.request.receive
                if route.session_of is not None:
                    receive = _again(await call.request.body(), receive)
                    session = await route.session_of(call)
                await self.forward(self.head_of(scope, call.caller, session, call.key), receive, sender)
            except (LmagentError, msgspec.ValidationError, msgspec.DecodeError) as error:
                if begun:
                    raise
                await (route.tell or told)(error)(scope, call.request.receive, send)

        return answer

    @staticmethod
    def head_of(scope: Scope, caller: Caller, session: str, key: bytes = b"") -> RequestHead:
        """Return a request of a client, for a session; empty for none."""
        return RequestHead(
            kind=scope["type"],
            session=session,
            caller=caller,
            key=key,
            method=scope.get("method", "GET"),
            path=scope["path"],
            query=scope["query_string"],
            headers=tuple((name, value) for name, value in scope["headers"] if name.lower() not in KEPT),
            client=scope.get("client"),
        )

    async def forward(self, head: RequestHead, receive: Receive, send: Send) -> None:
        """Forward a request and its answer until the answer has ended, or the client has gone.

        Raises WorkerMissing or StoreError; after the answer has begun, the connection must be closed then.
        """
        end = await self._requests.begin(head, await receive())
        try:
            with ungrouped():
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_bring, receive, end, tasks.cancel_scope)
                    while True:
                        message = await end.receive()
                        if message["type"] == BROKEN:
                            raise WorkerMissing("the answer broke off", fix="ask again")
                        await send(message)
                        if _is_last(message):
                            break
                    tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._requests.leave(end)


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that begins with a body that was read already."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receiver() -> Message:
        return messages.pop() if messages else await receive()

    return receiver


async def _bring(receive: Receive, end: RequestEnd, work: anyio.CancelScope) -> None:
    """Send the client's messages to the worker until the client has gone."""
    while True:
        message = await receive()
        if message["type"] in ("http.disconnect", "websocket.disconnect"):
            work.cancel()
            return
        await end.send(message)


def _is_last(message: Message) -> bool:
    if message["type"] in ("http.response.body", "websocket.http.response.body"):
        return not message.get("more_body")
    return message["type"] == "websocket.close"


def _of_one_machine(route: Route) -> Refusal:
    text = f"{route.method} {route.path} changes one machine, and a cluster has many"
    return Refusal(409, "in_a_cluster", text, fix="do it on each worker's machine, by the lmagent command there")


# --- text that is being written ---------------------------------------------------------------------------------------


class ForwardedText:
    """Brings watchers the text that a worker is receiving from the model, and what its sub-agents do."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def bring(self, stream: SessionStream) -> None:
        """Bring a session's text while it is watched. Whenever a worker has it open, that worker is asked for it."""
        while stream.watchers and not stream.is_over:
            recorded = stream.recorded
            try:
                if await self._requests.worker_of(stream.session):
                    await self._from_worker(stream)
            except (WorkerMissing, StoreError):
                await anyio.sleep(LOOK)  # the worker has closed the session, or died
            while stream.watchers and not recorded.is_set():
                with anyio.move_on_after(LOOK):
                    await recorded.wait()

    async def _from_worker(self, stream: SessionStream) -> None:
        end = await self._requests.begin(RequestHead("live", stream.session), {"type": "live"})
        try:
            while stream.watchers and not stream.is_over:
                with anyio.move_on_after(LOOK):
                    message = await end.receive()
                    stream.take_live(message["after"], event_of(message["event"]))
        finally:
            with anyio.CancelScope(shield=True):
                await self._requests.leave(end)
