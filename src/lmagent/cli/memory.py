"""`lmagent memory …`: the facts that are kept from session to session."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lmagent.cli import shared
from lmagent.core.errors import ConfigError
from lmagent.core.plurals import plural
from lmagent.tools.sanitize import printable

if TYPE_CHECKING:
    from lmagent.app.host import Host
    from lmagent.memory.entries import MemoryEntry
    from lmagent.memory.memory import Memories, MemoryScope, Scope

Function = Callable[..., Any]

SCOPE = ("workspace", "user")


@click.group(cls=shared.CommandGroup, default="list")
@shared.group_workspace_option
def memory() -> None:
    """Search, list, change and remove memories.

    The workspace's memories are in .lmagent/memory, the user's in the data folder. Both are Markdown files that you
    can edit; earlier messages are found as well.
    """


def scope_option(function: Function) -> Function:
    return click.option("--scope", type=click.Choice(SCOPE), help="Only this scope.")(function)


def _memories(workspace: Path | None) -> Memories:
    """Return the memories, until the command has ended."""
    from lmagent.app.clock import SystemClock
    from lmagent.config.workspace import open_workspace
    from lmagent.memory.opening import open_memories

    loaded = shared.loaded_settings(workspace)
    folder = open_workspace(loaded.workspace).path
    memories = open_memories(folder, loaded.settings, SystemClock(), lambda notice: shared.say(f"lmagent: {notice}"))
    click.get_current_context().call_on_close(memories.close)
    return memories


def _chosen(memories: Memories, scope: Scope | None) -> list[MemoryScope]:
    return [memory for name, memory in memories.scopes.items() if scope in (None, name)]


@memory.command()
@click.argument("query", nargs=-1, required=True)
@click.option("-k", "--limit", type=click.IntRange(1, 100), default=5, show_default=True, help="How many.")
@click.option("--since", metavar="DATE", help="Only from this day on, such as 2026-11-01.")
@click.option("--until", metavar="DATE", help="Only up to this day.")
@scope_option
@shared.json_lines_option
@click.pass_obj
def search(
    workspace: Path | None,
    query: tuple[str, ...],
    limit: int,
    since: str | None,
    until: str | None,
    scope: Scope | None,
    as_json: bool,
) -> int:
    """Find memories and earlier messages by a question or by words; exit code 1 if nothing is found."""
    from lmagent.memory.show import hit_line

    memories = _memories(workspace)
    scopes = (scope,) if scope else SCOPE
    first, last = _time(since), _time(until, end=True)
    found = memories.search(" ".join(query), limit, scopes=scopes, since=first, until=last)
    for one in found:
        hit = one.hit
        if as_json:
            row = {"id": hit.id, "text": hit.text, "scope": one.scope, "score": round(hit.score, 4), "ts": hit.ts}
            shared.print_json({**row, "session": hit.session if one.entry is None else "", "speaker": hit.speaker})
        else:
            click.echo(printable(hit_line(one)))
    if not found and not as_json:
        shared.say("nothing is remembered that matches")
    return 0 if found else 1


def _time(day: str | None, *, end: bool = False) -> float | None:
    from datetime import datetime, timedelta

    if day is None:
        return None
    try:
        found = datetime.fromisoformat(day).astimezone()
    except ValueError:
        raise ConfigError(f"{day!r} is no date", fix="write it as 2026-11-01") from None
    return (found + timedelta(days=1) if end and len(day) == 10 else found).timestamp()


@memory.command("list")
@scope_option
@click.option("--all", "everything", is_flag=True, help="Those that were replaced by newer ones, too.")
@click.option("--refused", is_flag=True, help="Texts that were not stored, and why.")
@shared.json_lines_option
@click.pass_obj
def list_(workspace: Path | None, scope: Scope | None, everything: bool, refused: bool, as_json: bool) -> None:
    """List the memories; those in every prompt are marked with a star."""
    from lmagent.memory.show import entry_line, refused_line

    for memory in _chosen(_memories(workspace), scope):
        if refused:
            for row in memory.folder.refused():
                shared.print_json(row) if as_json else click.echo(printable(refused_line(row)))
            continue
        for entry in memory.entries():
            if everything or not entry.replaced:
                shared.print_json(_row(memory, entry)) if as_json else click.echo(printable(entry_line(entry)))
        for problem in memory.folder.problems:
            shared.say(f"lmagent: {problem}")


def _row(memory: MemoryScope, entry: MemoryEntry) -> dict[str, Any]:
    from msgspec import to_builtins

    return {"id": entry.id, "scope": memory.scope, "pinned": entry.is_pinned, **to_builtins(entry)}


@memory.command()
@click.argument("id")
@click.pass_obj
def show(workspace: Path | None, id: str) -> None:
    """Show a memory, and its file."""
    from lmagent.memory.show import origin

    memory, entry = _memories(workspace).find(id)
    place = memory.folder.root / entry.file
    click.echo(printable(f"{entry.text}\n\n{entry.id}  {entry.kind}, {origin(entry)}\n{place}"))


@memory.command()
@click.argument("id")
@click.pass_obj
def why(workspace: Path | None, id: str) -> None:
    """Show where a memory is from: its author, its changes, and the messages it was concluded from."""
    from lmagent.memory.show import why_text

    memories = _memories(workspace)
    memory, entry = memories.find(id)
    click.echo(printable(why_text(memory, entry, memories.event_text)))


@memory.command("add")
@click.argument("text", nargs=-1, required=True)
@click.option("--scope", type=click.Choice(SCOPE), default="workspace", show_default=True)
@click.option("--kind", type=click.Choice(["fact", "preference", "decision", "learning"]), default="fact")
@click.option("--pin", "pinned", is_flag=True, help="Put it into the prompt of each new session.")
@click.pass_obj
def add(workspace: Path | None, text: tuple[str, ...], scope: Scope, kind: Any, pinned: bool) -> None:
    """Remember a text."""
    memory = _memories(workspace).scopes[scope]
    entry = memory.store(" ".join(text), by="user", kind=kind, pinned=pinned)
    click.echo(f"{entry.id} in {memory.folder.root / entry.file}")


@memory.command()
@click.argument("id")
@click.argument("text", nargs=-1)
@click.pass_obj
def edit(workspace: Path | None, id: str, text: tuple[str, ...]) -> None:
    """Replace the text of a memory; without TEXT, in your editor."""
    memory, entry = _memories(workspace).find(id)
    new = " ".join(text) if text else (click.edit(entry.text) or entry.text)
    changed = memory.edit(entry.id, new)
    click.echo(f"{entry.id} is {changed.id} now" if changed.id != entry.id else f"{entry.id} is unchanged")


@memory.command()
@click.argument("id")
@click.option("--off", is_flag=True, help="Take it out again.")
@click.pass_obj
def pin(workspace: Path | None, id: str, off: bool) -> None:
    """Put a memory into the prompt of each new session."""
    memory, entry = _memories(workspace).find(id)
    moved = memory.pin(entry.id, pinned=not off)
    click.echo(f"{moved.id} is in {memory.folder.root / moved.file}")


@memory.command()
@click.argument("id")
@click.pass_obj
def forget(workspace: Path | None, id: str) -> None:
    """Remove a memory; it is not concluded again. `memory undo` brings it back."""
    memory, entry = _memories(workspace).find(id)
    memory.forget(entry.id)
    click.echo(printable(f"forgot {entry.id}: {entry.text}"))


@memory.command()
@scope_option
@click.pass_obj
def undo(workspace: Path | None, scope: Scope | None) -> int:
    """Take back the last change; again, the one before it."""
    from lmagent.memory.show import operation_text

    done = _memories(workspace).undo(scope)
    click.echo(printable(operation_text(done[1])) if done else "there is nothing to undo")
    return 0 if done else 1


@memory.command()
@click.argument("text", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def purge(workspace: Path | None, text: tuple[str, ...], yes: bool) -> None:
    """Remove a memory, or any text, for good: from files, index and the logs of sessions, without a way back.

    TEXT is a memory's id or the text itself.
    """
    from lmagent.memory.purge import purge as remove

    memories, words = _memories(workspace), " ".join(text)
    if words.startswith("m-"):
        words = memories.find(words)[1].text
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigError("a purge cannot be undone", fix="add --yes to do it without a question")
        click.confirm(printable(f"Remove every copy of {words!r}?"), abort=True)
    click.echo(f"removed it from {plural(remove(memories, words), 'file')}")


@memory.command("export")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--scope", type=click.Choice(SCOPE), default="workspace", show_default=True)
@click.pass_obj
def export_(workspace: Path | None, folder: Path, scope: Scope) -> None:
    """Write knowledge.md, learnings.md and index.json into a new folder, as agent_computer has them."""
    from lmagent.memory.compat import export_folder

    for path in export_folder(_memories(workspace).scopes[scope], folder):
        click.echo(str(path))


@memory.command("import")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--scope", type=click.Choice(SCOPE), default="workspace", show_default=True)
@click.pass_obj
def import_(workspace: Path | None, folder: Path, scope: Scope) -> None:
    """Take over the memory folder of agent_computer: knowledge.md, learnings.md and memory.db."""
    from lmagent.memory.compat import import_folder

    found = import_folder(_memories(workspace).scopes[scope], folder)
    click.echo(f"took {found.taken} memories")
    for line in found.left:
        shared.say(printable(f"left: {line}"))


@memory.command()
@scope_option
@shared.json_lines_option
@click.pass_obj
def stats(workspace: Path | None, scope: Scope | None, as_json: bool) -> None:
    """Show how much is remembered, and how it is searched."""
    for memory in _chosen(_memories(workspace), scope):
        found = memory.stats()
        if as_json:
            shared.print_json(found)
        else:
            counts = f"{found.entries} memories, {found.pinned} in every prompt, {found.indexed} texts in the index"
            click.echo(f"{memory.scope}: {counts}, searched by {found.search}\n  {memory.folder.root}")


@memory.command()
@shared.model_options
@click.pass_obj
def reflect(workspace: Path | None, **options: Any) -> int:
    """Let the model read the news of the sessions and store its findings; `memory undo` takes it back."""
    from lmagent.app.reflecting import reflect as run
    from lmagent.memory.show import report_text

    async def do(host: Host) -> int:
        report = await run(host)
        click.echo(printable(report_text(report)))
        return 1 if report.failed else 0

    return shared.with_host(shared.host_options(workspace, options), do)
