"""ToolService: answers clients' requests in our own terms: the list of tools, calls, tasks. No SDK here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from lmagent.app.runner import Runner
from lmagent.core.errors import ConfigError, LmagentError, ToolError
from lmagent.core.tool import Tool
from lmagent.engine.toolbox import decode
from lmagent.mcpserver import delegate
from lmagent.mcpserver.calls import Calls
from lmagent.mcpserver.watch import AnswerPlaces, Client

FILES = ("read", "write", "edit", "glob", "grep", "ls", "mkdir")
COMMANDS = ("shell", "jobs", "python", "git_status", "git_diff", "git_add", "git_commit", "git_branch")
OFFERED = (*FILES, *COMMANDS, "read_artifact")
"""Names of our tools that need no conversation. A plugin's tool, or another MCP server's, is not passed on."""

ALL = (*OFFERED, delegate.DELEGATE)

FACTS = ("exit_code", "path", "sha256", "changed", "truncated", "code")
"""Facts of a result that a client gets beside its text."""


class ServedAnswer(Struct, frozen=True):
    """The result of a request: text, facts beside it, and for a task its outcome as an object."""

    text: str
    is_error: bool = False
    facts: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    outcome: dict[str, Any] | None = None


class ToolService:
    """The tools for all clients; `names` restricts them. `elsewhere`: another surface can answer approvals too."""

    def __init__(self, runner: Runner, names: tuple[str, ...] = (), *, elsewhere: bool) -> None:
        self.runner = runner
        self._names = names
        self._places = AnswerPlaces(elsewhere, runner.host.settings.approval_timeout)

    @property
    def instructions(self) -> str:
        return (
            f"Tools of lmagent in the folder {self.runner.host.workspace}; paths are relative to it. "
            "Commands run in a sandbox. A change can be undone by the user, and may need their approval."
        )

    def tools(self) -> tuple[Tool, ...]:
        """Return the tools with the given names, or all; those that the settings switch off are left out."""
        wanted = [name for name in ALL if not self._names or name in self._names]
        found = (delegate.TOOL if name == delegate.DELEGATE else self.runner.host.toolbox.get(name) for name in wanted)
        return tuple(tool for tool, name in zip(found, wanted, strict=True) if tool is not None and tool.name == name)

    def calls(self, client_name: str) -> Calls:
        """Return the calls of a client that has connected."""
        return Calls(self.runner, client_name, self._places)

    async def answer(
        self, name: str, arguments: Mapping[str, Any], calls: Calls, client: Client
    ) -> ServedAnswer | None:
        """Carry out a request for a tool; None if no tool has this name."""
        tool = next((tool for tool in self.tools() if tool.name == name), None)
        if tool is None:
            return None
        try:
            if tool is delegate.TOOL:
                return await self._delegate(arguments, calls, client)
            finished = await calls.call(name, arguments, client)
        except ToolError as refusal:
            return ServedAnswer(refusal.message, is_error=True)
        except LmagentError as failure:
            return ServedAnswer(str(failure), is_error=True)
        facts = {key: finished.data[key] for key in FACTS if key in finished.data}
        facts |= {"session": calls.session, "artifact": finished.artifact} if finished.artifact else {}
        return ServedAnswer(finished.content, finished.status != "ok", facts)

    async def _delegate(self, arguments: Mapping[str, Any], calls: Calls, client: Client) -> ServedAnswer:
        task: delegate.DelegatedTask = decode(delegate.TOOL, dict(arguments))
        outcome = await delegate.run_task(self.runner, task, client, self._places, calls.tasks)
        failed = outcome.outcome in ("error", "open")
        return ServedAnswer(delegate.shown(outcome), failed, outcome=msgspec.to_builtins(outcome))


def chosen(text: str) -> tuple[str, ...]:
    """Return the names in a list such as `read,grep`. Raise ConfigError for an unknown name, or if it has none."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if unknown := [name for name in names if name not in ALL]:
        raise ConfigError(f"no tool named {unknown[0][:80]!r} is offered", fix=f"choose among {', '.join(ALL)}")
    if not names:  # an empty variable must not offer everything
        raise ConfigError("--tools names no tool", fix=f"choose among {', '.join(ALL)}, or leave it out to offer all")
    return names
