"""Doctor: asks the real server and looks at the real machine; every line says what was found, every fault its fix."""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator
from typing import Literal

from msgspec import Struct

from lmagent.app.host import Host
from lmagent.app.wiring import HostOptions, open_host
from lmagent.core.errors import LmagentError, ProviderError, SandboxError
from lmagent.core.messages import user
from lmagent.core.model import ModelRequest, Reply, ToolSpec
from lmagent.providers.served import MATTERS

PROBE = ToolSpec(
    "report_word",
    "Report the word that the user asked for.",
    {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
)


class Finding(Struct, frozen=True):
    """One line of the report."""

    name: str
    state: Literal["ok", "warning", "fault"]
    text: str
    fix: str = ""


async def examine(options: HostOptions) -> list[Finding]:
    """All findings, in the order in which a person would check."""
    said: list[str] = []
    findings = [Finding("python", "ok", sys.version.split()[0])]
    try:
        host = await open_host(options, say=said.append)
    except LmagentError as failure:
        return [*findings, Finding("configuration", "fault", failure.message, failure.fix)]
    findings += [Finding("configuration", "warning", line) for line in said]
    findings.append(Finding("workspace", "ok", f"{host.workspace} is writable"))
    try:
        findings += [finding async for finding in _server(host)]
        findings.append(await _sandbox(host))
    finally:
        await host.aclose()
    return [*findings, *_programs()]


async def _sandbox(host: Host) -> Finding:
    confined = host.registry.confined
    try:
        await confined.get()
    except SandboxError as refusal:
        return Finding("sandbox", "fault", refusal.message, refusal.fix)
    report = confined.report
    assert report is not None
    broken = [promise for promise in report.promises if not promise.kept]
    text = f"{report.backend} {report.version} withstands the attack on it".replace("  ", " ")
    if broken:
        text = f"{report.backend}: " + "; ".join(f"{promise.name} NOT kept ({promise.detail})" for promise in broken)
    return Finding("sandbox", "warning" if broken else "ok", text)


async def _server(host: Host) -> AsyncIterator[Finding]:
    url = host.settings.endpoint
    try:
        listed = await host.models()
    except ProviderError as failure:
        yield Finding("server", "fault", failure.message, failure.fix)
        return
    yield Finding("server", "ok", f"{url} answers")
    wanted = host.agent.model
    if not listed:
        yield Finding("model", "warning", "the server lists no models", "load or download one in the server")
    elif wanted and wanted not in listed:
        names = ", ".join(listed[:8])
        yield Finding("model", "warning", f"{wanted!r} is not among the models listed", f"choose one of: {names}")
    else:
        yield Finding("model", "ok", wanted or f"the server's choice of {len(listed)}: {', '.join(listed[:4])}")
    window = await host.served.window(wanted or (listed[0] if listed else ""), MATTERS)
    yield _window(window, host)
    yield await _calling(host)


def _window(window: int | None, host: Host) -> Finding:
    if window is None:
        fix = "set LMAGENT_CONTEXT_WINDOW to the window that the model is loaded with"
        return Finding("window", "warning", f"the server does not say; {host.agent.window.tokens:,} is assumed", fix)
    if window < 8192:
        fix = "load the model with a larger context: 16,384 or more is comfortable"
        return Finding("window", "warning", f"{window:,} tokens are served, which is small", fix)
    return Finding("window", "ok", f"{window:,} tokens are served")


async def _calling(host: Host) -> Finding:
    """Ask for one real tool call."""
    request = ModelRequest(
        host.agent.model,
        "You call the tool you are asked to call.",
        (PROBE,),
        (user('Call report_word with the word "hello".'),),
        temperature=0.0,
        max_tokens=400,
    )
    reply: Reply | None = None
    try:
        async for event in host.served.stream(request):
            if isinstance(event, Reply):
                reply = event
    except ProviderError as failure:
        return Finding("tool calls", "fault", failure.message, failure.fix)
    if reply is not None and any(call.name == PROBE.name for call in reply.message.tool_calls):
        usage = "estimated by us" if reply.usage.estimated else "reported"
        return Finding(
            "tool calls", "ok", f"the model called a tool in {reply.total_s:.1f} s; token counts are {usage}"
        )
    fix = "use an instruct model that is trained for tool calls, and a server that parses them for it"
    return Finding("tool calls", "warning", "asked for a tool call, the model answered in text", fix)


def _programs() -> list[Finding]:
    """Programs on this machine that a person or a later command may want."""
    uses = {
        "git": "the git tools and the git guard use it",
        "rg": "nothing needs it",
        "node": "nothing needs it",
        "bwrap": "it is the sandbox on Linux",
        "docker": "it is the other sandbox; nothing needs both",
    }
    found = [(name, shutil.which(name), use) for name, use in uses.items()]
    return [Finding(name, "ok" if path else "warning", path or f"not installed; {use}") for name, path, use in found]
