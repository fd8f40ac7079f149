"""`lmagent doctor`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from lmagent.cli.options import allow_host_option, flags, sandbox_option, server_options, workspace_option

if TYPE_CHECKING:
    from lmagent.app.servers.battery import Finding


@click.command()
@workspace_option
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@server_options
@sandbox_option
@allow_host_option
def doctor(workspace: Path | None, as_json: bool, **options: Any) -> int:
    """Check server, model, workspace and tools; each fault with its fix."""
    import anyio

    from lmagent.app.servers.doctor import examine
    from lmagent.app.wiring import HostOptions

    findings = anyio.run(examine, HostOptions(workspace, flags(**options)), _keep if as_json else _tell)
    if as_json:
        click.echo(msgspec.json.encode(findings).decode())
    else:
        _close(findings)
    return 1 if any(item.state == "fault" for item in findings) else 0


def _keep(_: Finding) -> None:
    """Print nothing: all findings are printed together."""


def _tell(item: Finding) -> None:
    """Print a finding as soon as it arrives: a slow model takes minutes for all of them."""
    mark, color = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "fault": ("✗", "red")}[item.state]
    shown = click.style(mark, fg=color) if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else mark
    click.echo(f"{shown} {item.name:<14} {item.text}")
    if item.fix:
        click.echo(f"  → {item.fix}")


def _close(findings: list[Finding]) -> None:
    counts = [(sum(item.state == state for item in findings), state) for state in ("fault", "warning")]
    parts = [f"{count} {state}{'s' * (count > 1)}" for count, state in counts if count]
    click.echo(", ".join(parts) or "all good: type lmagent")
