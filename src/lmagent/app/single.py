"""One tool, called by a person: the same resolution, decoding and path safety as in a session, and no questions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from lmagent.app.clock import SystemClock
from lmagent.app.confined import Confined
from lmagent.app.registry import Registry
from lmagent.app.wiring import HostOptions, features, load_settings
from lmagent.config.workspace import open_workspace
from lmagent.core.errors import StoreError, ToolError
from lmagent.core.events import DurableEvent
from lmagent.core.messages import ToolCall
from lmagent.core.tool import FileMark, ToolContext
from lmagent.engine.session import Session
from lmagent.engine.toolbox import Toolbox


class CallResult(Struct, frozen=True):
    """What came of it."""

    ok: bool
    text: str


class NoRecords:
    """There is no session behind a single call."""

    def get_blob(self, session: str, handle: str) -> bytes:
        """Always an error."""
        raise StoreError("artifacts belong to a session; a single call has none")

    def events(self, session: str) -> Iterable[DurableEvent]:
        """Nothing."""
        return ()

    def session(self, session: str) -> Session:
        """Always an error."""
        raise ToolError("this tool works on a session's own record; a single call has none")


class AllSeen(Mapping[str, FileMark]):
    """Every existing file counts as read just now: the person who calls the tool has looked at it."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace

    def __getitem__(self, path: str) -> FileMark:
        """The mark of a file as it is now."""
        target = self._workspace / path
        if not target.is_file():
            raise KeyError(path)
        import hashlib

        return FileMark(hashlib.sha256(target.read_bytes()).hexdigest(), False)

    def __iter__(self) -> Iterator[str]:
        """Nothing to list: marks are made when they are asked for."""
        return iter(())

    def __len__(self) -> int:
        """See `__iter__`."""
        return 0


def open_toolbox(workspace: Path | None) -> Toolbox:
    """The tools for a workspace."""
    return Toolbox(_registry(workspace).tools.values())


def _registry(workspace: Path | None) -> Registry:
    loaded = load_settings(HostOptions(workspace))
    path = open_workspace(loaded.workspace).path
    settings = loaded.settings
    registry = Registry(path, SystemClock(), NoRecords(), Confined(path, settings), settings=settings)
    features(registry)
    return registry


async def call_tool(workspace: Path | None, name: str, arguments: str) -> CallResult:
    """Run one tool.

    Args:
        workspace: the folder; the configured one when None.
        name: the tool, or an alias of it.
        arguments: its arguments as JSON text.
    """
    registry = _registry(workspace)
    path = registry.workspace
    context = ToolContext("none", "call", path, AllSeen(path), lambda _: None)
    try:
        invocation = Toolbox(registry.tools.values()).resolve(ToolCall("call", name, arguments))
        output = await invocation.tool.run(invocation.arguments, context)
    except ToolError as refusal:
        return CallResult(False, refusal.message)
    finally:
        await registry.aclose()
    if output.file is not None:
        output.file.unlink()
    return CallResult(True, output.content)
