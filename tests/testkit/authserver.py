"""A real authorization server and an MCP server that needs its tokens, both small, over HTTP on loopback."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

JSON = "application/json"
ENDPOINTS = {
    "authorization_endpoint": "authorize",
    "token_endpoint": "token",
    "registration_endpoint": "register",
    "revocation_endpoint": "revoke",
}


class AuthServer:
    """Both servers, at one address. A test changes the attributes between its steps.

    Attributes:
        lasts: seconds that an access token is valid.
        pending: how many polls of a device are answered with "not yet".
        answer: what the user does in the browser: `allow` or `deny`.
        refreshes: the refresh tokens that were exchanged; each may be used once.
        twists: answers that take the place of the usual ones, by path.
        received: the forms and headers of the requests to each twisted path.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.url = f"{address}/mcp"
        self.reset()

    def reset(self) -> None:
        self.lasts, self.pending, self.answer, self.has_device = 3600, 0, "allow", True
        self.is_down = False
        self.scope = "read"
        self.tokens: set[str] = set()
        self.refresh_tokens: set[str] = set()
        self.refreshes: list[str] = []
        self.replayed = 0
        self.codes: dict[str, str] = {}
        self.registered: list[dict[str, Any]] = []
        self.asked_scopes: list[str] = []
        self.twists: dict[str, Callable[[dict[str, str]], Response]] = {}
        self.received: list[tuple[str, dict[str, str], str]] = []

    def app(self) -> Starlette:
        app = Starlette(
            routes=[
                Route("/mcp", self.mcp, methods=["POST", "GET", "DELETE"]),
                Route("/.well-known/oauth-protected-resource/mcp", self.resource),
                Route("/.well-known/oauth-authorization-server", self.metadata),
                Route("/register", self.register, methods=["POST"]),
                Route("/authorize", self.authorize),
                Route("/token", self.token, methods=["POST"]),
                Route("/revoke", self.revoke, methods=["POST"]),
                Route("/device", self.device, methods=["POST"]),
            ]
        )
        app.add_middleware(BaseHTTPMiddleware, dispatch=self._twisted)
        return app

    async def _twisted(self, request: Request, usual: RequestResponseEndpoint) -> Response:
        if (twist := self.twists.get(request.url.path)) is None:
            return await usual(request)
        form = dict(parse_qsl((await request.body()).decode()))
        self.received.append((request.url.path, form, request.headers.get("authorization", "")))
        return twist(form)

    def known(self, **changes: Any) -> dict[str, Any]:
        """The metadata of the authorization server."""
        named = {name: f"{self.address}/{path}" for name, path in ENDPOINTS.items()}
        return {"issuer": self.address, **named, **changes}

    async def resource(self, _request: Request) -> Response:
        return JSONResponse({"resource": self.url, "authorization_servers": [self.address]})

    async def metadata(self, _request: Request) -> Response:
        if self.is_down:
            return Response(status_code=503)
        known = self.known()
        return JSONResponse(
            {**known, "device_authorization_endpoint": f"{self.address}/device"} if self.has_device else known
        )

    async def register(self, request: Request) -> Response:
        self.registered.append(await request.json())
        return JSONResponse({**self.registered[-1], "client_id": f"client-{len(self.registered)}"}, status_code=201)

    async def authorize(self, request: Request) -> Response:
        given = request.query_params
        self.asked_scopes.append(given.get("scope", ""))
        if self.answer == "deny":
            return RedirectResponse(
                f"{given['redirect_uri']}?" + urlencode({"error": "access_denied", "state": given["state"]})
            )
        code = secrets.token_hex(8)
        self.codes[code] = given["code_challenge"]
        return RedirectResponse(f"{given['redirect_uri']}?" + urlencode({"code": code, "state": given["state"]}))

    async def device(self, _request: Request) -> Response:
        known = {"device_code": "device-1234", "user_code": "ABCD-1234", "verification_uri": f"{self.address}/enter"}
        return JSONResponse({**known, "expires_in": 60, "interval": 0})

    async def revoke(self, request: Request) -> Response:
        given = dict(parse_qsl((await request.body()).decode()))["token"]
        self.tokens.discard(given)
        self.refresh_tokens.discard(given)
        return Response()

    async def token(self, request: Request) -> Response:
        form = {name: found[0] for name, found in parse_qs((await request.body()).decode()).items()}
        if self.is_down:
            return Response(status_code=503)
        match form["grant_type"]:
            case "authorization_code":
                digest = hashlib.sha256(form["code_verifier"].encode()).digest()
                if self.codes.pop(form["code"], "") != base64.urlsafe_b64encode(digest).decode().rstrip("="):
                    return JSONResponse({"error": "invalid_grant"}, status_code=400)
            case "refresh_token":
                if form["refresh_token"] not in self.refresh_tokens:
                    self.replayed += form["refresh_token"] in self.refreshes
                    return JSONResponse({"error": "invalid_grant"}, status_code=400)
                self.refresh_tokens.discard(form["refresh_token"])
                self.refreshes.append(form["refresh_token"])
            case _:
                if self.answer == "deny":
                    return JSONResponse({"error": "access_denied"}, status_code=400)
                if self.pending:
                    self.pending -= 1
                    return JSONResponse({"error": "authorization_pending"}, status_code=400)
        access, refresh = f"access-{secrets.token_hex(12)}", f"refresh-{secrets.token_hex(12)}"
        self.tokens.add(access)
        self.refresh_tokens.add(refresh)
        token = {"access_token": access, "token_type": "Bearer", "expires_in": self.lasts, "scope": self.scope}
        return JSONResponse({**token, "refresh_token": refresh})

    def echo(self, number: int, arguments: dict[str, Any], header: str) -> Response:
        """Answer a call with the header of the request, in all the places that an answer has."""
        escaped = header.replace("-", "\\u002d")  # some programs escape more than JSON needs
        answer = f'{{"jsonrpc": "2.0", "id": {number}, '
        if arguments.get("fails"):
            return Response(f'{answer}"error": {{"code": -32000, "message": "no, {escaped}"}}}}', 200, media_type=JSON)
        content = f'[{{"type": "text", "text": "you sent {escaped}"}}]'
        result = f'{answer}"result": {{"content": {content}, "structuredContent": {{"sent": ["{header}"]}}}}}}'
        log = {"level": "info", "data": f"sent {header}"}
        note = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": log})
        return Response(f"data: {note}\n\ndata: {result}\n\n", 200, media_type="text/event-stream")

    async def mcp(self, request: Request) -> Response:
        if request.headers.get("authorization", "").removeprefix("Bearer ") not in self.tokens:
            metadata = f"{self.address}/.well-known/oauth-protected-resource/mcp"
            challenge = f'Bearer resource_metadata="{metadata}", scope="{self.scope}"'
            return Response(status_code=401, headers={"WWW-Authenticate": challenge})
        if request.method != "POST":
            return Response(status_code=405)
        message = await request.json()
        if message["method"] == "tools/call" and message["params"]["name"] == "echo":
            return self.echo(message["id"], message["params"]["arguments"], request.headers["authorization"])
        if message["method"] == "tools/call":
            challenge = 'Bearer error="insufficient_scope", scope="write"'
            return Response(status_code=403, headers={"WWW-Authenticate": challenge})
        if "id" not in message:
            return Response(status_code=202)
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "guarded", "version": "1"},
            },
            "tools/list": {
                "tools": [
                    {"name": "write", "inputSchema": {"type": "object"}},
                    {"name": "echo", "inputSchema": {"type": "object"}},
                ]
            },
        }
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] not in results:
            return JSONResponse({**answer, "error": {"code": -32601, "message": "no such method"}})
        return JSONResponse({**answer, "result": results[message["method"]]})


@contextmanager
def auth_server() -> Iterator[AuthServer]:
    """Run the servers on a thread."""
    listener = socket.create_server(("127.0.0.1", 0))
    made = AuthServer(f"http://127.0.0.1:{listener.getsockname()[1]}")
    server = uvicorn.Server(uvicorn.Config(made.app(), log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.should_exit = True
        thread.join(10)


def visit(address: str) -> str:
    """Open an address as a browser does, and return the page at the end."""
    try:
        with urllib.request.urlopen(address) as page:
            return page.read().decode()
    except HTTPError as refused:
        return refused.read().decode()


def redirect_of(address: str) -> str:
    """Return the address to which a login is sent at its end, without opening it."""

    class Stays(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_args: Any, **_options: Any) -> None:
            return None

    try:
        urllib.request.build_opener(Stays).open(address)
    except HTTPError as redirect:
        return redirect.headers["Location"]
    raise AssertionError("no redirect")


def query(address: str) -> dict[str, list[str]]:
    return parse_qs(urlsplit(address).query)
