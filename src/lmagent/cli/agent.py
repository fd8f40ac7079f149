"""`lmagent agent`: make, test, pack and serve a folder that is an agent."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, get_args

import anyio
import click

from lmagent.cli import shared
from lmagent.core.errors import ConfigError
from lmagent.core.plurals import plural
from lmagent.projects.load import AgentFolder, load_folder
from lmagent.projects.spec import AgentType
from lmagent.tools.sanitize import printable

if TYPE_CHECKING:
    from lmagent.app.host import Host

PORT = 8000

path_argument = click.argument("path", type=click.Path(path_type=Path), default=".")


@click.group(name="agent")
def agent() -> None:
    """Make, test, pack and serve an agent: a folder with agent.yaml, prompts and tools."""


@agent.command()
@click.argument("name")
@click.option(
    "--type", "kind", type=click.Choice(get_args(AgentType)), default="task-oriented", help="What it is made for."
)
def init(name: str, kind: AgentType) -> None:
    """Make the folder NAME with a working agent in it."""
    from lmagent.projects.starting import start

    folder = start(Path(name), kind)
    click.echo(f"{folder}: a {kind} agent")
    click.echo(f"  cd {name}")
    click.echo("  lmagent agent show                       what it may do")
    click.echo("  lmagent agent test                       run its tests, without a model")
    click.echo('  lmagent agent test --message "Hello"     try it with your model')
    click.echo("  lmagent agent build -o agent.tar.gz      pack it for others")
    click.echo(f"  lmagent agent run . --port {PORT}          serve it")


@agent.command()
@path_argument
def show(path: Path) -> None:
    """Show what the agent in a folder or an archive may do. Nothing of it is run."""
    from lmagent.app.agentproject import abilities

    with TemporaryDirectory(prefix="lmagent-agent-") as temporary:
        folder = _unpacked(path, Path(temporary)) if _is_archive(path) else load_folder(path)
        for line in abilities(folder):
            click.echo(printable(line))


@agent.command()
@path_argument
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="The archive: NAME.tar.gz.")
def build(path: Path, output: Path | None) -> None:
    """Pack the agent in a folder into one file.

    It has the same bytes wherever and whenever it is built. Left out are packages, caches, hidden files and what the
    agent has made. A key in any file ends the build.
    """
    from lmagent.projects import archive

    folder = load_folder(path)
    target = Path(os.path.abspath(output or f"{folder.slug}.tar.gz"))
    manifest = archive.build(folder, target, os.environ)
    size = target.stat().st_size
    click.echo(f"{target}: {plural(len(manifest.files), 'file')}, {size / 1000:.1f} kB")


@agent.command()
@path_argument
@click.option("--message", metavar="TEXT", help="Say this to the agent, and print its answer; no test is run.")
@click.option("--json", "as_json", is_flag=True, help="Print events of --message as JSON lines.")
@click.option("--live", is_flag=True, help="Run the tests with your model, and not on their cassettes.")
@click.option("--update", is_flag=True, help="Record the cassettes anew, with your model; of a test that fails, none.")
@click.option("--models", metavar="A,B", default="", help="Run the tests with each of these models.")
@click.option("--junit", type=click.Path(path_type=Path, dir_okay=False), help="Write the results in JUnit's XML too.")
@shared.workspace_option
@shared.model_options
def test(
    path: Path,
    message: str | None,
    as_json: bool,
    models: str,
    junit: Path | None,
    workspace: Path | None,
    **options: Any,
) -> int:
    """Run an agent's tests, or say something to it.

    The tests, `tests/*.yaml` of its folder, need no model. Each test works in a new folder that is removed afterwards,
    and so does --message, unless --workspace names one.
    """
    from lmagent.app.agentproject import give_files

    folder, live, update = load_folder(path), options.pop("live"), options.pop("update")
    if message is None:
        how = "record" if update else "live" if live or models else "replay"
        return _run_tests(folder, options, how, models.split(",") if models else [""], junit)
    if workspace is not None:
        return _say(folder, workspace, message, options, as_json=as_json)
    with TemporaryDirectory(prefix=f"lmagent-{folder.slug}-", ignore_cleanup_errors=True) as temporary:
        own = Path(os.path.realpath(temporary)) / "workspace"
        give_files(folder, own)
        return _say(folder, own, message, options, as_json=as_json)


def _run_tests(folder: AgentFolder, options: dict[str, Any], how: str, models: list[str], report: Path | None) -> int:
    from lmagent.headless import projecttests
    from lmagent.projects.tests import read_tests

    tests = read_tests(folder.path)
    if not tests:
        raise ConfigError(f"{folder.path} has no tests", fix="write tests/NAME.yaml: docs/agent-projects.md")

    def show_run(run: projecttests.TestRun) -> None:
        mark, model = ("✗" if run.faults else "✓"), f" with {run.model}" if run.model else ""
        click.echo(f"{mark} {run.name}{model} · {run.seconds:.1f} s")
        for line in (*run.faults, *run.remarks):
            click.echo(printable(f"    {line}"))

    given = shared.host_options(None, options)
    runs = anyio.run(projecttests.run_tests, folder, tests, given, models, how, show_run)
    failed = sum(bool(run.faults) for run in runs)
    click.echo(f"{plural(len(runs), 'test')}, {failed} failed")
    if report is not None:
        report.write_text(projecttests.junit(folder.slug, runs), encoding="utf-8")
    return 1 if failed else 0


def _say(folder: AgentFolder, workspace: Path, message: str, options: dict[str, Any], *, as_json: bool) -> int:
    from lmagent.app.agentproject import with_settings
    from lmagent.headless.oneshot import TaskRequest, run_task

    attended = not as_json and sys.stdin.isatty() and sys.stderr.isatty()
    given = with_settings(shared.host_options(workspace, options, attended=attended), folder)

    async def do(host: Host) -> int:
        return await run_task(host, TaskRequest(message, json=as_json))

    return shared.with_host(given, do)


@agent.command()
@path_argument
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0: a free one.")
@click.option(
    "--bind", metavar="ADDRESS", envvar="LMAGENT_AGENT_BIND", help="Address to listen on.  [default: 127.0.0.1]"
)
@click.option("--yes", is_flag=True, envvar="LMAGENT_AGENT_YES", help="Do not ask about an archive from elsewhere.")
@shared.workspace_option
@shared.model_options
def run(path: Path, port: int, bind: str | None, yes: bool, workspace: Path | None, **options: Any) -> None:
    """Serve an agent: its page, and OpenAI's API.

    At /v1 it is the model `agent/NAME`. PATH is a folder, an archive, or a name of `lmagent agent list`. An archive
    from elsewhere is shown first, and unpacked into your data folder once you agree. The agent works in a folder of its
    own there, unless --workspace names one.
    """
    from lmagent.app.agentproject import with_settings, workspace_of
    from lmagent.cli.web import serve_host

    data = shared.loaded_settings(workspace).settings.agent_data_dir
    path = path if path.exists() else next((folder for folder in _installed() if folder.name == str(path)), path)
    folder = _unpacked(path, data / "agents", yes=yes) if _is_archive(path) else load_folder(path)
    own = workspace or workspace_of(folder, data)
    given = with_settings(shared.host_options(own, {**options, "port": port}, attended=True), folder)
    serve_host(given, {"bind": bind, "lan": False, "names": (), "no_browser": True})


@agent.command(name="list")
def list_agents() -> None:
    """List the agents from archives that you have run."""
    for folder in _installed():
        try:
            click.echo(printable(f"{folder.name:<40} {load_folder(folder).spec.description}"))
        except ConfigError as broken:
            click.echo(printable(f"{folder.name:<40} {broken.message}"))


@agent.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove(name: str, yes: bool) -> None:
    """Remove an agent from an archive, by its name in the list. Its workspace and sessions stay."""
    found = [folder for folder in _installed() if folder.name == name]
    if not found:
        names = ", ".join(folder.name for folder in _installed()) or "none"
        raise ConfigError(f"there is no agent {printable(name)!r} from an archive", fix=f"those here: {names}")
    if not yes:
        click.confirm(f"Remove {found[0]}?", abort=True, err=True)
    shutil.rmtree(found[0])
    click.echo(f"removed: {found[0]}")


def _installed() -> list[Path]:
    agents = shared.loaded_settings().settings.agent_data_dir / "agents"
    return sorted(path.parent for path in agents.glob("*/agent.yaml") if not path.parent.name.startswith("."))


def _is_archive(path: Path) -> bool:
    return path.is_file() and path.suffix not in (".yaml", ".yml")


def _unpacked(path: Path, parent: Path, *, yes: bool = True) -> AgentFolder:
    """Return the project in an archive, which is unpacked below `parent` once the user has agreed to it."""
    from lmagent.app.agentproject import abilities
    from lmagent.projects import archive

    with TemporaryDirectory(prefix="lmagent-agent-") as temporary:
        found = archive.unpack(path, Path(temporary))
        if not (yes or (parent / found.name).is_dir()):
            for line in abilities(load_folder(found)):
                click.echo(printable(line), err=True)
            if not sys.stdin.isatty():
                fix = "read the lines above, then add --yes"
                raise ConfigError(f"{path} is not run before you agree to it", fix=fix)
            click.confirm("Run this agent?", abort=True, err=True)
    return load_folder(archive.unpack(path, parent))
