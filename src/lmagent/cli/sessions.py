"""`lmagent sessions …`."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click

from lmagent.app.clock import SystemClock
from lmagent.app.records import WorkspaceRecords, depths, open_records
from lmagent.app.watching import Tree
from lmagent.cli import shared
from lmagent.core.errors import LmagentError
from lmagent.core.plurals import age
from lmagent.store.tally import Shelf
from lmagent.tools.sanitize import one_line, visible

if TYPE_CHECKING:
    from lmagent.store.port import SessionStore

TITLE = 40
"""Characters of a title that the list shows."""

names_argument = click.argument("names", nargs=-1, required=True, shell_complete=shared.completed_by("session_ids"))


@click.group(cls=shared.WorkspaceGroup, default="list")
@shared.group_workspace_option
def sessions() -> None:
    """List, show, watch, export, fork, pin, archive, import and delete sessions."""


def print_sessions(
    workspace: Path | None, limit: int, search: str, *, as_json: bool, children: bool = False, shelf: Shelf = "open"
) -> int:
    """Print the list of sessions; those of sub-agents below the sessions that they work for."""
    rows = open_records(workspace).rows(limit, search, children=children, shelf=shelf)
    if as_json:
        shared.print_json(*rows)
        return 0
    if not rows:
        click.echo("no archived sessions" if shelf == "archived" else "no sessions here yet")
        return 0
    lines: list[tuple[str, ...]] = []
    for row, depth in zip(rows, depths(rows), strict=True):
        title = ("  " * depth + "↳ " if row.child else "* " if row.pinned else "") + one_line(row.title, TITLE)
        known_for = age(SystemClock().now() - row.updated)
        lines.append((row.id, known_for, row.status, str(row.turns), title, one_line(row.model)))
    shared.show_table(("SESSION", "AGE", "STATUS", "TURNS", "TITLE", "MODEL"), lines)
    return 0


@sessions.command("list")
@click.option("--limit", default=20, show_default=True, help="How many.")
@click.option("--search", default="", help="Only sessions in which these words occur.")
@click.option("--all", "children", is_flag=True, help="With those of sub-agents.")
@click.option("--archived", is_flag=True, help="The archived ones instead.")
@shared.json_option
def list_(workspace: Path | None, limit: int, search: str, children: bool, archived: bool, as_json: bool) -> int:
    """List sessions, pinned ones (*) first, then newest first."""
    shelf = "archived" if archived else "all" if search else "open"
    return print_sessions(workspace, limit, search, as_json=as_json, children=children, shelf=shelf)


@sessions.command()
@names_argument
@click.option("--off", is_flag=True, help="No longer.")
def pin(workspace: Path | None, names: tuple[str, ...], off: bool) -> None:
    """List sessions before all others."""
    _each(workspace, names, "unpinned" if off else "pinned", lambda records, name: records.mark(name, pinned=not off))


@sessions.command()
@names_argument
@click.option("--off", is_flag=True, help="List them again.")
def archive(workspace: Path | None, names: tuple[str, ...], off: bool) -> None:
    """Leave sessions out of the list; `list --archived` and a search show them."""
    done = "listed again:" if off else "archived"
    _each(workspace, names, done, lambda records, name: records.mark(name, archived=not off))


@sessions.command("rm")
@names_argument
def remove(workspace: Path | None, names: tuple[str, ...]) -> None:
    """Delete sessions with everything that belongs to them."""
    _each(workspace, names, "deleted", WorkspaceRecords.delete)


def _each(
    workspace: Path | None, names: tuple[str, ...], done: str, act: Callable[[WorkspaceRecords, str], str]
) -> None:
    """Act on each session, and print that it is done."""
    records = open_records(workspace)
    for name in names:
        click.echo(f"{done} {act(records, name)}")


@sessions.command()
@shared.session_argument
@click.option("--all", "whole", is_flag=True, help="With the notes that only the model reads.")
def show(workspace: Path | None, session: str, whole: bool) -> None:
    """Show a session as Markdown."""
    shared.echo(open_records(workspace).export(session, "md" if whole else "talk"))


@sessions.command()
@shared.session_argument
@click.option("--format", "form", type=click.Choice(["md", "html", "jsonl"]), default="md", show_default=True)
@click.option("--html", "form", flag_value="html", help="The same as --format html.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write; standard output without it.")
def export(workspace: Path | None, session: str, form: str, output: Path | None) -> None:
    """Export a session as Markdown, as one HTML file, or as its events."""
    text = open_records(workspace).export(session, form)
    if output is None:
        click.echo(text, nl=not text.endswith("\n"))
    else:
        output.write_text(text, encoding="utf-8")
        click.echo(f"written to {output}", err=True)


@sessions.command()
@shared.session_argument
@click.option("--at", "seq", type=int, help="Copy up to and including this event.")
def fork(workspace: Path | None, session: str, seq: int | None) -> None:
    """Copy a session to a new one, and print the new one's id."""
    click.echo(open_records(workspace).fork(session, seq))


@sessions.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
def import_(workspace: Path | None, files: tuple[Path, ...]) -> int:
    """Import sessions of LMAgent (.json) or agent_computer (.jsonl): files, or folders of them."""
    records, code = open_records(workspace), 0
    for path, report in [pair for file in files for pair in records.import_path(file)]:
        if isinstance(report, LmagentError):
            click.echo(f"{path.name} was not imported: {report}", err=True)
            code = 1
            continue
        click.echo(f"{path.name} → {report.session}")
        for line in (*(f"took {line}" for line in report.taken), *(f"left {line}" for line in report.left)):
            click.echo(f"  {line}")
    return code


@sessions.command()
@shared.session_argument
def watch(workspace: Path | None, session: str) -> None:
    """Show a session's work live, whichever process runs it: its sub-agents as a tree, tasks, budgets."""
    store = open_records(workspace).store
    with suppress(KeyboardInterrupt):
        anyio.run(_watch, store, store.resolve(session))


async def _watch(store: SessionStore, session: str) -> None:
    """Show the session until it is idle; one that has ended is shown once."""
    tree = Tree(store, session)
    shown = _redrawn([], tree.lines())
    async for _ in tree.changes():
        shown = _redrawn(shown, tree.lines())
    _redrawn(shown, tree.lines())


def _redrawn(shown: list[str], lines: list[str]) -> list[str]:
    """Redraw a block of lines on a terminal; in a pipe, print the lines that have changed."""
    lines = [visible(line) for line in lines]
    if lines != shown and sys.stdout.isatty():
        size = shutil.get_terminal_size()
        lines = [line[: size.columns - 1] for line in lines[-(size.lines - 1) :]]
        back = f"\x1b[{len(shown)}F\x1b[J" if shown else ""
        sys.stdout.write(back + "".join(f"{line}\n" for line in lines))
    elif lines != shown:
        sys.stdout.writelines(f"{line}\n" for line in lines if line not in shown)
    sys.stdout.flush()
    return lines
