"""Doctor: asks the real server and looks at the real machine; every line says what was found, every fault its fix."""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator

from lmagent.app.battery import Battery, Finding
from lmagent.app.host import Host
from lmagent.app.traits import KeptTraits
from lmagent.app.wiring import HostOptions, open_host
from lmagent.core.errors import LmagentError, ProviderError, SandboxError


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
        reached = (await host.served.facts(host.agent.model)).reached
        yield Finding("server", "warning" if reached else "fault", failure.message, failure.fix)
        if not reached:
            return
        listed = ()
    else:
        yield Finding("server", "ok", f"{url} answers")
    wanted = host.agent.model
    if not listed:
        yield Finding("model", "warning", "the server lists no models", "load or download one in the server")
    elif wanted and wanted not in listed:
        names = ", ".join(listed[:8])
        yield Finding("model", "warning", f"{wanted!r} is not among the models listed", f"choose one of: {names}")
    else:
        yield Finding("model", "ok", wanted or f"the server's choice of {len(listed)}: {', '.join(listed[:4])}")
    battery = Battery(host.served, wanted, host.agent.window.tokens)
    async for finding in battery.run():
        yield finding
    model = wanted or (listed[0] if listed else "")
    file = KeptTraits(host.settings.agent_data_dir, url).profile(model, battery.measured)
    yield Finding("profile", "ok", f"of {model or 'the model'} is kept in {file}")


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
