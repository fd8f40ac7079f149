"""App: the table of all routes and sockets, and the application that serves it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.routing import compile_path
from starlette.types import Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from lmagent.app.logs import unexpected
from lmagent.core.errors import LmagentError
from lmagent.gateway import facade
from lmagent.gateway.api import (
    agents,
    commands,
    cron,
    events,
    files,
    mcp,
    memory,
    models,
    project,
    sessions,
    settings,
    skills,
    status,
    uploads,
    usage,
    views,
)
from lmagent.gateway.compat import http as compat
from lmagent.gateway.compat import socket
from lmagent.gateway.http import access, openapi, static
from lmagent.gateway.http.access import Access
from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.http.guard import LOOPBACK, Guard, GuardRules, Visitor, protect
from lmagent.gateway.http.route import (
    PATIENCE,
    Call,
    Patience,
    Route,
    Socket,
    Talk,
    carry_out,
    check_parts,
    limited,
    told,
)

if TYPE_CHECKING:
    from lmagent.cluster.requests import RequestHead
    from lmagent.gateway.gateway import Gateway
    from lmagent.gateway.http.access import Caller

MODULES = (
    *(static, access, openapi, agents, sessions, commands, events, views, files, uploads),
    *(models, mcp, memory, skills, project, settings, cron, usage, status, compat, facade),
)
# All routes. If several match a path, the first counts.
TABLE: tuple[Route, ...] = tuple(route for module in MODULES for route in module.ROUTES)

SOCKETS: tuple[Socket, ...] = (*events.SOCKETS, *socket.SOCKETS)


class GatewayApp:
    """The application: it answers requests by the table, inside the guard, and counts its answers for `/metrics`.

    Clients get errors as a sentence; unexpected ones are also logged and printed.
    """

    def __init__(
        self,
        gateway: Gateway,
        access: Access,
        rules: GuardRules = LOOPBACK,
        *,
        say: Callable[[str], None],
        routes: Sequence[Route] = TABLE,
        sockets: Sequence[Socket] = SOCKETS,
        patience: Patience = PATIENCE,
    ) -> None:
        self._gateway = gateway
        self._access = access
        self._guard = Guard(access, rules)
        self._say = say
        self._patience = patience
        methods: dict[str, dict[str, Route]] = {}
        for route in routes:
            methods.setdefault(route.path, {})[route.method] = route
        self._lines = [(compile_path(path)[0], known) for path, known in methods.items()]
        self._sockets = [(compile_path(line.path)[0], line) for line in sockets]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._guarded(lambda: self._guard.visitor(scope), scope, receive, send)

    async def answer(self, head: RequestHead, receive: Receive, send: Send) -> None:
        """Answer a request that a gateway of the cluster has let in and forwarded."""
        scope: Scope = {
            "type": head.kind,
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "scheme": "http" if head.kind == "http" else "ws",
            "method": head.method,
            "path": head.path,
            "raw_path": head.path.encode(),
            "query_string": head.query,
            "root_path": "",
            "headers": list(head.headers),
            "client": head.client,
            "server": None,
            "subprotocols": [],
            "extensions": {"websocket.http.response": {}},
        }
        visitor = Visitor(cast("Caller", head.caller), Headers(scope=scope), head.key)
        await self._guarded(lambda: visitor, scope, receive, send)

    async def _guarded(self, visit: Callable[[], Visitor], scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def sender(message: Message) -> None:
            nonlocal begun
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                protect(message)
                self._gateway.counters[f"{message['status'] // 100}xx"] += 1
            elif message["type"] == "websocket.accept":
                self._gateway.counters["1xx"] += 1
            begun = True
            await send(message)

        try:
            visitor = visit()
            answer = self._talk if scope["type"] == "websocket" else self._answer
            await answer(visitor, scope, receive, sender)
        except Exception as error:
            if not isinstance(error, LmagentError):
                host = self._gateway.host
                failure = unexpected(error, host.workspace, host.settings)
                self._say(f"{scope.get('method', 'socket')} {scope['path'][:200]}: {failure}")
            if begun:
                raise  # the server closes the connection, so that half an answer does not look complete
            await told(error)(scope, receive, sender)  # a socket is refused before it opens

    async def _answer(self, visitor: Visitor, scope: Scope, receive: Receive, send: Send) -> None:
        route, parts = self._find(scope["path"], scope["method"])
        try:
            visitor.admit(route.method, is_open=route.is_open)
        except Refusal as refusal:
            response = (route.tell or told)(refusal)
        else:
            length = visitor.headers.get("content-length", "")
            receive = limited(route.limit, length, receive, self._patience)
            key = visitor.key or self._access.key_of(visitor.caller)
            call = Call(self._gateway, Request(scope, receive), parts, visitor.caller, key, self._access)
            forwarder = self._gateway.forwarder
            if forwarder is not None and route.place != "gateway":
                response = forwarder.response(route, call)
            else:
                response = await carry_out(route, call)
        await response(scope, receive, send)

    def _find(self, path: str, method: str) -> tuple[Route, dict[str, str]]:
        allowed: list[str] = []
        for pattern, methods in self._lines:
            if (found := pattern.fullmatch(path)) is None:
                continue
            route = methods.get("GET" if method == "HEAD" else method)
            if route is not None and not (method == "HEAD" and route.media == "text/event-stream"):
                return route, found.groupdict()
            allowed += methods
        if not allowed:
            raise Refusal(404, "not_found", f"there is nothing at {path[:200]!r}", fix="GET /openapi.json lists it all")
        ways = ", ".join(dict.fromkeys(allowed))
        text = f"{path[:200]!r} takes no {method[:20]}"
        raise Refusal(405, "method_not_allowed", text, fix=f"it takes {ways}", headers={"allow": ways})

    async def _talk(self, visitor: Visitor, scope: Scope, receive: Receive, send: Send) -> None:
        for pattern, line in self._sockets:
            if found := pattern.fullmatch(scope["path"]):
                visitor.admit("GET", is_open=False)
                check_parts(parts := found.groupdict())
                if (forwarder := self._gateway.forwarder) is not None and line.place != "gateway":
                    head = forwarder.head_of(scope, visitor.caller, parts.get("session", ""))
                    await forwarder.forward(head, receive, send)
                else:
                    socket = WebSocket(scope, receive, send)
                    await line.handler(Talk(self._gateway, socket, parts, self._access, visitor))
                return
        raise Refusal(404, "not_found", f"there is no socket at {scope['path'][:200]!r}")
