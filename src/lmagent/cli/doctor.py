"""`lmagent doctor`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import click

from lmagent.app.servers.doctor import examine
from lmagent.cli import shared
from lmagent.core.plurals import plural

if TYPE_CHECKING:
    from lmagent.app.servers.battery import Finding


@click.command()
@shared.workspace_option
@shared.json_option
@shared.server_options
@shared.sandbox_option
@shared.allow_host_option
def doctor(workspace: Path | None, as_json: bool, **options: Any) -> int:
    """Check server, model, workspace and tools; each fault with its fix."""

    def tell(item: Finding) -> None:
        if not as_json:  # else all findings are printed together
            _print(item)

    findings = anyio.run(examine, shared.host_options(workspace, options), tell)
    counts = [(sum(item.state == state for item in findings), state) for state in ("fault", "warning")]
    if as_json:
        shared.print_json(findings)
    else:
        click.echo(", ".join(plural(count, state) for count, state in counts if count) or "all good: type lmagent")
    return 1 if counts[0][0] else 0


def _print(item: Finding) -> None:
    """Print a finding as soon as it arrives: a slow model takes minutes for all of them."""
    mark, color = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "fault": ("✗", "red")}[item.state]
    shown = click.style(mark, fg=color) if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else mark
    click.echo(f"{shown} {item.name:<14} {item.text}")
    if item.fix:
        click.echo(f"  → {item.fix}")
