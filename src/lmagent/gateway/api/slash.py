"""Slash commands: the table that every surface has."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from lmagent.app.slash import SlashContext, SlashResult, all_commands, dispatch, find_command
from lmagent.core.errors import LmagentError
from lmagent.core.messages import user
from lmagent.core.view import View
from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.http.route import Call, Route
from lmagent.gateway.hub.hub import Hub

NOT_HERE = frozenset({"quit", "copy", "theme"})
"""Commands that mean the terminal."""


class SlashLine(Struct, frozen=True):
    """What was typed, from the slash on."""

    line: Annotated[str, Meta(min_length=1, max_length=60_000)]


class SlashAnswer(Struct, frozen=True):
    """What came of it.

    Attributes:
        text: Markdown for the person.
        session: the session to go on with; empty for the one there is.
        fresh: the next message begins a new session.
    """

    text: str
    session: str
    fresh: bool


class SlashRow(Struct, frozen=True):
    """A command."""

    name: str
    usage: str
    help: str


class SlashList(Struct, frozen=True):
    """The commands."""

    commands: tuple[SlashRow, ...]


async def list_slash(call: Call) -> SlashList:
    """The commands, the workspace's own too."""
    host = call.hub.host
    rows = (command for name, command in all_commands(host).items() if name not in NOT_HERE)
    return SlashList(tuple(SlashRow(row.name, row.usage, row.help) for row in rows))


async def run_slash(call: Call) -> SlashAnswer:
    """Carry out a line that begins with a slash, in a session or where there is none yet."""
    hub, session, line = call.hub, call.path.get("session", ""), call.body.line.strip()
    if not line.startswith("/"):
        raise Refusal(400, "invalid", "a slash command begins with a slash", fix="GET /api/slash lists them")
    if find_command(line, hub.host)[0].name in NOT_HERE:
        name = line.partition(" ")[0]
        raise Refusal(409, "conflict", f"{name} is for the terminal; the page has its own way", fix="GET /api/slash")
    return await _carried_out(hub, session, line)


async def _carried_out(hub: Hub, session: str, line: str) -> SlashAnswer:
    desk = await hub.desk(session) if session else None
    seen = (await hub.views.look(session))[1] if session else View()
    try:
        result = await dispatch(line, SlashContext(hub.host, desk.session if desk is not None else None, seen))
    except LmagentError as unfit:
        if type(unfit) is not LmagentError:
            raise
        raise Refusal(409, "conflict", unfit.message, fix=unfit.fix) from unfit  # nothing to undo, for one
    told = await _gone_on(hub, session, result)
    if desk is not None and result.run:
        desk.work()
    return SlashAnswer(result.text, told, result.fresh)


async def _gone_on(hub: Hub, session: str, result: SlashResult) -> str:
    """Go on as the command wants; the session to go on with."""
    target = ""
    if result.session is not None:
        target = (await hub.desk(result.session.state.session)).id
    if result.submit:
        if not (target or session):
            target = (await hub.begin()).id
        await hub.submit(target or session, user(result.submit), steer=True)
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
