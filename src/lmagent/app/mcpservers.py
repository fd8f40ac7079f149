"""MCP servers in the registry: their tools, the note that lists them, and their prompts as slash commands."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from lmagent.app.registry import Registry, SlashCommand
from lmagent.core.errors import ConfigError
from lmagent.core.events import Event, StepStarted
from lmagent.engine.session import Session
from lmagent.engine.toolbox import USE_TOOL
from lmagent.mcp.catalogue import Catalogue, ServerRow
from lmagent.mcp.listing import note
from lmagent.mcp.names import server_parts, tool_names
from lmagent.mcp.spec import McpPrompt, Part, Servers
from lmagent.mcp.tools import ServerTools
from lmagent.tools.sanitize import one_line

if TYPE_CHECKING:
    from lmagent.app.slash import SlashContext, SlashResult
    from lmagent.mcp.consent import UserModel

GROUP = "Of MCP servers"


DELAY = 0.3
"""Seconds after the start of the first step until the servers start: by then its request is out."""


def use_servers(registry: Registry, servers: Servers) -> None:
    """Register servers: one call for those of the configuration, of an editor, or of a test."""

    def taken() -> set[str]:
        ours = (name for tool in registry.tools.values() for name in (tool.name, *tool.aliases))
        return {USE_TOOL.name, "vision", *ours}

    def allowed(name: str) -> bool:
        wanted = registry.settings.tools_allow
        return not wanted or any(fnmatchcase(name.lower(), pattern.lower()) for pattern in wanted)

    def model() -> UserModel | None:
        from lmagent.mcp.consent import UserModel

        host = registry.host
        return UserModel(host.served.for_session(1, aside=True).stream, host.model_of) if host is not None else None

    catalogue = Catalogue(servers, taken, allowed)
    servers.changed = lambda _: catalogue.forget()
    tools = ServerTools(servers, catalogue, registry.settings.agent_data_dir, registry.workspace, model)
    own = (tools.describe(), tools.resource())
    for tool in own:
        registry.tool(tool)
    registry.hides.append(lambda _: {tool.name for tool in own})  # the note names them
    registry.mcp, registry.catalogue, registry.outside = servers, catalogue, tools
    states = servers.states()
    servers.secrets += registry.secrets
    registry.secrets = servers.secrets  # one list: renewed logins are added to it
    registry.tail_notes.append(lambda: note(catalogue.rows, registry.profile.name))
    parts = server_parts((state.spec.name for state in states), taken())
    registry.late_names += [f"{part.lower()}_" for part in parts.values()]
    registry.late_commands.append(lambda: _prompts(servers, catalogue))
    _start_later(registry, servers)


def _start_later(registry: Registry, servers: Servers) -> None:
    """Start the servers when the first session has begun its first turn: its request waits for none of them."""
    timers: list[asyncio.TimerHandle] = []

    def start() -> None:
        threading.Thread(target=servers.start, daemon=True).start()  # it imports what runs them

    def begin(event: Event) -> None:
        if isinstance(event, StepStarted) and not timers:
            timers.append(asyncio.get_running_loop().call_later(DELAY, start))

    def watch(session: Session) -> None:
        if not timers:
            session.listen(begin)

    async def close() -> None:
        for timer in timers:
            timer.cancel()
        await servers.aclose()

    registry.watchers.append(watch)
    registry.closers.append(close)


def _prompts(servers: Servers, catalogue: Catalogue) -> Iterator[SlashCommand]:
    for row in catalogue.rows:
        prompts = {prompt.name: prompt for prompt in (row.manifest.prompts if row.manifest is not None else ())}
        for real, name in sorted(prompt_commands(row).items()):
            yield _command(servers, row.name, name, prompts[real])


def prompt_commands(row: ServerRow) -> dict[str, str]:
    """Return the slash commands of a server's prompts, without the slash, by the prompts' names."""
    prompts = row.manifest.prompts if row.manifest is not None else ()
    names = tool_names(row.part, (prompt.name for prompt in prompts))
    return {real: f"{row.part}:{name.removeprefix(f'{row.part}_')}" for real, name in names.items()}


def _command(servers: Servers, server: str, name: str, prompt: McpPrompt) -> SlashCommand:
    usage = " ".join(f"{each}=…" if needed else f"[{each}=…]" for each, needed in prompt.arguments)

    async def run(context: SlashContext, line: str) -> SlashResult:
        from lmagent.app.slash import SlashResult

        given = _arguments(name, prompt, line)
        messages = await servers.prompt(server, prompt.name, given)
        said = [(role, _prompt_text(server, part, context.host.workspace)) for role, part in messages]
        text = "\n\n".join(f"{'' if role == 'user' else 'You said: '}{each}" for role, each in said if each.strip())
        if not text:
            raise ConfigError(f"/{name} gave no text", fix=f"look at the log: lmagent mcp logs {server}")
        return SlashResult(submit=text)

    about = one_line(prompt.description.strip().partition("\n")[0], 100) or f"a prompt of {one_line(server, 40)}"
    return SlashCommand(name, one_line(usage, 100), about, run, GROUP)


def _prompt_text(server: str, part: Part, workspace: Path) -> str:
    """Return a part of a prompt: the user asked for its text, and what that quotes is data from outside."""
    from lmagent.core.outside import defused
    from lmagent.mcp.results import outside, text_of

    text = text_of(server, (part,), workspace)
    return outside(server, text) if part.kind == "resource" else defused(text)


def _arguments(command: str, prompt: McpPrompt, line: str) -> dict[str, str]:
    """Return the arguments in a line: `name=value`, or the value alone if only one can be meant."""
    import shlex  # only a prompt needs it

    known = [name for name, _ in prompt.arguments]
    needed = [name for name, required in prompt.arguments if required]
    fix = f"/{command} {' '.join(f'{name}=…' for name in needed or known)}".rstrip()
    try:
        words = shlex.split(line)
    except ValueError:
        raise ConfigError(f"/{command}: a quote is left open in {one_line(line, 60)!r}", fix=fix) from None
    given: dict[str, str] = {}
    for word in words:
        name, mark, value = word.partition("=")
        if mark and name in known:
            given[name] = value
            continue
        if len(needed or known) == 1 and not given:
            return {(needed or known)[0]: line.strip()}
        raise ConfigError(f"/{command} has no argument {one_line(name, 60)!r}", fix=fix)
    if missing := [name for name in needed if name not in given]:
        raise ConfigError(f"/{command} needs {', '.join(missing)}", fix=fix)
    return given
