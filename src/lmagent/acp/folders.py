"""Folders: the workspaces in which the editor has sessions, each with a host and a runner of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import anyio.abc
from msgspec import Struct
from msgspec.structs import replace

from lmagent.acp.buffers import Buffers
from lmagent.acp.wire import Editor
from lmagent.app.host import Host
from lmagent.app.options import HostOptions
from lmagent.app.runner import Runner
from lmagent.app.wiring import open_host
from lmagent.core.errors import LmagentError, WorkspaceError
from lmagent.engine.session import Session
from lmagent.mcp.spec import ServerSpec

SURFACE = "acp"  # the name of this surface in the log

Say = Callable[[str], None]


class Folder(Struct, frozen=True):
    """A workspace at work."""

    host: Host
    runner: Runner
    servers: tuple[ServerSpec, ...]  # that the editor handed over with the first session


class Folders:
    """The workspaces of this process.

    Attributes:
        editor_reads: the editor offers the text of its buffers.
        opened: called with each session that is opened.
    """

    def __init__(self, options: HostOptions, editor: Editor, tasks: anyio.abc.TaskGroup, say: Say) -> None:
        self.editor_reads = False
        self.opened: Callable[[Session], None] = lambda session: None
        self._options = options
        self._editor = editor
        self._tasks = tasks
        self._say = say
        self._known: dict[Path, Folder] = {}
        self._opening = anyio.Lock()
        self._end = anyio.Event()
        self._ended: list[anyio.Event] = []

    async def open(self, cwd: str, servers: tuple[ServerSpec, ...] = ()) -> Folder:
        """Return the workspace of a folder. Raise LmagentError if it cannot be worked in.

        Args:
            servers: the editor's MCP servers; those of the first session serve the folder until the process ends.
        """
        path = _checked(cwd)
        async with self._opening:
            if path not in self._known:
                self._known[path] = await self._tasks.start(self._serve, path, servers)
            return self._known[path]

    async def end(self) -> None:
        """End all sessions; turns that run stay open for the next process."""
        self._end.set()
        for ended in [*self._ended]:
            await ended.wait()

    async def _serve(
        self, path: Path, servers: tuple[ServerSpec, ...], *, task_status: anyio.abc.TaskStatus[Folder]
    ) -> None:
        options = replace(self._options, workspace=path, attended=True, mcp_servers=servers)
        host = await open_host(options, say=self._say)
        ended = anyio.Event()
        self._ended.append(ended)
        try:
            if self.editor_reads:
                buffers = Buffers(self._editor, host.workspace, partial(_top, host))
                host.toolbox = buffers.watched(host.toolbox)
            host.opened = lambda session: self.opened(session)
            runner = Runner(host, self._say, surface=SURFACE, attended=True)
            async with runner.running():
                task_status.started(Folder(host, runner, servers))
                await self._end.wait()
        except LmagentError as failure:
            if host.workspace not in self._known:
                raise
            self._say(f"lmagent: {failure}")
        finally:
            with anyio.CancelScope(shield=True):
                await host.aclose()
            ended.set()


def _checked(cwd: str) -> Path:
    """Return the folder that an editor names, with links resolved.

    An editor without an open project names the home folder, or the root: all of it would be the workspace.
    """
    if not os.path.isabs(cwd):
        raise WorkspaceError(f"the folder of a session must be an absolute path, not {cwd[:200]!r}")
    try:
        cwd.encode()
        path = Path(os.path.realpath(cwd))
    except ValueError:  # a NUL, or half of a character
        raise WorkspaceError(f"{cwd[:200]!r} cannot be the path of a folder") from None
    if path in (Path(os.path.realpath(Path.home())), Path(path.anchor)):
        raise WorkspaceError(
            f"the editor names {path} as the workspace, and the agent could change everything in it",
            fix="open a project's folder in the editor",
        )
    if not os.path.isdir(path):  # it may be gone since its first session
        fix = "open another folder in the editor"
        raise WorkspaceError(f"the folder {path} does not exist, or is no folder that can be reached", fix=fix)
    return path


def _top(host: Host, session: str) -> str:
    """Return the session of the user that a session works for."""
    here = host.sessions.get(session)
    while here is not None and here.above is not None:
        here = here.above
    return here.state.session if here is not None else session
