"""The slash command /mcp, and the servers' states, tools and logs as text for every surface.

All that comes from a server is shown on one line, with its hidden characters visible.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from lmagent.app.registry import Registry, SlashCommand
from lmagent.app.slash import FACTS, SlashContext, SlashResult
from lmagent.core.errors import ConfigError
from lmagent.core.plurals import plural
from lmagent.mcp.config import load_servers
from lmagent.mcp.spec import McpManifest, McpState, McpTool, Servers, ServerSpec, is_secret
from lmagent.providers.concealed import shown
from lmagent.tools.sanitize import one_line, printable

USAGE = "[NAME|restart NAME|logs NAME]"
VERBS = ("restart", "logs")
ADD = "lmagent mcp add NAME -- COMMAND, or lmagent mcp add NAME URL"
NO_SERVERS = f"no MCP server is configured\n  → {ADD}"
SWITCHED_OFF = "MCP servers are switched off: the setting enable_mcp, or --no-mcp"

LONGEST = 2_000  # characters of a description


def commands() -> Iterator[SlashCommand]:
    yield SlashCommand(
        "mcp", USAGE, "list the MCP servers, show one with its tools, restart it, or show its log", _mcp, FACTS
    )


async def _mcp(context: SlashContext, line: str) -> SlashResult:
    registry, name = context.host.registry, line.strip()
    if not name:
        return SlashResult(overview(registry))
    verb, _, rest = name.partition(" ")
    if verb not in VERBS or not rest.strip():
        servers, state = find_server(registry, name)
        return SlashResult(server_text(state, servers.manifest(name)), headed=True)
    name = rest.strip()
    servers, state = find_server(registry, name)
    if verb == "logs":
        return SlashResult("\n".join(log_lines(servers.log(name))) or f"{name} has written nothing to its log")
    if state.status in ("untrusted", "disabled"):
        raise ConfigError(f"{name} is not started: {state.reason or state.status}", fix=state.fix)
    await servers.restart(name)
    return SlashResult(state_line(find_server(registry, name)[1], servers.manifest(name)))


# --- finding ----------------------------------------------------------------------------------------------------------


def find_server(registry: Registry, name: str) -> tuple[Servers, McpState]:
    """Return the servers, and the state of the named one. Raises ConfigError with the names that exist."""
    servers = registry.mcp
    states = servers.states() if servers is not None else ()
    found = next((state for state in states if state.spec.name == name), None)
    if servers is None or found is None:
        names = ", ".join(state.spec.name for state in states)
        fix = f"the configured servers are {names}" if names else ADD
        raise ConfigError(f"there is no MCP server {name[:80]!r}", fix=fix)
    return servers, found


def problem_lines(registry: Registry) -> list[str]:
    """Return the entries and files of the configuration that cannot be used, and those that changed since the start."""
    loaded = load_servers(registry.workspace, registry.settings)
    configured = {spec.name: spec for spec in loaded.specs}
    states = registry.mcp.states() if registry.mcp is not None else ()
    running = {state.spec.name: state.spec for state in states if state.spec.scope != "client"}
    trusted = {state.spec.name for state in states if state.status == "untrusted"}.difference(loaded.untrusted)
    names = [name for name in sorted({*configured, *running}) if configured.get(name) != running.get(name)]
    names += sorted(trusted.difference(names))
    lines = [printable(str(problem)) for problem in loaded.problems]
    if names and registry.settings.enable_mcp:
        lines.append(f"the configuration of {', '.join(names)} has changed: start lmagent again to use it")
    return lines


def login_spec(registry: Registry, name: str) -> ServerSpec:
    """Return a server to which the user can log in. Raises ConfigError."""
    state = find_server(registry, name)[1]
    if state.status in ("untrusted", "disabled"):
        raise ConfigError(f"{name} cannot be used: {state.reason or state.status}", fix=state.fix)
    if not state.spec.url:
        raise ConfigError(f"{name} is a program; only servers at an address have a login", fix="give it a key with env")
    if any(header.lower() == "authorization" for header in state.spec.headers):
        fix = "delete the header to log in instead"
        raise ConfigError(f"{name} has an Authorization header, which is used instead of a login", fix=fix)
    return state.spec


# --- text -------------------------------------------------------------------------------------------------------------


def overview(registry: Registry) -> str:
    """Return the servers, each with its state and what it may do, and the problems of the configuration."""
    servers = registry.mcp
    lines = [state_line(state, servers.manifest(state.spec.name)) for state in servers.states()] if servers else []
    if not registry.settings.enable_mcp:
        lines = [SWITCHED_OFF]
    return "\n".join((*(lines or [NO_SERVERS]), *problem_lines(registry)))


def state_line(state: McpState, manifest: McpManifest | None) -> str:
    """Return the name, the state, the offer and the confinement of a server; and why it is not ready, with the fix."""
    again = f", started again {plural(state.restarts, 'time')}" if state.restarts else ""
    offer = f", {offered(manifest)}" if manifest is not None else ""
    lines = [f"{state.spec.name}: {state.status}{again}{offer}; may do: {state.confinement or 'nothing yet'}"]
    if state.reason:
        lines.append(f"  {one_line(state.reason, 500)}")
    if state.fix:
        lines.append(f"  → {one_line(state.fix, 500)}")
    return "\n".join(lines)


def offered(manifest: McpManifest) -> str:
    """Return what a server offers, in numbers."""
    counts = [plural(len(manifest.tools), "tool")]
    counts += [plural(len(manifest.resources), "resource")] if manifest.resources else []
    counts += [plural(len(manifest.prompts), "prompt")] if manifest.prompts else []
    return ", ".join(counts)


def target(state: McpState) -> str:
    """Return the command or the address of a server, without passwords and values of variables named like a key."""
    text = shown(state.spec.url) if state.spec.url else shlex.join(state.spec.command)
    for name, value in os.environ.items():
        if is_secret(name) and len(value) >= 8:
            text = text.replace(value, f"${{{name}}}")
    return printable(text)


def facts_of(state: McpState) -> dict[str, Any]:
    """Return a server's state for programs."""
    spec = state.spec
    facts = {"name": spec.name, "status": state.status, "reason": state.reason, "fix": state.fix}
    facts |= {"restarts": state.restarts, "confinement": state.confinement, "target": target(state)}
    return {**facts, "scope": spec.scope, "file": str(spec.file or "")}


