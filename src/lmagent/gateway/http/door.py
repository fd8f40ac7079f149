"""Door: logging in and out, and the caller's identity."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from lmagent import __version__
from lmagent.core.events import PermissionMode
from lmagent.gateway.http.access import LOGIN, Caller
from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.http.route import Call, Route, json


class Login(Struct, frozen=True):
    """The PIN, as `lmagent web` printed it."""

    pin: Annotated[str, Meta(max_length=256)]


class Done(Struct, frozen=True):
    ok: bool = True


class Me(Struct, frozen=True):
    """The caller, and the gateway's version, workspace, model server and defaults of new sessions.

    Attributes:
        model: empty for the model that the server has loaded.
        models_url: whether the model server lists its models.
    """

    caller: Caller
    version: str
    workspace: str
    model: str
    mode: PermissionMode
    endpoint: str
    models_url: bool


async def _login(call: Call) -> Response:
    request, answer = call.request, json(Done())
    address = request.client.host if request.client is not None else ""
    for cookie in call.access.login(call.body.pin, address, request.cookies):
        answer.headers.append("set-cookie", cookie)
    return answer


async def _logout(call: Call) -> Response:
    answer = json(Done())
    answer.headers["set-cookie"] = call.access.logout(call.request.cookies)
    return answer


async def _open(call: Call) -> Response:
    if call.request.method == "HEAD":  # a link preview must not use the link up
        return Response(media_type="text/html")
    try:
        cookies = call.access.follow(call.path["ticket"])
    except Refusal as refusal:
        if "text/html" not in call.request.headers.get("accept", ""):
            raise
        page = f"<!doctype html><title>lmagent</title><p>{refusal.message}. <a href='/'>Enter the PIN</a></p>"
        return HTMLResponse(page, refusal.status)
    answer = RedirectResponse("/", 303)
    for cookie in cookies:
        answer.headers.append("set-cookie", cookie)
    return answer


async def _health(_: Call) -> Response:
    return PlainTextResponse("ok")  # open to anyone, so it says nothing else


async def _me(call: Call) -> Me:
    host = call.gateway.host
    return Me(
        caller=call.caller,
        version=__version__,
        workspace=str(host.workspace),
        model=host.agent.model,
        mode=host.settings.permission_mode,
        endpoint=host.settings.endpoint,
        models_url=host.replay is None,
    )


ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        LOGIN,
        _login,
        "Log a browser in",
        body=Login,
        answer=Done,
        errors=(401, 429),
        is_open=True,
        limit=10_000,
    ),
    Route("POST", "/api/logout", _logout, "Log the browser out", answer=Done),
    Route(
        "GET",
        "/open/{ticket}",
        _open,
        "Log a browser in by a link that works once",
        status=303,
        media="text/html",
        errors=(404,),
        is_open=True,
    ),
    Route("GET", "/healthz", _health, "Say that the gateway answers", media="text/plain", is_open=True),
    Route("GET", "/api/me", _me, "Say who asks, and what serves", answer=Me),
)
