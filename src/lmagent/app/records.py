"""Records: list, export, fork, import and delete the sessions of a workspace. No model is needed for it."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct

from lmagent import __version__
from lmagent.app.clock import SystemClock
from lmagent.app.kept import GivenModes
from lmagent.app.options import HostOptions, load_settings
from lmagent.cluster import open_store
from lmagent.config.workspace import open_workspace
from lmagent.core import events as ev
from lmagent.core.errors import ConfigError, LmagentError, SessionBusy, StoreError
from lmagent.core.ids import new_session_id
from lmagent.core.messages import Image
from lmagent.sandbox.scratch import forget_scratch
from lmagent.store.port import SessionStore
from lmagent.store.tally import ListPlace, SessionRow, Shelf
from lmagent.tools.beneath import Beneath

if TYPE_CHECKING:
    from lmagent.store import compat

LARGEST_PICTURE = 8_000_000  # bytes of a picture that an export holds


class ImportedReport(Struct, frozen=True):
    """The result of an import."""

    session: str
    taken: tuple[str, ...]
    left: tuple[str, ...]


def session_rows(
    store: SessionStore,
    limit: int,
    search: str,
    *,
    children: bool = False,
    after: ListPlace | None = None,
    shelf: Shelf = "all",
) -> Sequence[SessionRow]:
    """Return the sessions, pinned ones first, then newest first; each sub-agent's after its parent.

    In a list of all sessions, or of those that a search finds, a sub-agent without a listed parent has its own place.
    """
    with store.index() as index:
        index.refresh()
        rows = index.list(limit, search, children=children, after=after, shelf=shelf)
    paged = not search.strip() and (after is not None or shelf != "all" or sum(not row.child for row in rows) >= limit)
    known, below = {row.id for row in rows}, defaultdict[str, list[SessionRow]](list)
    for row in rows:  # the sub-agents of sessions on another page are below a row that is not reached
        below[row.parent if row.child and (paged or row.parent in known) else ""].append(row)
    ordered: list[SessionRow] = []

    def add(parent: str) -> None:
        for row in below.pop(parent, []) if not parent else reversed(below.pop(parent, [])):
            ordered.append(row)
            add(row.id)

    add("")
    return ordered


def depths(rows: Sequence[SessionRow]) -> list[int]:
    """Return the depth of each row below its topmost parent."""
    found: dict[str, int] = {}
    for row in rows:
        found[row.id] = found[row.parent] + 1 if row.child and row.parent in found else 0
    return list(found.values())


def export_session(workspace: Path, store: SessionStore, session: str, form: str) -> str:
    """Return a session as `md`, `html` or `jsonl`; or as `talk`: Markdown without the notes for the model."""
    from lmagent.store import export  # lists of sessions, which each completion asks for, need none of it

    html = partial(export.to_html, read_picture=partial(_picture, workspace))
    forms = {"md": export.to_markdown, "talk": export.to_talk, "html": html, "jsonl": export.to_jsonl}
    if form not in forms:
        raise ConfigError(f"{form!r} is not a form of export", fix=f"one of {', '.join(forms)}")
    return forms[form](store.read(session))


def _picture(workspace: Path, path: str, sha256: str) -> Image | None:
    """Return a picture of the workspace, if it still has the SHA-256."""
    import base64
    import hashlib

    from lmagent.tools.pictures import picture_of

    try:
        with Beneath(workspace) as files:
            content = files.read_bytes(path, LARGEST_PICTURE + 1)
    except LmagentError:
        return None
    found = picture_of(content)
    if found is None or hashlib.sha256(content).hexdigest() != sha256:
        return None
    return Image(found.media_type, base64.b64encode(content).decode())


class WorkspaceRecords(Struct, frozen=True):
    """The sessions of one workspace; `data` is the user's data folder."""

    workspace: Path
    store: SessionStore
    data: Path

    def rows(self, limit: int, search: str, *, children: bool = False, shelf: Shelf = "all") -> Sequence[SessionRow]:
        return session_rows(self.store, limit, search, children=children, shelf=shelf)

    def mark(self, name: str, *, pinned: bool | None = None, archived: bool | None = None) -> str:
        """Set or clear a session's marks (None leaves a mark unchanged); return its id."""
        session = self.store.resolve(name)
        log = self.store.open(session)
        try:
            anyio.run(partial(log.append, ev.SessionMarked(pinned=pinned, archived=archived), sync=True))
        finally:
            log.close()
        return session

    def export(self, name: str, form: str) -> str:
        return export_session(self.workspace, self.store, self.store.resolve(name), form)

    def fork(self, name: str, seq: int | None) -> str:
        source, fork = self.store.resolve(name), new_session_id(SystemClock().now())
        anyio.run(self.store.fork, source, fork, seq)
        GivenModes(self.data, self.workspace).inherit(source, fork)
        return fork

    def delete(self, name: str) -> str:
        """Delete a session and its sub-agents' sessions, with their files in the workspace; return its id."""
        session = self.store.resolve(name)
        family = self.family(session)
        for member in family:
            if self.store.is_running(member):
                raise SessionBusy(f"session {member} is in use; nothing was deleted", fix="stop it, and delete it then")
        for member in family:
            self.store.delete(member)
            self.forget_files(member)
        return session

    def forget_files(self, session: str) -> None:
        """Delete the files of a session that was deleted: its scratch folder, and its own as a sub-agent."""
        forget_scratch(self.data, self.workspace, session)
        folder = self.workspace / ".lmagent" / "agents" / session
        if folder.is_dir() and not any(one.is_symlink() for one in (folder, folder.parent, folder.parent.parent)):
            shutil.rmtree(folder, ignore_errors=True)

    def family(self, session: str, met: Collection[str] = ()) -> list[str]:
        """Return the ids of a session's sub-agents, then its own."""
        names, children, met = {session}, list[str](), {session, *met}
        for event in self.store.read(session):
            if isinstance(event, ev.SubagentStarted):
                children.append(event.child)
            elif isinstance(event, ev.SessionForked):  # a log that was put aside keeps its sub-agents; a copy has none
                names = {session} if event.at_seq else {*names, event.parent}
        family: list[str] = []
        for child in children:
            if child not in (*met, *family) and self._works_for(child, names):
                family += self.family(child, (*met, *family))
        return [*family, session]

    def _works_for(self, child: str, names: set[str]) -> bool:
        """Return whether a sub-agent's own log names the session as its parent: other logs are not trusted for this.

        `names` are the session's id, and its ids before it was set aside.
        """
        try:
            first = next(iter(self.store.read(child)), None)
        except StoreError:
            return False
        if not (isinstance(first, ev.SessionCreated) and first.session == child and first.parent is not None):
            return False
        return first.parent.session in names

    def import_path(self, path: Path) -> Iterator[tuple[Path, ImportedReport | LmagentError]]:
        """Import a session of an older system, or each of a folder; yield each file with its report or error."""
        files = [path]
        if path.is_dir():
            files = sorted(file for file in path.iterdir() if file.suffix in (".json", ".jsonl"))
        if not files:
            text = f"{path} has no sessions (.json, .jsonl)"
            raise StoreError(text, fix="name the folder of the sessions, or a file")
        for file in files:
            try:
                yield file, self.import_file(file)
            except LmagentError as error:
                if file == path:
                    raise
                yield file, error

    def import_file(self, path: Path) -> ImportedReport:
        from lmagent.app.prompt import system_text
        from lmagent.app.single import open_toolbox  # loads every feature, which lists of sessions need not
        from lmagent.store import compat

        now = SystemClock().now()
        opening = ev.SessionCreated(
            session=new_session_id(now),
            workspace=str(self.workspace),
            agent="lmagent",
            system=system_text(),
            tools=open_toolbox(self.workspace).specs(),
            app_version=__version__,
            imported_from=str(path),
        )
        return anyio.run(self._write, compat.read_session(path, opening, now))

    async def _write(self, imported: compat.ImportedSession) -> ImportedReport:
        log = self.store.create(imported.session)
        try:
            for event in imported.events[:-1]:
                await log.append(event)
            await log.append(imported.events[-1], sync=True)
        except StoreError:
            log.close()
            self.store.delete(imported.session)
            raise
        log.close()
        return ImportedReport(imported.session, tuple(imported.taken), tuple(imported.left))


def open_records(workspace: Path | None) -> WorkspaceRecords:
    loaded = load_settings(HostOptions(workspace))
    path = open_workspace(loaded.workspace).path
    store = open_store(path, loaded.settings, SystemClock())
    return WorkspaceRecords(path, store, loaded.settings.agent_data_dir)
