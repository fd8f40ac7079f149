"""`lmagent demo`: the agent at work, offline, with the model that comes along."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

CHORES = (
    "Write milk and bread to shopping.txt",
    "Append eggs to shopping.txt",
    "Read shopping.txt",
    "Make a folder called recipes",
    "Run the command wc -w shopping.txt",
    "How many files are there?",
)
"""What it is asked without a task of one's own."""

BEYOND = "Write a poem about the sea"
"""What it is asked last, and says that it cannot do (exit code 3: blocked)."""

ABOUT = """\
This is lmagent at work in {folder}
The model is a toy of {size:.1f} MB that comes with the program: it knows a handful of file chores in plain words, and
says so when it is asked for more. Everything is real: the engine, the loop, the tools, the sandbox, the files.
"""

NEXT = """
That was a toy. For real work: a model server (LM Studio, Ollama, llama.cpp, vLLM), or a model of your own:
  lmagent models recommend     which models fit this machine
  lmagent models pull NAME     fetch one; lmagent then runs it by itself
"""


@click.command()
@click.argument("task", required=False)
@click.option("-w", "--workspace", type=click.Path(path_type=Path, file_okay=False, exists=True), help="Work in here.")
def demo(task: str | None, workspace: Path | None) -> int:
    """Show the agent at work with the tiny model that comes along: no server, no network."""
    from importlib.util import find_spec

    from lmagent.core.errors import ConfigError

    if find_spec("xllamacpp") is None:
        raise ConfigError("the built-in engine is not installed", fix="pip install 'lmagent[local]'")
    import anyio

    if workspace is not None:
        return anyio.run(_show, workspace, task)
    with tempfile.TemporaryDirectory(prefix="lmagent-demo-") as folder:
        return anyio.run(_show, Path(folder), task)


async def _show(folder: Path, task: str | None) -> int:
    """Run the chores, or the one task; the exit code of the first that went wrong."""
    from lmagent.app.ownserver import OwnServer
    from lmagent.app.wiring import HostOptions, load_settings, open_host
    from lmagent.demo import model_path
    from lmagent.modelserver.opening import DEMO

    click.echo(ABOUT.format(folder=folder, size=model_path().stat().st_size / 1e6))
    library = load_settings(HostOptions(None)).settings.agent_data_dir / "models"
    async with OwnServer(library) as server:
        flags = {
            "llm_url": server.url,
            "llm_api_key": server.key,
            "llm_model": DEMO,
            "llm_temperature": 0.0,
            "permission_mode": "auto",
        }
        host = await open_host(HostOptions(folder, flags), say=lambda text: click.echo(text, err=True))
        try:
            if task is not None:
                return await _chore(host, task)
            codes = [await _chore(host, chore) for chore in CHORES]
            await _chore(host, BEYOND)
        finally:
            await host.aclose()
    click.echo(NEXT)
    return next((code for code in codes if code), 0)


async def _chore(host: object, task: str) -> int:
    from lmagent.headless.oneshot import TaskRequest, run_task

    click.secho(f'$ lmagent "{task}"', bold=True)
    code = await run_task(host, TaskRequest(task))  # pyright: ignore[reportArgumentType]
    click.echo()
    return code
