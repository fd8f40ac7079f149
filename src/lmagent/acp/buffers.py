"""Buffers: a tool does not touch a file of which the editor has unsaved changes.

The editor's text is only compared with the file, never used. The editor finds a file by its path, and a command in the
sandbox could exchange that path for a link while the editor reads or writes: its text could come from outside of the
workspace, and a write through it could end there. So files are read and written by the tools' own, guarded access, and
the user saves the buffer before: `read` asks for that. Calls that change files do not wait for it, since the change
that the user saves would count as theirs, and be undone with them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from msgspec.structs import replace

from lmagent.acp.wire import Closed, Editor, NotAnswered
from lmagent.core.errors import ToolError
from lmagent.core.tool import Question, Tool, ToolContext, ToolOutput
from lmagent.engine.toolbox import Toolbox
from lmagent.tools.beneath import Beneath
from lmagent.tools.sanitize import one_line
from lmagent.tools.textfile import decode

TOOLS = ("read", "write", "edit")

PATIENCE = 5.0  # seconds for the editor's answer; without it, the file counts as saved

LARGEST = 4 << 20  # bytes of a file that is compared: few buffers are larger


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
            if await self._is_unsaved(ctx, path):
                await self._refuse_unless_saved(tool, ctx, path)
        return await tool.run(arguments, ctx)

    async def _refuse_unless_saved(self, tool: Tool, ctx: ToolContext, path: str) -> None:
        name = one_line(path)
        data: dict[str, object] = {"code": "unsaved", "path": path}
        if tool.effect != "read":
            text = f"{name} has unsaved changes in the user's editor; nothing was changed. Call read on it first."
            raise ToolError(text, data=data)
        question = Question(
            id=f"unsaved:{path}",
            tool="editor",
            summary=f"{name} has unsaved changes in your editor",
            reason="save the file there first, then allow: the agent works with the saved file",
        )
        answer = await ctx.ask(question)
        if not answer.approved or await self._is_unsaved(ctx, path):
            text = f"{name} has unsaved changes in the user's editor, so it was not read. Ask the user to save it."
            raise ToolError(text, data=data)

    async def _is_unsaved(self, ctx: ToolContext, path: str) -> bool:
        """Return whether the editor has another text than the file. A file that is missing or no text has none."""
        try:
            with Beneath(self._workspace) as files:
                data, name = files.read_bytes(path, LARGEST + 1), files.locate(path)
        except ToolError:  # the tool itself reports it
            return False
        decoded = decode(data) if len(data) <= LARGEST else None
        if decoded is None:
            return False
        try:
            with anyio.fail_after(PATIENCE):
                buffer = await self._editor.read(self._top(ctx.session), str(self._workspace / name))
        except (Closed, NotAnswered, TimeoutError):  # it has no such buffer
            return False
        return _plain(buffer) != _plain(decoded[0])


def _plain(text: str) -> str:
    """Return a text as editors hold it in a buffer: with line feeds, and with or without the last one."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").removesuffix("\n")
