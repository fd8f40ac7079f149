"""`lmagent sessions …`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import anyio
import click
import msgspec

from lmagent.app.clock import SystemClock
from lmagent.app.records import WorkspaceRecords, depths, open_records
from lmagent.cli.groups import CommandGroup
from lmagent.cli.options import completed_by, workspace_option
from lmagent.cli.tables import show_table
from lmagent.core.errors import LmagentError
from lmagent.core.plurals import age
from lmagent.store.tally import Shelf
from lmagent.tools.sanitize import one_line, printable

TITLE = 40
"""Characters of a title that the list shows."""


@click.group(cls=CommandGroup, default="list")
@workspace_option
@click.pass_context
def sessions(ctx: click.Context, workspace: Path | None) -> None:
    """List, show, watch, export, fork, pin, archive, import and delete sessions."""
    ctx.obj = workspace


def print_sessions(
    workspace: Path | None, limit: int, search: str, *, as_json: bool, children: bool = False, shelf: Shelf = "open"
) -> int:
    """Print the list of sessions; those of sub-agents below the sessions that they work for."""
    rows = open_records(workspace).rows(limit, search, children=children, shelf=shelf)
    if as_json:
        for row in rows:
            click.echo(msgspec.json.encode(row).decode())
        return 0
    if not rows:
        click.echo("no archived sessions" if shelf == "archived" else "no sessions here yet")
        return 0
    lines: list[tuple[str, ...]] = []
    for row, depth in zip(rows, depths(rows), strict=True):
        title = ("  " * depth + "↳ " if row.child else "* " if row.pinned else "") + one_line(row.title, TITLE)
        known_for = age(SystemClock().now() - row.updated)
        lines.append((row.id, known_for, row.status, str(row.turns), title, one_line(row.model)))
    show_table(("SESSION", "AGE", "STATUS", "TURNS", "TITLE", "MODEL"), lines)
    return 0


def _records(ctx: click.Context) -> WorkspaceRecords:
    return open_records(ctx.obj)


@sessions.command("list")
@click.option("--limit", default=20, show_default=True, help="How many.")
@click.option("--search", default="", help="Only sessions in which these words occur.")
@click.option("--all", "children", is_flag=True, help="With those of sub-agents.")
@click.option("--archived", is_flag=True, help="The archived ones instead.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.pass_context
def list_(ctx: click.Context, limit: int, search: str, children: bool, archived: bool, as_json: bool) -> int:
    """List sessions, pinned ones (*) first, then newest first."""
    shelf = "archived" if archived else "all" if search else "open"
    return print_sessions(ctx.obj, limit, search, as_json=as_json, children=children, shelf=shelf)


@sessions.command()
@click.argument("names", nargs=-1, required=True, shell_complete=completed_by("session_ids"))
@click.option("--off", is_flag=True, help="No longer.")
@click.pass_context
def pin(ctx: click.Context, names: tuple[str, ...], off: bool) -> None:
    """List sessions before all others."""
    records = _records(ctx)
    for name in names:
        click.echo(f"{'unpinned' if off else 'pinned'} {records.mark(name, pinned=not off)}")


@sessions.command()
@click.argument("names", nargs=-1, required=True, shell_complete=completed_by("session_ids"))
@click.option("--off", is_flag=True, help="List them again.")
@click.pass_context
def archive(ctx: click.Context, names: tuple[str, ...], off: bool) -> None:
    """Leave sessions out of the list; `list --archived` and a search show them."""
    records = _records(ctx)
    for name in names:
        click.echo(f"{'listed again:' if off else 'archived'} {records.mark(name, archived=not off)}")


@sessions.command()
@click.argument("session", shell_complete=completed_by("session_ids"))
@click.option("--all", "whole", is_flag=True, help="With the notes that only the model reads.")
@click.pass_context
def show(ctx: click.Context, session: str, whole: bool) -> None:
    """Show a session as Markdown."""
    click.echo(printable(_records(ctx).export(session, "md" if whole else "talk")))


@sessions.command()
@click.argument("session", shell_complete=completed_by("session_ids"))
@click.pass_context
def watch(ctx: click.Context, session: str) -> None:
    """Show a session's work live, whichever process runs it: its sub-agents as a tree, tasks, budgets."""
    from lmagent.cli.watching import watch

    store = _records(ctx).store
    with suppress(KeyboardInterrupt):
        anyio.run(watch, store, store.resolve(session))


@sessions.command()
@click.argument("session", shell_complete=completed_by("session_ids"))
@click.option("--format", "form", type=click.Choice(["md", "html", "jsonl"]), default="md", show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write; standard output without it.")
@click.pass_context
def export(ctx: click.Context, session: str, form: str, output: Path | None) -> None:
    """Export a session as Markdown, as one HTML file, or as its events."""
    text = _records(ctx).export(session, form)
    if output is None:
        click.echo(text, nl=not text.endswith("\n"))
    else:
        output.write_text(text, encoding="utf-8")
        click.echo(f"written to {output}", err=True)


@sessions.command()
@click.argument("session", shell_complete=completed_by("session_ids"))
@click.option("--at", "seq", type=int, help="Copy up to and including this event.")
@click.pass_context
def fork(ctx: click.Context, session: str, seq: int | None) -> None:
    """Copy a session to a new one, and print the new one's id."""
    click.echo(_records(ctx).fork(session, seq))


@sessions.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.pass_context
def import_(ctx: click.Context, files: tuple[Path, ...]) -> int:
    """Import sessions of LMAgent (.json) or agent_computer (.jsonl): files, or folders of them."""
    records = _records(ctx)
    found = [pair for path in files for pair in records.import_path(path)]
    for path, report in found:
        if isinstance(report, LmagentError):
            click.echo(f"{path.name} was not imported: {report}", err=True)
            continue
        click.echo(f"{path.name} → {report.session}")
        for line in report.taken:
            click.echo(f"  took {line}")
        for line in report.left:
            click.echo(f"  left {line}")
    return 1 if any(isinstance(report, LmagentError) for _, report in found) else 0


@sessions.command("rm")
@click.argument("names", nargs=-1, required=True, shell_complete=completed_by("session_ids"))
@click.pass_context
def remove(ctx: click.Context, names: tuple[str, ...]) -> None:
    """Delete sessions with everything that belongs to them."""
    records = _records(ctx)
    for name in names:
        click.echo(f"deleted {records.delete(name)}")
