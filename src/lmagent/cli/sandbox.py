"""`lmagent sandbox probe|exec|image`: the sandbox's guarantees here, commands in it without an agent, its image."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import click

from lmagent.app.single import probe_all, run_command
from lmagent.cli import shared
from lmagent.core.errors import LmagentError
from lmagent.sandbox.docker import build_local_image

NO_SANDBOX, TIMED_OUT = 125, 124
"""Exit codes of `exec` besides the command's own, the same as of `timeout` and `docker run`."""


def _seconds(text: str) -> float:
    """Read a number of seconds; click's own ranges let NaN through."""
    try:
        seconds = float(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no number") from None
    if not 0.1 <= seconds < 1e9:
        raise click.BadParameter("it must be at least 0.1 and below 1e9")
    return seconds


@click.group(cls=shared.CommandGroup)
def sandbox() -> None:
    """Show the sandbox's guarantees, or run a command in it."""


@sandbox.command()
@shared.workspace_option
@shared.sandbox_option
@click.option("--json", "as_json", is_flag=True, help="As JSON, one line a backend.")
def probe(workspace: Path | None, sandbox: str | None, as_json: bool) -> int:
    """Attack every sandbox of this machine from inside, and show what held; exit 1 if none works."""
    found = anyio.run(probe_all, shared.host_options(workspace, {"sandbox": sandbox}))
    for report in found:
        if as_json:
            shared.print_json(report)
            continue
        state = "degraded" if report.degraded else "works" if report.works else "does not work"
        click.echo(f"{report.backend} {report.version}: {state}".replace(" :", ":"))
        for promise in report.promises:
            click.echo(f"  {'✓' if promise.kept else '✗'} {promise.name:<12} {promise.detail}")
        if report.reason:
            click.echo(f"  {report.reason}")
        if report.fix:
            click.echo(f"  → {report.fix}")
    return 0 if any(report.works for report in found) else 1


@sandbox.command()
@click.argument("name", default="lmagent-sandbox")
def image(name: str) -> None:
    """Build the docker sandbox's image from nothing: it shows this machine's /usr, read-only, and needs no registry."""
    click.echo(f"{name}: {build_local_image(name)}")


@sandbox.command("exec", context_settings={"allow_interspersed_args": False})
@shared.workspace_option
@click.option(
    "--timeout", type=_seconds, metavar="SECONDS", help="Seconds after which everything is killed (exit 124)."
)
@shared.sandbox_option
@shared.allow_host_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def execute(
    workspace: Path | None,
    timeout: float | None,
    sandbox: str | None,
    allow_host: tuple[str, ...],
    command: tuple[str, ...],
) -> int:
    """Run a command in the sandbox: its output and exit status are passed through, and nothing stays behind.

    Exit 124 at the timeout, 125 when nothing was run (no sandbox, no such folder), 137 when it was killed.
    """

    options = shared.host_options(workspace, {"sandbox": sandbox, "allow_host": allow_host})
    try:
        end = anyio.run(run_command, options, command, timeout, sys.stdout.buffer, sys.stderr.buffer)
    except LmagentError as failure:
        shared.say(f"lmagent: {failure}")
        return NO_SANDBOX
    for note in end.notes:
        shared.say(f"lmagent: {note}")
    if end.reason == "memory":
        shared.say("lmagent: killed: it used more memory than the sandbox allows")
    return TIMED_OUT if end.reason == "timeout" else end.code
