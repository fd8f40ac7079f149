"""Doctor: examines the real server and machine. Each line states a finding, and for a fault its fix."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, cast

from lmagent.app.host import Host
from lmagent.app.kept import KeptTraits
from lmagent.app.options import HostOptions
from lmagent.app.servers.battery import Battery, Finding
from lmagent.app.servers.found import endpoint_origin, stand_in
from lmagent.app.wiring import open_host
from lmagent.config.loader import Loaded
from lmagent.core.errors import LmagentError, ProviderError, SandboxError
from lmagent.providers.concealed import shown
from lmagent.providers.transport import is_silent
from lmagent.sandbox.outlook import docker_answers


async def examine(options: HostOptions, tell: Callable[[Finding], object] = lambda _: None) -> list[Finding]:
    """Return all findings, in the order of a manual check. `tell` gets each at once: the next may take minutes."""
    findings: list[Finding] = []
    async with aclosing(cast("Any", _findings(options))) as coming:
        async for finding in coming:
            findings.append(finding)
            tell(finding)
    return findings


async def _findings(options: HostOptions) -> AsyncIterator[Finding]:
    said: list[str] = []
    yield system(sys.platform)
    yield Finding("python", "ok", sys.version.split()[0])
    try:
        host = await open_host(options, say=said.append)
    except LmagentError as failure:
        yield Finding("configuration", "fault", failure.message, failure.typed)
        return
    try:
        for line in said:
            text, _, fix = line.removeprefix("lmagent: ").partition("\n  → ")
            yield Finding("configuration", "ok" if text == line else "warning", text, fix)
        yield Finding("workspace", "ok", f"{host.workspace} is writable")
        async with aclosing(cast("Any", _server(host))) as coming:
            async for finding in coming:
                yield finding
        yield await _sandbox(host)
    finally:
        await host.aclose()
    git = shutil.which("git")
    if git is None:
        yield Finding("git", "warning", "not installed; the git tools and the git guard use it", "install git")
    else:
        yield Finding("git", "ok", git)
    if await docker_answers(os.environ, host.workspace):  # the sandbox has its own finding
        yield Finding("docker", "ok", "its engine answers")


def system(platform: str) -> Finding:
    """Return whether lmagent was tested on a system; `platform` as in `sys.platform`."""
    if platform.startswith("linux"):
        return Finding("system", "ok", "Linux")
    name, fix = {
        "darwin": ("macOS", "commands in docker: SANDBOX=docker"),
        "win32": ("Windows", "use WSL2: there it is as on Linux"),
    }.get(platform, (platform, "use Linux"))
    return Finding("system", "warning", f"lmagent was never run on {name}", fix)


async def _sandbox(host: Host) -> Finding:
    confined = host.registry.confined
    try:
        await confined.get()
    except SandboxError as refusal:
        return Finding("sandbox", "fault", refusal.message, refusal.typed)
    report = confined.report
    assert report is not None
    broken = [f"{promise.name} NOT kept ({promise.detail})" for promise in report.promises if not promise.kept]
    if broken:
        return Finding("sandbox", "warning", f"{report.backend}: {'; '.join(broken)}")
    return Finding("sandbox", "ok", f"{report.backend} {report.version} passed the self-test".replace("  ", " "))


async def _unreached(loaded: Loaded, failure: ProviderError) -> Finding:
    """Return the finding about a silent server: the origin of its address, and a server that does answer."""
    if not loaded.settings.given_endpoint:
        return Finding("server", "fault", failure.message, failure.typed)
    other = await stand_in(loaded) if is_silent(loaded.settings.given_endpoint) else None
    if other is not None:
        return Finding("server", "fault", other.message, other.fix)
    return Finding("server", "fault", f"{failure.message}; its address is {endpoint_origin(loaded)}", failure.typed)


async def _server(host: Host) -> AsyncIterator[Finding]:
    url = host.settings.endpoint
    try:
        listed = await host.models()
    except ProviderError as failure:
        reached = (await host.served.facts(host.agent.model)).reached
        if not reached:
            yield await _unreached(host.config.start, failure)
            return
        yield Finding("server", "warning", failure.message, failure.typed)
        listed = ()
    else:
        yield Finding("server", "ok", f"{shown(url)} answers")
    wanted = host.agent.model
    facts = await host.served.facts(wanted)
    names = {*listed, *(model.id for model in facts.models)}
    if not listed:
        yield Finding("model", "warning", "the server lists no models", "load or download one in the server")
    elif wanted and names.isdisjoint((wanted, f"{wanted}:latest")):
        some = ", ".join(listed[:8])
        yield Finding("model", "warning", f"{wanted!r} is not among the models listed", f"choose one of: {some}")
    else:
        among = f"the server chooses among {len(listed)}: {', '.join(listed[:4])}"
        yield Finding("model", "ok", wanted or (facts.model.id if facts.model else among))
    battery = Battery(host.served, wanted, host.agent.window.tokens)
    async with aclosing(cast("Any", battery.run())) as coming:
        async for finding in coming:
            yield finding
    if battery.measured:
        model = wanted or (facts.model.id if facts.model else "") or (listed[0] if listed else "")
        traits = KeptTraits(host.settings.agent_data_dir, url)
        file = traits.profile(model, {**traits.of(model).profile, **battery.measured})
        yield Finding("profile", "ok", f"of {model or 'the model'} is kept in {file}")
