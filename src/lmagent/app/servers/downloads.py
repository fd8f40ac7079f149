"""Downloads of models, into our own library or by a server that fetches them itself.

Each is a task of this process. The parts stay on disk, so a download that was stopped, or whose process died, resumes:
our library keeps its parts, and a server its own.
"""

from __future__ import annotations

import os
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import anyio
import anyio.abc
from msgspec import Struct

from lmagent.core.errors import ConfigError, LmagentError
from lmagent.core.ids import new_id
from lmagent.modelserver.library.download import Ports, read_note
from lmagent.modelserver.library.facts import split_of
from lmagent.modelserver.library.hub import ModelHub
from lmagent.modelserver.library.library import Library
from lmagent.modelserver.library.pull import Puller, wanted
from lmagent.modelserver.spec import ModelServerError
from lmagent.providers.loading import pull
from lmagent.providers.transport import HttpTransport

if TYPE_CHECKING:
    from lmagent.app.host import Host

Into = Literal["library", "server"]  # our own library, or the connected server

FINISHED = 20  # ended downloads that are still listed
PARTS = "*/*/**/*.part"  # partial files below the library's OWNER/REPOSITORY folders


class Download(Struct):
    """A download."""

    id: str
    name: str  # as requested; requesting it again resumes it
    into: Into
    provider: str = ""  # the provider whose server fetches it; empty for the usual one
    state: Literal["running", "done", "stopped", "failed"] = "running"
    have: int = 0  # bytes that have arrived
    total: int = 0  # bytes in all, if known
    text: str = ""  # the current step
    model: str = ""  # the model's name, once it has arrived
    problem: str = ""
    fix: str = ""
    file: str = ""  # the partial file in our library


class Downloads:
    def __init__(self, host: Host) -> None:
        self._host = host
        self._known: dict[str, Download] = {}
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._tasks: anyio.abc.TaskGroup | None = None

    @property
    def library(self) -> Path:
        return self._host.settings.agent_data_dir / "models"

    async def run(self) -> None:
        """Work until cancelled; then every download stops, and keeps its parts."""
        async with anyio.create_task_group() as self._tasks:
            await anyio.sleep_forever()

    def rows(self) -> list[Download]:
        """Return all downloads, the newest first, and parts on disk without a download in this process."""
        known = list(reversed(self._known.values()))
        files = {row.file for row in known if row.file}
        return [*known, *(row for row in unfinished(self.library) if row.file not in files)]

    def start(self, name: str, into: Into, provider: str = "") -> Download:
        """Begin or resume a download; return the existing one if it runs."""
        for row in self._known.values():
            if row.state == "running" and (row.name, row.into, row.provider) == (name, into, provider):
                return row
        if into == "library":
            wanted(name)
        if self._tasks is None:
            raise ConfigError("downloads are not ready", fix="try again in a moment")
        self._known = {id: row for id, row in self._known.items() if row.state == "running" or row.name != name}
        row = Download(new_id(), name, into, provider)
        self._known[row.id], self._scopes[row.id] = row, anyio.CancelScope()
        self._tasks.start_soon(self._fetch, row)
        return row

    def stop(self, id: str) -> Download | None:
        """Stop a download and keep its parts; return None if this process has no such download."""
        if scope := self._scopes.get(id):
            self._known[id].state = "stopped"
            scope.cancel()
        return self._known.get(id)

    def forget(self, id: str) -> bool:
        """Remove an ended download and its part in our library; return False if no ended download has this id."""
        row = next((row for row in self.rows() if row.id == id and row.state != "running"), None)
        if row is None:
            return False
        for part in self.library.glob(PARTS) if row.state != "done" and row.file else ():
            if part.name == f"{row.file}.part":
                part.unlink(missing_ok=True)
                part.with_name(part.name + ".json").unlink(missing_ok=True)
        self._known.pop(id, None)
        return True

    async def _fetch(self, row: Download) -> None:
        with self._scopes[row.id]:
            try:
                await (self._into_library(row) if row.into == "library" else self._into_server(row))
                row.state, row.have, row.text = "done", row.total, ""
            except LmagentError as error:
                row.state, row.problem, row.fix = "failed", error.message, error.fix
        del self._scopes[row.id]
        ended = [id for id, known in self._known.items() if known.state != "running"]
        for id in ended[:-FINISHED]:
            del self._known[id]

    async def _into_library(self, row: Download) -> None:
        transport = HttpTransport()
        try:
            pulled = await Puller(ModelHub(transport, os.environ), self.library, Ports(_Shown(row))).pull(row.name)
        finally:
            with anyio.CancelScope(shield=True):
                await transport.aclose()
        there = await anyio.to_thread.run_sync(Library(self.library).all)
        details = next((one for one in there if one.entry.path == pulled.paths[0]), None)
        if details is None or details.entry.broken:
            why = details.entry.broken if details is not None else "it is no model"
            raise ModelServerError(f"{row.name} cannot be loaded: {why}", fix="choose another model")
        row.model = details.entry.name

    async def _into_server(self, row: Download) -> None:
        prefix = f"{row.provider}:" if row.provider else ""
        endpoint, _ = self._host.served.at(prefix)
        dialect = (await self._host.served.facts(prefix)).dialect
        coming = pull(self._host.transport, endpoint, dialect, row.name)
        async with aclosing(cast("Any", coming)) as steps:
            async for step in steps:
                row.have, row.total, row.text = step.have, step.total, step.text
        row.model = f"{prefix}{row.name}"


class _Shown:
    """Shows the progress of a pull in its row; see `modelserver.library.download.Progress`. A model's files add up."""

    def __init__(self, row: Download) -> None:
        self._row = row
        self._before = 0

    def begin(self, name: str, size: int, have: int) -> None:
        if name != self._row.file:
            self._before = self._row.total
        self._row.file = name
        self._row.total, self._row.have = self._before + size, self._before + have

    def advance(self, count: int) -> None:
        self._row.have += count

    def note(self, text: str) -> None:
        self._row.text = text


def unfinished(library: Path) -> list[Download]:
    found: list[Download] = []
    for part in sorted(library.glob(PARTS)):
        note, file = read_note(part.with_name(part.name + ".json")), part.name.removesuffix(".part")
        if note is not None:
            name = f"{'/'.join(part.relative_to(library).parts[:2])}:{split_of(Path(file))[0]}"
            have = part.stat().st_size
            found.append(Download(f"part:{file}", name, "library", "", "stopped", have, note.size, file=file))
    return found
