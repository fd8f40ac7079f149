"""Slash commands: the table that every surface has."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from lmagent.app.slash import SlashContext, SlashResult, all_commands, dispatch, find_command
from lmagent.core.errors import LmagentError
from lmagent.core.messages import user
from lmagent.core.view import View
from lmagent.gateway.gateway import Gateway
from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.http.route import Call, Route

NOT_HERE = frozenset({"quit", "copy", "theme"})
"""Commands for the terminal only."""


class SlashLine(Struct, frozen=True):
    """The typed line, from the slash on."""

    line: Annotated[str, Meta(min_length=1, max_length=60_000)]


class SlashAnswer(Struct, frozen=True):
    """The result of a command.

    Attributes:
        text: Markdown for the user.
        session: the session to continue with; empty for the current one.
        fresh: the next message begins a new session.
    """

    text: str
    session: str
    fresh: bool


class SlashRow(Struct, frozen=True):
    name: str
    usage: str
    help: str


class SlashList(Struct, frozen=True):
    commands: tuple[SlashRow, ...]


async def list_slash(call: Call) -> SlashList:
    """Return the commands, including the workspace's own."""
    host = call.gateway.host
    rows = (command for name, command in all_commands(host).items() if name not in NOT_HERE)
    return SlashList(tuple(SlashRow(row.name, row.usage, row.help) for row in rows))


async def run_slash(call: Call) -> SlashAnswer:
    """Run a slash command in a session, or without one."""
    gateway, session, line = call.gateway, call.path.get("session", ""), call.body.line.strip()
    if not line.startswith("/"):
        raise Refusal(400, "invalid", "a slash command begins with a slash", fix="GET /api/slash lists them")
    if find_command(line, gateway.host)[0].name in NOT_HERE:
        name = line.partition(" ")[0]
        raise Refusal(409, "conflict", f"{name} is for the terminal; the page has its own way", fix="GET /api/slash")
    return await _carried_out(gateway, session, line)


async def _carried_out(gateway: Gateway, session: str, line: str) -> SlashAnswer:
    known = await gateway.runner.open(session) if session else None
    seen = (await gateway.views.look(session))[1] if session else View()
    try:
        result = await dispatch(line, SlashContext(gateway.host, known.session if known is not None else None, seen))
    except LmagentError as unfit:
        if type(unfit) is not LmagentError:
            raise
        raise Refusal(409, "conflict", unfit.message, fix=unfit.fix) from unfit  # such as nothing to undo
    told = await _gone_on(gateway, session, result)
    if known is not None and result.run:
        known.work()
    return SlashAnswer(result.text, told, result.fresh)


async def _gone_on(gateway: Gateway, session: str, result: SlashResult) -> str:
    """Open the command's session and submit its message; return the session to continue with."""
    target = ""
    if result.session is not None:
        target = (await gateway.runner.open(result.session.state.session)).id
    if result.submit:
        if not (target or session):
            target = (await gateway.runner.begin()).id
        await gateway.runner.submit(target or session, user(result.submit), steer=True)
    return target


ROUTES = (
    Route("GET", "/api/slash", list_slash, "The slash commands", answer=SlashList),
    Route(
        "POST",
        "/api/slash",
        run_slash,
        "Carry out a slash command where there is no session yet",
        body=SlashLine,
        answer=SlashAnswer,
        errors=(404, 409, 422),
    ),
    Route(
        "POST",
        "/api/sessions/{session}/slash",
        run_slash,
        "Carry out a slash command",
        body=SlashLine,
        answer=SlashAnswer,
        errors=(404, 409, 422),
    ),
)
