"""Setup: the parts that are missing before the agent can work, and how the page can add them."""

from __future__ import annotations

import os
from typing import Literal

from anyio import to_thread
from msgspec import Struct

from lmagent.app.host import Host
from lmagent.app.servers.found import best_here, is_installed, running_server
from lmagent.config.installed import install_command
from lmagent.core.errors import ProviderError
from lmagent.core.model import split_name
from lmagent.gateway.http.route import Call, Route
from lmagent.providers.concealed import shown


class LookedAt(Struct, frozen=True):
    """A usual server of this machine.

    Attributes:
        provider: its name in `PROVIDER:NAME`.
        title: its usual name.
        answers: it runs.
        models: the models that it lists.
    """

    provider: str
    title: str
    url: str
    answers: bool = False
    models: tuple[str, ...] = ()


class ServerState(Struct, frozen=True):
    """The model server of new sessions.

    Attributes:
        state: it answers and has models; answers and has none; is silent.
        problem: why it is silent.
        fix: how to solve that.
        looked_at: other places where a server may be; empty if all is well.
    """

    state: Literal["ready", "empty", "silent"]
    endpoint: str
    problem: str = ""
    fix: str = ""
    looked_at: tuple[LookedAt, ...] = ()


class Suggested(Struct, frozen=True):
    """A model that fits this machine; `gb` is the size of the download."""

    name: str
    gb: float
    text: str


class OwnEngine(Struct, frozen=True):
    """lmagent's own model server.

    Attributes:
        installed: whether its engine is installed.
        install: the command that installs the engine.
        running: it runs in the background.
        model: the best model of its library for this machine; may be empty.
        suggested: the model to download.
    """

    installed: bool
    install: str
    running: bool
    model: str = ""
    suggested: Suggested | None = None


class SandboxState(Struct, frozen=True):
    """The sandbox of commands; if the name is empty, commands do not run, and `fix` says how to enable them."""

    name: str
    fix: str = ""


class Setup(Struct, frozen=True):
    """The environment of new sessions.

    Attributes:
        own: lmagent's own server; None if the server is ready.
        model: the model of new sessions; empty for the server's choice.
        models: how many the server lists.
        writable: files in the workspace can be created and changed.
        complete: nothing is missing or weaker than it could be; the page then hides the setup.
    """

    server: ServerState
    own: OwnEngine | None
    model: str
    models: int
    sandbox: SandboxState
    workspace: str
    writable: bool
    complete: bool


async def show_setup(call: Call) -> Setup:
    """Return the state of the setup, without loading a model or running the user's commands."""
    host = call.gateway.host
    server, count = await _server(host)
    own = None if server.state == "ready" else await to_thread.run_sync(_own, host)
    confined = host.registry.confined
    name, fix = (confined.expected, "") if confined.expected else await confined.outlook()  # `outlook` starts a program
    writable = await to_thread.run_sync(os.access, host.workspace, os.R_OK | os.W_OK | os.X_OK)
    chosen = bool(host.agent.model) or count <= 1
    complete = server.state == "ready" and chosen and name not in ("", "off", "landlock") and writable
    sandbox = SandboxState(name, fix)
    return Setup(server, own, host.agent.model, count, sandbox, str(host.workspace), writable, complete)


async def _server(host: Host) -> tuple[ServerState, int]:
    provider = split_name(host.agent.model)[0]
    endpoint = shown(host.settings.endpoint)
    try:
        endpoint = shown(host.served.at(f"{provider}:" if provider else "")[0].url)
        listed = await host.models(provider)
    except ProviderError as error:
        return ServerState("silent", endpoint, error.message, error.fix, await _looked_at(host)), 0
    if listed or host.replay is not None:
        return ServerState("ready", endpoint), len(listed)
    return ServerState("empty", endpoint, looked_at=await _looked_at(host)), 0


async def _looked_at(host: Host) -> tuple[LookedAt, ...]:
    from lmagent.app.servers.table import TITLES
    from lmagent.providers.discovery import discover, usual

    candidates = usual(os.environ)
    providers = {title: provider for provider, title in TITLES.items()}
    found = {server.base_url: server for server in await discover(host.transport, candidates)}
    return tuple(
        LookedAt(
            providers[candidate.name],
            found[candidate.base_url].name if candidate.base_url in found else candidate.name,
            candidate.base_url,
            candidate.base_url in found,
            found[candidate.base_url].models[:50] if candidate.base_url in found else (),
        )
        for candidate in candidates
    )


def _own(host: Host) -> OwnEngine:
    settings = host.settings
    running = running_server(settings) is not None
    if not is_installed():
        return OwnEngine(False, install_command("local"), running)
    from lmagent.modelserver.library.suggestions import recommended
    from lmagent.modelserver.pool.machine import machine_memory

    best, fitting = best_here(settings), recommended(machine_memory().total)
    suggested = Suggested(fitting[0].name, fitting[0].download, fitting[0].text) if fitting else None
    return OwnEngine(True, "", running, best.name if best is not None else "", suggested)


ROUTES = (Route("GET", "/api/setup", show_setup, "Parts that are missing before the agent can work", answer=Setup),)
