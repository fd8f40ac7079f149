"""Buffers: `read` shows the text that the user sees, and no tool changes a file with unsaved changes.

The editor finds a file by its path, and a command in the sandbox could exchange that path for a link while the editor
reads or writes: its text could come from outside of the workspace, and a write through it could end there. So the user
sees the editor's text before the model does, and files are written by the tools' own, guarded access only. Calls that
change files do not wait for the user to save: the change that they save would count as the agent's, and be undone with
it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from msgspec import Struct
from msgspec.structs import replace

from lmagent.acp.wire import Closed, Editor, NotAnswered
from lmagent.core.errors import ToolError
from lmagent.core.tool import Question, Tool, ToolContext, ToolOutput
from lmagent.engine.toolbox import Toolbox
from lmagent.tools.beneath import Beneath
from lmagent.tools.diff import unified
from lmagent.tools.read import page_of
from lmagent.tools.sanitize import one_line
from lmagent.tools.textfile import decode

TOOLS = ("read", "write", "edit")

PATIENCE = 5.0  # seconds for the editor's answer; without it, the file counts as saved

LARGEST = 4 << 20  # bytes of a file that is compared: few buffers are larger


UNSAVED = "the text in the user's editor, with unsaved changes"


class _Unsaved(Struct, frozen=True):
    """A file whose text in the editor differs from the `saved` one on the disk."""

    name: str
    saved: str
    text: str


class Buffers:
    """The editor's buffers of the files of a workspace; `top` returns the editor's session that a session works for."""

    def __init__(self, editor: Editor, workspace: Path, top: Callable[[str], str]) -> None:
        self._editor = editor
        self._workspace = workspace
        self._top = top

    def watched(self, toolbox: Toolbox) -> Toolbox:
        """Return the toolbox with file tools that look at the buffers first."""
        return Toolbox(replace(tool, run=partial(self._run, tool)) if tool.name in TOOLS else tool for tool in toolbox)

    async def _run(self, tool: Tool, arguments: Any, ctx: ToolContext) -> ToolOutput:
        for path in tool.targets(arguments) if tool.targets is not None else ():
            unsaved = await self._unsaved(ctx, path)
            if unsaved is not None and tool.effect != "read":
                text = f"{one_line(path)} has unsaved changes in the user's editor; nothing was changed."
                raise ToolError(f"{text} Call read on it first: that asks the user to save it.", data=_data(path))
            if unsaved is not None:
                await _ask(ctx, path, unsaved)
                if await self._unsaved(ctx, path) is not None:
                    data = unsaved.text.encode("utf-8", "replace")
                    return page_of(arguments, unsaved.name, data, unsaved.text, UNSAVED)
        return await tool.run(arguments, ctx)

    async def _unsaved(self, ctx: ToolContext, path: str) -> _Unsaved | None:
        """Return the editor's text of a file if it differs. A file that is missing or no text has none."""
        try:
            with Beneath(self._workspace) as files:
                data, name = files.read_bytes(path, LARGEST + 1), files.locate(path)
        except ToolError:  # the tool itself reports it
            return None
        decoded = decode(data) if len(data) <= LARGEST else None
        if decoded is None:
            return None
        try:
            with anyio.fail_after(PATIENCE):
                buffer = await self._editor.read(self._top(ctx.session), str(self._workspace / name))
        except (Closed, NotAnswered, TimeoutError):  # it has no such buffer
            return None
        return None if _plain(buffer) == _plain(decoded[0]) else _Unsaved(name, decoded[0], buffer)


async def _ask(ctx: ToolContext, path: str, unsaved: _Unsaved) -> None:
    """Show the user what the agent would read. Raises ToolError if they refuse."""
    question = Question(
        id=f"unsaved:{path}",
        tool="editor",
        summary=f"{one_line(path)} has unsaved changes in your editor: let the agent read them?",
        preview=unified(unsaved.name, _plain(unsaved.saved), _plain(unsaved.text)),
        reason="save the file there before you allow, if the agent is to change it",
    )
    if not (await ctx.ask(question)).approved:
        text = f"{one_line(path)} has unsaved changes in the user's editor, so it was not read."
        raise ToolError(f"{text} Ask the user to save it.", data=_data(path))


def _data(path: str) -> dict[str, object]:
    return {"code": "unsaved", "path": path}


def _plain(text: str) -> str:
    """Return a text as editors hold it in a buffer: with line feeds, and with or without the last one."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").removesuffix("\n")
