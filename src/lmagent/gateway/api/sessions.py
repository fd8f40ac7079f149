"""Sessions: list, begin, delete and export them; their sub-agents and copies."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from anyio import to_thread
from msgspec import Meta, Struct
from starlette.responses import Response

from lmagent.app.watching import Node, Tree
from lmagent.core.commands import Rename, SetMode, SetModel, SetOptions
from lmagent.core.errors import SessionNotFound
from lmagent.core.events import PermissionMode
from lmagent.core.model import SessionOptions
from lmagent.core.titles import title_of
from lmagent.gateway.gateway import Gateway
from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.http.route import Call, Route
from lmagent.store.branches import Fork, forks_of
from lmagent.store.index import SessionIndex
from lmagent.store.tally import ListPlace, SessionRow, Shelf

MEDIA = {"md": "text/markdown", "html": "text/html", "jsonl": "application/x-ndjson"}
"""Content types of the export formats."""


class SessionsQuery(Struct, frozen=True):
    """A selection of sessions.

    Attributes:
        search: only those that contain all these words.
        limit: at most so many; sub-agents' sessions are not counted.
        after: `next` of the previous page.
        children: include those of sub-agents.
        shelf: all, those that are not archived, or the archived ones.
    """

    search: Annotated[str, Meta(max_length=200)] = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = 50
    after: Annotated[str, Meta(max_length=120)] = ""
    children: bool = False
    shelf: Shelf = "all"


class Row(SessionRow, frozen=True):
    """A session in a list; `session_id` repeats its id for earlier clients."""

    session_id: str = ""


class SessionList(Struct, frozen=True):
    """Sessions, pinned ones first, then by last change.

    Attributes:
        sessions: the page.
        next: `after` of the next page; empty on the last one.
    """

    sessions: tuple[Row, ...]
    next: str = ""


class NewSession(Struct, frozen=True):
    """Options of a new session; by default those of the settings."""

    title: Annotated[str, Meta(max_length=200)] = ""
    model: Annotated[str, Meta(max_length=200)] = ""
    mode: PermissionMode | None = None
    options: SessionOptions | None = None


class Begun(Struct, frozen=True):
    session: str


class Deleted(Struct, frozen=True):
    deleted: str


class Nodes(Struct, frozen=True):
    """A session and its sub-agents, each after its parent."""

    nodes: tuple[Node, ...]


class Branches(Struct, frozen=True):
    """The turns in which the session and its copies, or the originals that it is a copy of, diverge."""

    forks: tuple[Fork, ...]


class ExportQuery(Struct, frozen=True):
    format: Literal["md", "html", "jsonl"] = "md"


async def list_sessions(call: Call) -> SessionList:
    from lmagent.app.records import session_rows  # opens the index

    query: SessionsQuery = call.query
    after = _read_cursor(query.after) if query.after else None
    root, one_more = call.gateway.host.store.root, query.limit + 1
    about = {"children": query.children, "after": after, "shelf": query.shelf}
    wanted = partial(session_rows, root, one_more, query.search, **about)
    rows = await to_thread.run_sync(wanted)
    places = [at for at, row in enumerate(rows) if not row.child]
    if len(places) <= query.limit:
        return SessionList(tuple(_row(call.gateway, row) for row in rows))
    last = rows[places[query.limit - 1]]
    page = rows[: places[query.limit]]
    return SessionList(tuple(_row(call.gateway, row) for row in page), f"{last.pinned:d},{last.updated!r},{last.id}")


def _read_cursor(text: str) -> ListPlace:
    try:
        pinned, updated, id = text.split(",")
        return bool(int(pinned)), float(updated), id
    except ValueError:
        raise Refusal(400, "invalid", "after is not the `next` of a list of sessions") from None


async def begin_session(call: Call) -> Begun:
    """Begin a session; it is on disk before the answer."""
    body: NewSession = call.body
    known = await call.gateway.runner.begin()
    if body.mode is not None and body.mode != known.session.state.mode:
        await call.gateway.runner.send(known.id, SetMode(mode=body.mode))
    if body.model and body.model != known.session.state.model:
        await call.gateway.runner.send(known.id, SetModel(model=body.model))
    if body.options is not None and body.options != known.session.state.work.options:
        await call.gateway.runner.send(known.id, SetOptions(options=body.options))
    if title := title_of(body.title, None):
        await call.gateway.runner.send(known.id, Rename(title=title))
    return Begun(known.id)


async def show_session(call: Call) -> Row:
    session = call.path["session"]
    call.gateway.runner.require(session)
    row = await to_thread.run_sync(_one, call.gateway, session)
    if row is None:
        raise SessionNotFound(f"there is no session {session}", fix="GET /api/sessions lists them")
    return _row(call.gateway, row)


async def delete_session(call: Call) -> Deleted:
    """Delete a session; its running turn is interrupted for good."""
    await call.gateway.runner.delete(call.path["session"])
    return Deleted(call.path["session"])


async def show_tree(call: Call) -> Nodes:
    """Return the session's sub-agents, at any depth."""
    session = call.path["session"]
    call.gateway.runner.require(session)
    return Nodes(await to_thread.run_sync(lambda: tuple(Tree(call.gateway.host.store, session).nodes())))


async def show_branches(call: Call) -> Branches:
    session = call.path["session"]
    call.gateway.runner.require(session)
    return Branches(await to_thread.run_sync(_branches, call.gateway, session))


async def export(call: Call) -> Response:
    from lmagent.app.records import export_session  # rarely used, slow to import

    session, form = call.path["session"], call.query.format
    call.gateway.runner.require(session)
    text = await to_thread.run_sync(export_session, call.gateway.host.store, session, form)
    headers = {
        "Content-Disposition": f'attachment; filename="{session}.{form}"',
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    return Response(text, media_type=MEDIA[form], headers=headers)


def _branches(gateway: Gateway, session: str) -> tuple[Fork, ...]:
    with SessionIndex(gateway.host.store.root) as index:
        index.refresh()
        return tuple(forks_of(session, index.branches()))


def _one(gateway: Gateway, session: str) -> SessionRow | None:
    with SessionIndex(gateway.host.store.root) as index:
        index.refresh()
        return index.row(session)


def _row(gateway: Gateway, row: SessionRow) -> Row:
    """Mark a session that waits for a sub-agent's approval: the parent's log does not say so."""
    facts = {name: getattr(row, name) for name in SessionRow.__struct_fields__}
    here = gateway.host.sessions.get(row.id)
    if here is not None and here.descendant(lambda child: bool(child.state.approvals)) is not None:
        facts["waiting_for"] = "approval"
    return Row(**facts, session_id=row.id)


ROUTES = (
    Route("GET", "/api/sessions", list_sessions, "Sessions, newest first", query=SessionsQuery, answer=SessionList),
    Route("POST", "/api/sessions", begin_session, "Begin a session", body=NewSession, answer=Begun, status=201),
    Route("GET", "/api/sessions/{session}", show_session, "One session", answer=Row, errors=(404,)),
    Route("DELETE", "/api/sessions/{session}", delete_session, "Delete a session", answer=Deleted, errors=(404, 409)),
    Route("GET", "/api/sessions/{session}/tree", show_tree, "The sub-agents of a session", answer=Nodes, errors=(404,)),
    Route(
        "GET",
        "/api/sessions/{session}/branches",
        show_branches,
        "Where a session and its copies part",
        answer=Branches,
        errors=(404,),
    ),
    Route(
        "GET",
        "/api/sessions/{session}/export",
        export,
        "A session as a file",
        query=ExportQuery,
        media=", ".join(MEDIA.values()),
        errors=(404,),
    ),
)
