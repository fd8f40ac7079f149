"""Banner: the first lines of the conversation.

Facts that must be asked for are printed as they arrive; nothing waits.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import anyio

from lmagent import __version__
from lmagent.app.host import Host
from lmagent.core.errors import LmagentError
from lmagent.providers.concealed import shown
from lmagent.providers.urls import authority, server_root
from lmagent.terminal.style import fitted
from lmagent.tools.sanitize import one_line

Say = Callable[[str, str], None]


def begin(host: Host, say: Say) -> None:
    say(fitted(f"lmagent {__version__} · {{}}", _short(str(host.workspace)), _width()), "user")
    say("Type a task. /help lists the commands, Ctrl+C twice leaves.", "quiet")


async def finish(host: Host, say: Say) -> None:
    """Ask the server and the machine, and print a line about each."""
    async with anyio.create_task_group() as group:
        group.start_soon(_sandbox, host, say)
        try:
            text, kind = await _server(host)
        except LmagentError as failure:
            text, kind = failure.message, "warning"
        say(one_line(text, 300), kind)


async def _server(host: Host) -> tuple[str, str]:
    if host.replay is not None:
        return "the model's side is played from a cassette", "quiet"
    wanted = host.agent.model
    facts = await host.served.facts(wanted)
    url = shown(server_root(host.settings.endpoint))
    name = f"{facts.label} at {authority(url)}" if facts.label else url
    if not facts.reached:
        return f"{name} does not answer: lmagent doctor says what does", "warning"
    window = host.settings.context_window or await host.served.window(wanted)
    tokens = f"{window:,} tokens" if window else f"window unknown, {host.settings.window(None).tokens:,} tokens assumed"
    model = wanted or (facts.model.id if facts.model is not None else "")
    if not model:
        count = len(facts.models)
        model = f"none of {count} models loaded, /model picks one" if count else "no model loaded"
    return fitted(f"{name} answers · {{}} · {tokens}", model, _width()), "quiet"


async def _sandbox(host: Host, say: Say) -> None:
    mode = f"mode {host.settings.permission_mode}"
    if host.settings.sandbox == "off":
        say(f"{mode} · SANDBOX IS OFF: commands run unconfined, with everything you may do", "warning")
        return
    expected, missing = await host.registry.confined.outlook()
    if expected:
        say(f"{mode} · sandbox {expected}", "quiet")
    else:
        say(f"{mode} · no sandbox, so no command runs: {missing}", "warning")


def _width() -> int:
    return shutil.get_terminal_size().columns


def _short(path: str) -> str:
    home = os.path.expanduser("~")
    return f"~{path[len(home) :]}" if path.startswith(f"{home}{os.sep}") else path
