"""`lmagent doctor`, `lmagent tool …`, `lmagent sandbox …`: check the parts, and use one without an agent."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

import anyio
import click
import msgspec

from lmagent.app.commands.charts import tool_rows
from lmagent.app.single import call_tool, open_toolbox, probe_all, run_command
from lmagent.cli import shared
from lmagent.core.decoding import decode_json
from lmagent.core.errors import LmagentError
from lmagent.core.plurals import plural
from lmagent.tools.sanitize import visible

if TYPE_CHECKING:
    from lmagent.app.servers.battery import Finding

NO_SANDBOX, TIMED_OUT = 125, 124
"""Exit codes of `exec` besides the command's own, the same as of `timeout` and `docker run`."""


# --- doctor ---


@click.command()
@shared.workspace_option
@shared.json_option
@shared.server_options
@shared.sandbox_option
@shared.allow_host_option
@click.option("--self-test", is_flag=True, help="Check this installation instead, offline, in a folder of its own.")
def doctor(workspace: Path | None, as_json: bool, self_test: bool, **options: Any) -> int:
    """Check server, model, workspace and tools; each fault with its fix."""

    def tell(item: Finding) -> None:
        if not as_json:  # else all findings are printed together
            print_finding(item)

    if self_test:
        findings = _tested(tell)
    else:
        from lmagent.app.servers.doctor import examine  # `sandbox exec` need not wait for it

        findings = anyio.run(examine, shared.host_options(workspace, options), tell)
    counts = [(sum(item.state == state for item in findings), state) for state in ("fault", "warning")]
    if as_json:
        shared.print_json(findings)
    else:
        click.echo(", ".join(plural(count, state) for count, state in counts if count) or "all good: type lmagent")
    return 1 if counts[0][0] else 0


def _tested(tell: Callable[[Finding], None]) -> list[Finding]:
    """Return the findings of the self-test, which has a home of its own and none of the user's settings."""
    from lmagent.app.servers.battery import Finding
    from lmagent.sandbox.environment import with_home

    findings: list[Finding] = []
    try:
        made = tempfile.TemporaryDirectory(prefix="lmagent-self-test-")
    except OSError as error:
        fix = "set TMPDIR to a folder that can be written"
        findings.append(Finding("disk", "fault", f"there is no place for temporary files: {error.strerror}", fix))
        tell(findings[-1])
        return findings
    with made as folder:
        home = Path(folder, "home")
        home.mkdir()
        command = [sys.executable, "-P", "-m", "lmagent.selftest", folder]
        with subprocess.Popen(command, env=with_home(home, os.environ), stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for line in process.stdout:
                findings.append(decode_json(line, Finding))
                tell(findings[-1])
    if process.returncode:
        findings.append(Finding("self-test", "fault", "it ended before all checks were made", "install lmagent again"))
        tell(findings[-1])
    return findings


def print_finding(item: Finding) -> None:
    """Print a finding as soon as it arrives: a slow model takes minutes for all of them."""
    mark, color = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "fault": ("✗", "red")}[item.state]
    shown = click.style(mark, fg=color) if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else mark
    click.echo(f"{shown} {item.name:<14} {item.text}")
    if item.fix:
        click.echo(f"  → {item.fix}")


# --- tool ---


@click.group(cls=shared.CommandGroup, default="list")
def tool() -> None:
    """List the tools, or call one yourself."""


@tool.command("list")
@shared.workspace_option
@click.option("--json", "as_json", is_flag=True, help="With their argument schemas.")
def list_(workspace: Path | None, as_json: bool) -> None:
    """List the tools."""
    tools = tuple(open_toolbox(workspace))
    if as_json:
        specs = ((msgspec.to_builtins(item.spec), item) for item in tools)
        shared.print_json(*({**spec, "effect": item.effect, "aliases": item.aliases} for spec, item in specs))
        return
    width = get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize  # elsewhere a tool is a line
    for line in tool_rows(tools, width):
        click.echo(line)


@tool.command("call")
@click.argument("name")
@click.argument("arguments", default="{}")
@shared.workspace_option
@click.option("--yes", is_flag=True, help="Run it without a question; deny rules hold all the same.")
def call(name: str, arguments: str, workspace: Path | None, yes: bool) -> int:
    """Run one tool on the workspace and print its result; exit 1 if it is refused or fails.

    ARGUMENTS is a JSON object. Permission mode and rules hold as in a session: a call that needs an approval is asked
    about in a terminal, and refused elsewhere unless --yes is given. A file that exists counts as read.
    """

    def ask(question: str) -> bool:
        if yes:
            return True
        return sys.stdin.isatty() and click.confirm(f"{visible(question)}\nAllow this call?", err=True)

    result = anyio.run(call_tool, workspace, name, arguments, ask)
    click.echo(result.text, err=result.status == "refused")
    sys.stdout.flush()
    return 0 if result.status == "done" else 1


# --- sandbox ---


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
    from lmagent.sandbox.docker import build_local_image  # the other commands need not wait for it

    click.echo(f"{name}: {build_local_image(name)}")


@sandbox.command("exec", context_settings={"allow_interspersed_args": False})
@shared.workspace_option
@click.option(
    "--timeout",
    type=click.FloatRange(0.1, 1e9),
    metavar="SECONDS",
    help="Seconds after which everything is killed (exit 124).",
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
