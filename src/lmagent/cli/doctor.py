"""`lmagent doctor`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lmagent.cli.options import (
    allow_host_option,
    host_options,
    json_option,
    print_json,
    sandbox_option,
    server_options,
    workspace_option,
)
from lmagent.core.plurals import plural

if TYPE_CHECKING:
    from lmagent.app.battery import Finding


@click.command()
@workspace_option
@json_option
@server_options
@sandbox_option
@allow_host_option
def doctor(workspace: Path | None, as_json: bool, **options: Any) -> int:
    """Check server, model, workspace and tools; each fault with its fix."""
    import anyio

    from lmagent.app.doctor import examine

    def tell(item: Finding) -> None:
        if not as_json:  # else all findings are printed together
            _print(item)

    findings = anyio.run(examine, host_options(workspace, options), tell)
    counts = [(sum(item.state == state for item in findings), state) for state in ("fault", "warning")]
    if as_json:
        print_json(findings)
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
