"""Agent: the protocol's requests, each one a command to a session or a look at the sessions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import anyio
import anyio.abc
import anyio.to_thread

from lmagent import __version__
from lmagent.acp.content import Object
from lmagent.acp.conversation import Conversation
from lmagent.acp.folders import Folder, Folders
from lmagent.acp.modes import mode_state
from lmagent.acp.servers import specs_of
from lmagent.acp.wire import Editor, answering
from lmagent.app.open_session import OpenSession
from lmagent.app.options import HostOptions
from lmagent.core.errors import ConfigError, SessionNotFound
from lmagent.engine.session import Session
from lmagent.mcp.spec import ServerSpec
from lmagent.tools.sanitize import one_line

VERSION = 1  # of the protocol

PAGE = 50  # sessions of a list

CUT_OFF = (
    "The program ended in the middle of the last turn. Type what to do next here, or close the session and continue "
    "the turn in a terminal: lmagent --resume {}"
)


class EditorAgent:
    """The agent for one editor: the library calls these methods by their names, with the fields of the requests."""

    def __init__(self, options: HostOptions, tasks: anyio.abc.TaskGroup, say: Callable[[str], None]) -> None:
        self.editor = Editor(self)
        self.folders = Folders(options, self.editor, tasks, say)
        self.folders.opened = self._opened
        self._tasks = tasks
        self._conversations: dict[str, Conversation] = {}
        self._changing = anyio.Lock()  # editors may send two requests for one session at once

    # --- the connection ---------------------------------------------------------------------------------------------

    @answering
    async def initialize(self, protocol_version: int, client_capabilities: Any = None, **_: Any) -> Object:
        fs = getattr(client_capabilities, "fs", None)
        self.folders.editor_reads = bool(fs is not None and fs.read_text_file)
        return {
            "protocolVersion": VERSION,
            "agentInfo": {"name": "lmagent", "title": "lmagent", "version": __version__},
            "authMethods": [],
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": False},
                "sessionCapabilities": {"list": {}, "resume": {}, "close": {}},
            },
        }

    # --- sessions ---------------------------------------------------------------------------------------------------

    @answering
    async def new_session(self, cwd: str, mcp_servers: Any = None, **_: Any) -> Object:
        servers = specs_of(mcp_servers or ())
        folder = await self.folders.open(cwd, servers)
        known = await folder.runner.begin()
        conversation = await self._begun(folder, known, show=False)
        self._tasks.start_soon(conversation.introduce, _unused(servers, folder))
        return {"sessionId": known.id, **_choices(conversation)}

    @answering
    async def load_session(self, cwd: str, session_id: str, mcp_servers: Any = None, **_: Any) -> Object:
        return await self._open(cwd, session_id, mcp_servers, show=True)

    @answering
    async def resume_session(self, cwd: str, session_id: str, mcp_servers: Any = None, **_: Any) -> Object:
        return await self._open(cwd, session_id, mcp_servers, show=False)

    async def _open(self, cwd: str, session: str, mcp_servers: Any, *, show: bool) -> Object:
        servers = specs_of(mcp_servers or ())
        folder = await self.folders.open(cwd, servers)
        async with self._changing:
            before = self._conversations.get(session)
            if before is not None:
                before.require_idle()
            folder.runner.require(session)
            known = await folder.runner.open(session)
            if before is not None:
                before.leave()
            conversation = await self._begun(folder, known, show=show)
        cut = CUT_OFF.format(session) if known.session.state.turn_open else ""
        self._tasks.start_soon(conversation.introduce, cut, _unused(servers, folder))
        return _choices(conversation)

    async def _begun(self, folder: Folder, known: OpenSession, *, show: bool) -> Conversation:
        conversation = self._conversations[known.id] = Conversation(folder, known, self.editor, self._tasks)
        await conversation.replay(show=show)
        await conversation.look_up_models()
        self._tasks.start_soon(conversation.pump)
        return conversation

    def _opened(self, session: Session) -> None:
        if (conversation := self._conversations.get(session.state.session)) is not None:
            conversation.attach(session)

    @answering
    async def list_sessions(self, cwd: str | None = None, cursor: str | None = None, **_: Any) -> Object:
        if cwd is None:
            raise ConfigError("sessions are listed for a folder", fix="send its path as cwd")
        folder = await self.folders.open(cwd)
        host = folder.host

        def rows() -> list[Object]:
            from lmagent.app.records import session_rows  # opens the index

            found = session_rows(host.store, 10_000, "", shelf="open")
            return [_row(row, str(host.workspace)) for row in found if not row.child]

        sessions = await anyio.to_thread.run_sync(rows)
        start = int(cursor) if cursor is not None and cursor.isdecimal() and len(cursor) < 9 else 0
        page: Object = {"sessions": sessions[start : start + PAGE]}
        return page | ({"nextCursor": str(start + PAGE)} if start + PAGE < len(sessions) else {})

    @answering
    async def close_session(self, session_id: str, **_: Any) -> Object:
        async with self._changing:
            conversation = self._known(session_id)
            await conversation.cancel()
            await conversation.folder.runner.release(session_id)
            conversation.leave()
            del self._conversations[session_id]
        return {}

    # --- turns and choices ------------------------------------------------------------------------------------------

    @answering
    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> Object:
        return {"stopReason": await self._known(session_id).prompt(prompt)}

    @answering
    async def cancel(self, session_id: str, **_: Any) -> None:
        if session_id in self._conversations:  # a notification has no answer
            await self._conversations[session_id].cancel()

    @answering
    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> Object:
        await self._known(session_id).choose("mode", mode_id)
        return {}

    @answering
    async def set_config_option(self, session_id: str, config_id: str, value: str | bool, **_: Any) -> Object:
        conversation = self._known(session_id)
        await conversation.choose(config_id, str(value))
        return {"configOptions": conversation.options()}

    def _known(self, session: str) -> Conversation:
        if session not in self._conversations:
            fix = "begin one with session/new, or load it with session/load"
            raise SessionNotFound(f"the session {one_line(session, 80)} is not open here", fix=fix)
        return self._conversations[session]


def _choices(conversation: Conversation) -> Object:
    return {"modes": mode_state(conversation.view), "configOptions": conversation.options()}


def _row(row: Any, workspace: str) -> Object:
    changed = datetime.fromtimestamp(row.updated, UTC).isoformat(timespec="seconds")
    found = {"sessionId": row.id, "cwd": workspace, "updatedAt": changed}
    return found | ({"title": one_line(row.title)} if row.title else {})


def _unused(servers: Sequence[ServerSpec], folder: Folder) -> str:
    """Return a notice about MCP servers that came after the folder was opened; empty for none."""
    names = ", ".join(one_line(spec.name, 60) for spec in servers if spec not in folder.servers)
    return f"These MCP servers are used once the editor has started lmagent again: {names}." if names else ""
