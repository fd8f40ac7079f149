"""`/mcp` of `lmagent web`: our tools and our agent for programs that come over HTTP."""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lmagent.app.runner import Runner
from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.http.route import Call, Method, Route
from lmagent.mcpserver.http import MAX_BODY, McpEndpoint

PATH = "/mcp"

METHODS: tuple[Method, ...] = ("GET", "POST", "DELETE")


def routes_of(runner: Runner) -> tuple[Route, ...]:
    """Return the routes of the endpoint on a gateway. Only programs with the token may use it."""
    endpoint = McpEndpoint(runner)

    async def handle(call: Call) -> Response:
        if call.caller != "token":
            fix = "send 'Authorization: Bearer TOKEN' (lmagent web token shows it)"
            raise Refusal(401, "no_credentials", "this is for programs with the token", fix=fix)
        return _passed(endpoint, call)

    summary = "MCP, streamable HTTP: the tools and the agent for other programs"
    return tuple(Route(method, PATH, handle, summary, raw=True, limit=MAX_BODY) for method in METHODS)


def _passed(endpoint: McpEndpoint, call: Call) -> Response:
    class Passed(Response):
        """Leaves the request, with the limits on its body, to the endpoint."""

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await endpoint(scope, call.request.receive, send)

    return Passed()
