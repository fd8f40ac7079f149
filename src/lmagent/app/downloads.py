"""Downloads: models on their way to this machine, into our own library or into a server that fetches them itself.

Each is a task of this process. What has come is kept on disk, so a download that was stopped, or whose process died,
resumes where it was: the parts of our own library are found there, and a server keeps its own.
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

if TYPE_CHECKING:
    from lmagent.app.host import Host

Into = Literal["library", "server"]
"""Our own library, or the server that is connected."""

FINISHED = 20
"""Downloads that have ended and are still listed."""


class Download(Struct):
    """A download.

    Attributes:
        id: names it.
        name: what was asked for, which asked for again resumes it.
        into: where it goes.
        provider: the provider whose server fetches it; empty for the usual one.
        state: how it stands.
        have: bytes that are there.
        total: bytes in all, as far as that is known.
        text: what is done now.
        model: the name of the model, once it is there.
        problem: why it failed.
        fix: what to do about that.
        file: the file that grows in our library.
    """

    id: str
    name: str
    into: Into
    provider: str = ""
    state: Literal["running", "done", "stopped", "failed"] = "running"
    have: int = 0
    total: int = 0
    text: str = ""
    model: str = ""
    problem: str = ""
    fix: str = ""
    file: str = ""


class Downloads:
    """The downloads of a process.

    Args:
        host: the model server, and where the library is.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._known: dict[str, Download] = {}
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._tasks: anyio.abc.TaskGroup | None = None

    @property
    def library(self) -> Path:
        """The folder of our own library."""
        return self._host.settings.agent_data_dir / "models"

    async def run(self) -> None:
        """Work until cancelled; then every download stops, and keeps what it has."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            await anyio.sleep_forever()

    def rows(self) -> list[Download]:
        """All downloads, the newest first, and parts on disk that no download of this process works on."""
        known = list(reversed(self._known.values()))
        files = {row.file for row in known if row.file}
        return [*known, *(row for row in unfinished(self.library) if row.file not in files)]

    def start(self, name: str, into: Into, provider: str = "") -> Download:
        """Begin a download, or resume it; the same one that runs already is returned.

        Raises:
            LmagentError: no model has this name.
            ConfigError: the gateway is about to end.
        """
        for row in self._known.values():
            if row.state == "running" and (row.name, row.into, row.provider) == (name, into, provider):
                return row
        if into == "library":
            from lmagent.modelserver.library.pull import wanted

            wanted(name)
        if self._tasks is None:
            raise ConfigError("downloads are not ready", fix="try again in a moment")
        self._known = {id: row for id, row in self._known.items() if row.state == "running" or row.name != name}
        row = Download(new_id(), name, into, provider)
        self._known[row.id], self._scopes[row.id] = row, anyio.CancelScope()
        self._tasks.start_soon(self._fetch, row)
        return row

    def stop(self, id: str) -> Download | None:
        """Stop a download; None if this process has none of that id. What has come is kept."""
        row = self._known.get(id)
        if row is not None and (scope := self._scopes.get(id)) is not None:
            row.state = "stopped"
            scope.cancel()
        return row

    def forget(self, id: str) -> bool:
        """Remove an ended download and its part in our library; return False if no ended download has this id."""
        row = next((row for row in self.rows() if row.id == id), None)
        if row is None or row.state == "running":
            return False
        if row.state != "done" and row.file:
            remove_part(self.library, row.file)
        self._known.pop(id, None)
        return True

    async def _fetch(self, row: Download) -> None:
        with self._scopes[row.id]:
            try:
                await (self._into_library(row) if row.into == "library" else self._into_server(row))
                row.state, row.have, row.text = "done", row.total, ""
            except LmagentError as error:
                row.state, row.problem, row.fix = "failed", error.message, error.fix
            finally:
                self._scopes.pop(row.id, None)
        ended = [id for id, known in self._known.items() if known.state != "running"]
        for id in ended[:-FINISHED]:
            self._known.pop(id)

    async def _into_library(self, row: Download) -> None:
        from lmagent.modelserver.library.download import Ports
        from lmagent.modelserver.library.hub import ModelHub
        from lmagent.modelserver.library.library import Library
        from lmagent.modelserver.library.pull import Puller
        from lmagent.modelserver.spec import ModelServerError
        from lmagent.providers.transport import HttpTransport

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
        from lmagent.providers.loading import pull

        prefix = f"{row.provider}:" if row.provider else ""
        endpoint, _ = self._host.served.at(prefix)
        dialect = (await self._host.served.facts(prefix)).dialect
        coming = pull(self._host.transport, endpoint, dialect, row.name)
        async with aclosing(cast("Any", coming)) as steps:
            async for step in steps:
                row.have, row.total, row.text = step.have, step.total, step.text
        row.model = f"{prefix}{row.name}"


class _Shown:
    """Shows the progress of a pull in its row; see `modelserver.library.download.Progress`. Parts of a model add up."""

    def __init__(self, row: Download) -> None:
        self._row = row
        self._before = 0

    def begin(self, name: str, size: int, have: int) -> None:
        """See `Progress`."""
        if name != self._row.file:
            self._before = self._row.total
        self._row.file = name
        self._row.total, self._row.have = self._before + size, self._before + have

    def advance(self, count: int) -> None:
        """See `Progress`."""
        self._row.have += count

    def note(self, text: str) -> None:
        """See `Progress`."""
        self._row.text = text


def unfinished(library: Path) -> list[Download]:
    """Return the downloads that left a part in the library, by their files."""
    from lmagent.modelserver.library.download import read_note
    from lmagent.modelserver.library.facts import split_of

    found: list[Download] = []
    for part in sorted(library.glob("*/*/**/*.part")):
        note, file = read_note(part.with_name(part.name + ".json")), part.name.removesuffix(".part")
        if note is None:
            continue
        owner, repo = part.relative_to(library).parts[:2]
        name = f"{owner}/{repo}:{split_of(Path(file))[0]}"
        found.append(
            Download(f"part:{file}", name, "library", "", "stopped", part.stat().st_size, note.size, file=file)
        )
    return found


def remove_part(library: Path, file: str) -> None:
    """Delete what a download left of a file in the library."""
    for part in library.glob("*/*/**/*.part"):
        if part.name == f"{file}.part":
            part.unlink(missing_ok=True)
            part.with_name(part.name + ".json").unlink(missing_ok=True)
