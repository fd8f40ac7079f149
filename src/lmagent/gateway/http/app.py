"""App: the table of all routes and sockets, and the application that serves it inside the guard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from starlette.requests import Request
from starlette.routing import compile_path
from starlette.websockets import WebSocket

from lmagent.app.logs import unexpected
from lmagent.core.errors import LmagentError
from lmagent.gateway import facade
from lmagent.gateway.api import (
    activity,
    commands,
    cron,
    events,
    files,
    folders,
    loading,
    metrics,
    models,
    saving,
    sessions,
    settings,
    setup,
    slash,
    socket,
    status,
    tools,
    uploads,
    usage,
    views,
    work,
)
from lmagent.gateway.compat import http as compat
from lmagent.gateway.compat import live
from lmagent.gateway.http import door, openapi, static
from lmagent.gateway.http.access import Access
from lmagent.gateway.http.bodies import PATIENCE, Patience, limited
from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.http.guard import LOOPBACK, App, Guard, GuardRules, Receive, Scope, Send, Visitor, refuse
from lmagent.gateway.http.route import Route, Socket, Talk, carry_out, path_of, told

if TYPE_CHECKING:
    from lmagent.gateway.gateway import Gateway

TABLE: tuple[Route, ...] = (
    *static.ROUTES,
    *door.ROUTES,
    *openapi.ROUTES,
    *sessions.ROUTES,
    *commands.ROUTES,
    *events.ROUTES,
    *views.ROUTES,
    *work.ROUTES,
    *slash.ROUTES,
    *files.ROUTES,
    *folders.ROUTES,
    *saving.ROUTES,
    *uploads.ROUTES,
    *tools.ROUTES,
    *models.ROUTES,
    *loading.ROUTES,
    *setup.ROUTES,
    *settings.ROUTES,
    *cron.ROUTES,
    *usage.ROUTES,
    *activity.ROUTES,
    *status.ROUTES,
    *metrics.ROUTES,
    *compat.ROUTES,
    *facade.ROUTES,
)
"""All routes. If several match a path, the first counts."""

SOCKETS: tuple[Socket, ...] = (*socket.SOCKETS, *live.SOCKETS)

Say = Callable[[str], None]


class _Line(Struct, frozen=True):
    """The routes of one path, by method."""

    pattern: Any
    methods: dict[str, Route]

    def fits(self, path: str) -> dict[str, str] | None:
        found = self.pattern.fullmatch(path)
        return found.groupdict() if found else None


class Table:
    """Answers requests by the table. Clients get errors as a sentence; unexpected ones are also logged and printed."""

    def __init__(
        self,
        gateway: Gateway,
        access: Access,
        *,
        routes: Sequence[Route],
        sockets: Sequence[Socket],
        say: Say,
        patience: Patience,
    ) -> None:
        self._gateway = gateway
        self._access = access
        self._say = say
        self._patience = patience
        methods: dict[str, dict[str, Route]] = {}
        for route in routes:
            methods.setdefault(route.path, {})[route.method] = route
        self._lines = [_Line(compile_path(path)[0], known) for path, known in methods.items()]
        self._sockets = [(compile_path(line.path)[0], line) for line in sockets]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def sender(message: Any) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            if scope["type"] == "websocket":
                await self._talk(scope, receive, sender)
            else:
                await self._answer(scope, receive, sender)
        except LmagentError as refusal:
            if begun:
                raise
            await refuse(refusal, scope, receive, send)
        except Exception as fault:
            host = self._gateway.host
            failure = unexpected(fault, host.workspace, host.settings)
            self._say(f"{scope.get('method', 'socket')} {scope['path'][:200]}: {failure}")
            if begun:
                raise  # the server closes the connection, so that half an answer does not look complete
            await refuse(fault, scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        visitor: Visitor = scope["lmagent"]
        route, parts = self._find(scope["path"], scope["method"])
        scope["path_params"] = parts
        try:
            visitor.admit(route.method, is_open=route.is_open)
        except Refusal as refusal:
            response = (route.tell or told)(refusal)
        else:
            request = Request(scope, limited(route.limit, visitor.headers, receive, self._patience))
            response = await carry_out(route, self._gateway, request, visitor.caller, self._access)
        await response(scope, receive, send)

    def _find(self, path: str, method: str) -> tuple[Route, dict[str, str]]:
        allowed: list[str] = []
        for line in self._lines:
            if (parts := line.fits(path)) is None:
                continue
            route = line.methods.get("GET" if method == "HEAD" else method)
            if route is not None and not (method == "HEAD" and route.media == "text/event-stream"):
                return route, parts
            allowed += line.methods
        if not allowed:
            raise Refusal(404, "not_found", f"there is nothing at {path[:200]!r}", fix="GET /openapi.json lists it all")
        ways = ", ".join(dict.fromkeys(allowed))
        text = f"{path[:200]!r} takes no {method[:20]}"
        raise Refusal(405, "method_not_allowed", text, fix=f"it takes {ways}", headers={"allow": ways})

    async def _talk(self, scope: Scope, receive: Receive, send: Send) -> None:
        visitor: Visitor = scope["lmagent"]
        for pattern, line in self._sockets:
            if found := pattern.fullmatch(scope["path"]):
                visitor.admit("GET", is_open=False)
                parts = path_of(found.groupdict())
                opened = WebSocket(scope, receive, send)
                await line.handler(Talk(self._gateway, opened, parts, visitor.caller, self._access))
                return
        raise Refusal(404, "not_found", f"there is no socket at {scope['path'][:200]!r}")


def build_app(
    gateway: Gateway,
    access: Access,
    rules: GuardRules = LOOPBACK,
    *,
    say: Say,
    routes: Sequence[Route] = TABLE,
    sockets: Sequence[Socket] = SOCKETS,
    patience: Patience = PATIENCE,
) -> App:
    table = Table(gateway, access, routes=routes, sockets=sockets, say=say, patience=patience)
    return metrics.counted(Guard(table, access, rules))
