"""`lmagent demo`: the agent at work, offline, with the bundled model."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import click
from msgspec.structs import replace

from lmagent.app.options import HostOptions
from lmagent.app.servers.ownserver import OwnServer
from lmagent.app.wiring import open_host
from lmagent.cli.shared import loaded_settings, say
from lmagent.core.errors import ConfigError, SandboxError
from lmagent.core.tool import ToolOutput
from lmagent.demo import model_path
from lmagent.engine.toolbox import Toolbox
from lmagent.headless.oneshot import TaskRequest, run_task
from lmagent.modelserver.engine.devices import ask_engine
from lmagent.modelserver.opening import DEMO

if TYPE_CHECKING:
    from lmagent.app.host import Host
    from lmagent.core.tool import ToolContext


CHORES = {
    "Write milk and bread to shopping.txt": "",
    "Append eggs to shopping.txt": "append a line",
    "Read shopping.txt": "",
    "Make a folder called recipes": "make a folder",
    "Run the command wc -w shopping.txt": "run a command",
    "How many files are there?": "count files",
    "What files are here?": "",
}
"""The steps without a task of the user's own; those that run a command have a name."""

BEYOND = "Write a poem about the sea"
"""The last request, which the model answers with its list of chores (exit code 3: blocked)."""

ABOUT = """\
This is lmagent at work in {folder}
The model is a toy of {size:.1f} MB: it does a handful of file chores, and says so
when you ask for more. The engine, the tools, the sandbox and the files are real.
"""

NEXT = """
That was a toy. Next steps:
  lmagent                     talk to a real model: it finds LM Studio, Ollama,
                              llama.cpp and vLLM, or offers a model to download
  lmagent models recommend    list the models that fit this machine
  lmagent doctor              check this machine for missing parts"""

UNCONFINED = "no sandbox here\n[exit code 126]"
"""The result of every command without a sandbox, in a form that the toy model has seen in its training."""


@click.command()
@click.argument("task", required=False)
@click.option("-w", "--workspace", type=click.Path(path_type=Path, file_okay=False, exists=True), help="Work in here.")
@click.option("--keep", is_flag=True, help="Keep the demo's folder, to look at its files.")
def demo(task: str | None, workspace: Path | None, keep: bool) -> int:
    """Show the agent at work with the tiny model that comes along: no server, no network."""
    engine = ask_engine()
    if engine.problem:
        raise ConfigError(engine.problem, fix=engine.fix)

    with ExitStack() as after:
        folder = workspace or Path(tempfile.mkdtemp(prefix="lmagent-demo-"))
        if workspace is None and not keep:
            after.callback(shutil.rmtree, folder, ignore_errors=True)
        code = anyio.run(_show, folder, task)
    if task is None:
        click.echo(NEXT)
    if keep and workspace is None:
        click.echo(f"The demo's files are kept: ls {folder}")
    return code


async def _show(folder: Path, task: str | None) -> int:
    """Run the chores, or the one task; returns the exit code of the first that failed."""
    click.echo(ABOUT.format(folder=folder, size=model_path().stat().st_size / 1e6))
    async with OwnServer(loaded_settings().settings.agent_data_dir / "models") as server:
        flags = {
            "llm_url": server.url,
            "llm_api_key": server.key,
            "llm_model": DEMO,
            "llm_temperature": 0.0,
            "permission_mode": "auto",
        }
        host = await open_host(HostOptions(folder, flags), say=say)
        try:
            if missing := await _missing_sandbox(host):
                click.echo(f"Left out, as no sandbox works here: {', '.join(filter(None, CHORES.values()))}")
                click.echo(click.wrap_text(missing, 80, "  → ", "    ") + "\n")
                _without_commands(host)
            if task is not None:
                return await _chore(host, task)
            codes = [await _chore(host, chore) for chore, command in CHORES.items() if not (missing and command)]
            await _chore(host, BEYOND)
        finally:
            await host.aclose()
    return next((code for code in codes if code), 0)


async def _missing_sandbox(host: Host) -> str:
    """Return how to get a sandbox; empty if commands run."""
    try:
        await host.registry.confined.get()
    except SandboxError as refusal:
        return refusal.typed
    return ""


def _without_commands(host: Host) -> None:
    """Let commands fail with a text that the toy model knows; it babbles about a refusal that it has never seen."""

    async def refuse(_: Any, __: ToolContext) -> ToolOutput:
        return ToolOutput(UNCONFINED, {"exit_code": 126})

    tools = host.registry.tools.values()
    host.toolbox = Toolbox(replace(tool, run=refuse) if tool.name == "shell" else tool for tool in tools)


async def _chore(host: Host, task: str) -> int:
    click.secho(f'$ lmagent "{task}"', bold=True)
    code = await run_task(host, TaskRequest(task))
    click.echo()
    return code
