"""Sessions: list, begin, delete and export them; their sub-agents and copies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict
from starlette.responses import Response

from lmagent.app.watching import Node, Tree
from lmagent.core.commands import Rename, SetMode, SetModel, SetOptions
from lmagent.core.errors import SessionNotFound
from lmagent.core.events import PermissionMode
from lmagent.core.model import SessionOptions
from lmagent.core.titles import title_of
from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.http.route import Call, Routes
from lmagent.store.branches import Fork, forks_of
from lmagent.store.tally import ListPlace, SessionRow, Shelf

ROUTES = Routes()

# Content types of the export formats.
MEDIA = {"md": "text/markdown", "html": "text/html", "jsonl": "application/x-ndjson"}


class SessionsQuery(Struct, frozen=True):
    """A selection of sessions."""

    search: Annotated[str, Meta(max_length=200)] = ""  # only those that contain all these words
    limit: Annotated[int, Meta(ge=1, le=500)] = 50  # at most so many; sub-agents' sessions are not counted
    after: Annotated[str, Meta(max_length=120)] = ""  # `next` of the previous page
    children: bool = False  # include those of sub-agents
    shelf: Shelf = "all"  # all, those that are not archived, or the archived ones


class Row(SessionRow, frozen=True):
    """A session in a list; `session_id` repeats its id for earlier clients."""

    session_id: str = ""


class SessionList(Struct, frozen=True):
    """Sessions, pinned ones first, then by last change; `next` is `after` of the next page, empty on the last one."""

    sessions: tuple[Row, ...]
    next: str = ""


class NewSession(Struct, frozen=True):
    """Options of a new session; by default those of the settings."""

    title: Annotated[str, Meta(max_length=200)] = ""
    agent: Annotated[str, Meta(max_length=200)] = ""  # a name of `GET /api/agents`
    model: Annotated[str, Meta(max_length=200)] = ""
    mode: PermissionMode | None = None
    options: SessionOptions | None = None


class Nodes(Struct, frozen=True):
    """A session and its sub-agents, each after its parent."""

    nodes: tuple[Node, ...]


class Branches(Struct, frozen=True):
    """The turns in which the session and its copies, or the originals that it is a copy of, diverge."""

    forks: tuple[Fork, ...]


class ExportQuery(Struct, frozen=True):
    format: Literal["md", "html", "jsonl"] = "md"


@ROUTES.get("/api/sessions", "Sessions, newest first", place="gateway")
def list_sessions(call: Call, query: SessionsQuery) -> SessionList:
    from lmagent.app.records import session_rows  # opens the index

    after = _read_cursor(query.after) if query.after else None
    store, kind = call.gateway.host.store, (query.limit + 1, query.search)
    rows, next = session_rows(store, *kind, children=query.children, after=after, shelf=query.shelf), ""
    with store.index() as index:
        askers = index.askers()
    places = [at for at, row in enumerate(rows) if not row.child]
    if len(places) > query.limit:
        last = rows[places[query.limit - 1]]
        rows, next = rows[: places[query.limit]], f"{last.pinned:d},{last.updated!r},{last.id}"
    return SessionList(tuple(_row(row, askers) for row in rows), next)


def _read_cursor(text: str) -> ListPlace:
    try:
        pinned, updated, id = text.split(",")
        return bool(int(pinned)), float(updated), id
    except ValueError:
        raise Refusal(400, "invalid", "after is not the `next` of a list of sessions") from None


@ROUTES.post("/api/sessions", "Begin a session", status=201)
async def begin_session(call: Call, body: NewSession) -> dict[str, str]:
    """Begin a session; it is on disk before the answer."""
    known = await call.gateway.runner.begin(agent=body.agent)
    if body.mode is not None and body.mode != known.session.state.mode:
        await call.gateway.runner.send(known.id, SetMode(mode=body.mode))
    if body.model and body.model != known.session.state.model:
        await call.gateway.runner.send(known.id, SetModel(model=body.model))
    if body.options is not None and body.options != known.session.state.work.options:
        await call.gateway.runner.send(known.id, SetOptions(options=body.options))
    if title := title_of(body.title, None):
        await call.gateway.runner.send(known.id, Rename(title=title))
    return {"session": known.id}


@ROUTES.get("/api/sessions/{session}", "One session", place="gateway")
def show_session(call: Call) -> Row:
    session = call.session()
    with call.gateway.index() as index:
        row, askers = index.row(session), index.askers()
    if row is None:
        raise SessionNotFound(f"there is no session {session}", fix="GET /api/sessions lists them")
    return _row(row, askers)


@ROUTES.delete("/api/sessions/{session}", "Delete a session")
async def delete_session(call: Call) -> dict[str, str]:
    """Delete a session; its running turn is interrupted for good."""
    await call.gateway.runner.delete(call.path["session"])
    return {"deleted": call.path["session"]}


@ROUTES.get("/api/sessions/{session}/tree", "The sub-agents of a session", place="gateway")
def show_tree(call: Call) -> Nodes:
    """Return the session's sub-agents, at any depth."""
    return Nodes(tuple(Tree(call.gateway.host.store, call.session()).nodes()))


@ROUTES.get("/api/sessions/{session}/branches", "Where a session and its copies part", place="gateway")
def show_branches(call: Call) -> Branches:
    session = call.session()
    with call.gateway.index() as index:
        return Branches(tuple(forks_of(session, index.branches())))


@ROUTES.get("/api/sessions/{session}/export", "A session as a file", media=", ".join(MEDIA.values()), place="gateway")
def export(call: Call, query: ExportQuery) -> Response:
    from lmagent.app.records import export_session  # rarely used, slow to import

    session, form = call.session(), query.format
    text = export_session(call.gateway.host.workspace, call.gateway.host.store, session, form)
    headers = {
        "Content-Disposition": f'attachment; filename="{session}.{form}"',
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    return Response(text, media_type=MEDIA[form], headers=headers)


def _row(row: SessionRow, askers: Mapping[str, object]) -> Row:
    """Mark a session that waits for a sub-agent's approval: the parent's log does not say so."""
    facts = asdict(row)
    if row.id in askers:
        facts["waiting_for"] = "approval"
    return Row(**facts, session_id=row.id)