def server_text(state: McpState, manifest: McpManifest | None) -> str:
    """Return everything about a server; lines that end with a colon are headings."""
    facts = [state_line(state, manifest), f"  {'address' if state.spec.url else 'command'}: {target(state)}"]
    if state.spec.file is not None:
        facts.append(f"  configured in {state.spec.file}")
    if manifest is None:
        return "\n".join((*facts, "  its tools are known once it has been started"))
    if manifest.server:
        facts.append(f"  it calls itself {one_line(manifest.server)}")
    return "\n".join((*facts, *manifest_lines(manifest)))


def manifest_lines(manifest: McpManifest) -> list[str]:
    """Return the tools, resources and prompts of a server under their headings."""
    prompts = (
        (
            f"{each.name}({', '.join(name if needed else f'{name}?' for name, needed in each.arguments)})",
            each.description,
        )
        for each in manifest.prompts
    )
    resources = ((each.uri, each.description or each.name) for each in manifest.resources)
    return [
        *_listed("Tools:", ((f"{tool.name}({parameters(tool)})", _about(tool)) for tool in manifest.tools)),
        *_listed("Resources:", resources),
        *_listed("Prompts:", prompts),
    ]


def _listed(heading: str, rows: Iterable[tuple[str, str]]) -> list[str]:
    lines: list[str] = []
    for name, about in rows:
        lines.append(f"  {one_line(name, 300)}")
        lines += [f"      {one_line(about.strip(), LONGEST)}"] if about.strip() else []
    return [heading, *lines] if lines else []


def _about(tool: McpTool) -> str:
    """Return a tool's description, or why the model cannot use the tool."""
    return f"not offered to the model: {tool.fault}" if tool.fault else tool.description


def parameters(tool: McpTool) -> str:
    """Return the parameters of a tool as `name: type`, with ? for one that may be left out."""
    found, required = tool.schema.get("properties"), tool.schema.get("required")
    if not isinstance(found, dict):
        return ""
    needed = cast("list[Any]", required) if isinstance(required, list) else []
    properties = cast("dict[str, Any]", found)
    return ", ".join(f"{name}{'' if name in needed else '?'}{_kind(raw)}" for name, raw in properties.items())


def _kind(raw: Any) -> str:
    """Return `: type` of a property, or nothing for a schema without a simple one."""
    kind = cast("dict[str, Any]", raw).get("type") if isinstance(raw, dict) else None
    return f": {kind}" if isinstance(kind, str) else ""


def log_lines(lines: Sequence[str]) -> list[str]:
    return [printable(line) for line in lines]
