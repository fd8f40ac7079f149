"""`lmagent memory …`: the facts that are kept from session to session."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from msgspec import to_builtins

from lmagent.app.clock import SystemClock
from lmagent.cli import shared
from lmagent.cluster import open_store
from lmagent.config.workspace import open_workspace
from lmagent.core.errors import ConfigError
from lmagent.core.plurals import plural
from lmagent.memory.compat import export_folder, import_folder
from lmagent.memory.entries import MemoryEntry
from lmagent.memory.memory import FoundMemory, Memories, MemoryScope, Scope
from lmagent.memory.opening import open_memories
from lmagent.memory.purge import purge as remove
from lmagent.memory.show import entry_line, hit_line, operation_text, refused_line, report_text, why_text
from lmagent.tools.sanitize import printable

if TYPE_CHECKING:
    from lmagent.app.host import Host
    from lmagent.cluster.store import ClusterStore

Function = Callable[..., Any]

SCOPE = ("workspace", "user")
DAY = click.DateTime(["%Y-%m-%d"])


@click.group(cls=shared.WorkspaceGroup, default="list")
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
@click.option("--since", type=DAY, metavar="DATE", help="Only from this day on, such as 2026-11-01.")
@click.option("--until", type=DAY, metavar="DATE", help="Only up to this day.")
@scope_option
@shared.json_option
def search(
    workspace: Path | None,
    query: tuple[str, ...],
    limit: int,
    since: datetime | None,
    until: datetime | None,
    scope: Scope | None,
    as_json: bool,
) -> int:
    """Find memories and earlier messages by a question or by words; exit code 1 if nothing is found."""
    first = since.timestamp() if since else None
    last = (until + timedelta(days=1)).timestamp() if until else None
    scopes = (scope,) if scope else SCOPE
    found = _memories(workspace).search(" ".join(query), limit, scopes=scopes, since=first, until=last)
    shared.show(as_json, map(_hit_row, found), map(hit_line, found))
    if not found and not as_json:
        shared.say("nothing is remembered that matches")
    return 0 if found else 1


def _hit_row(found: FoundMemory) -> dict[str, Any]:
    hit = found.hit
    row = {"id": hit.id, "text": hit.text, "scope": found.scope, "score": round(hit.score, 4), "ts": hit.ts}
    return {**row, "session": hit.session if found.entry is None else "", "speaker": hit.speaker}


@memory.command("list")
@scope_option
@click.option("--all", "everything", is_flag=True, help="Those that were replaced by newer ones, too.")
@click.option("--refused", is_flag=True, help="Texts that were not stored, and why.")
@shared.json_option
def list_(workspace: Path | None, scope: Scope | None, everything: bool, refused: bool, as_json: bool) -> None:
    """List the memories; those in every prompt are marked with a star."""
    for memory in _chosen(_memories(workspace), scope):
        if refused:
            rows = memory.folder.refused()
            shared.show(as_json, rows, map(refused_line, rows))
            continue
        entries = [entry for entry in memory.entries() if everything or not entry.replaced]
        shared.show(as_json, (_row(memory, entry) for entry in entries), map(entry_line, entries))
        for problem in memory.folder.problems:
            shared.say(f"lmagent: {problem}")


def _row(memory: MemoryScope, entry: MemoryEntry) -> dict[str, Any]:
    return {"id": entry.id, "scope": memory.scope, "pinned": entry.is_pinned, **to_builtins(entry)}


@memory.command()
@click.argument("id")
def why(workspace: Path | None, id: str) -> None:
    """Show where a memory is from: its author, its changes, and the messages it was concluded from."""
    memories = _memories(workspace)
    memory, entry = memories.find(id)
    shared.echo(why_text(memory, entry, memories.event_text))


memory.add_command(why, "show")


@memory.command("add")
@click.argument("text", nargs=-1, required=True)
@click.option("--scope", type=click.Choice(SCOPE), default="workspace", show_default=True)
@click.option("--kind", type=click.Choice(["fact", "preference", "decision", "learning"]), default="fact")
@click.option("--pin", "pinned", is_flag=True, help="Put it into the prompt of each new session.")
def add(workspace: Path | None, text: tuple[str, ...], scope: Scope, kind: Any, pinned: bool) -> None:
    """Remember a text."""
    memory = _memories(workspace).scopes[scope]
    entry = memory.store(" ".join(text), by="user", kind=kind, pinned=pinned)
    click.echo(f"{entry.id} in {memory.folder.root / entry.file}")


@memory.command()
@click.argument("id")
@click.argument("text", nargs=-1)
def edit(workspace: Path | None, id: str, text: tuple[str, ...]) -> None:
    """Replace the text of a memory; without TEXT, in your editor."""
    memory, entry = _memories(workspace).find(id)
    new = " ".join(text) if text else (click.edit(entry.text) or entry.text)
    changed = memory.edit(entry.id, new)
    click.echo(f"{entry.id} is {changed.id} now" if changed.id != entry.id else f"{entry.id} is unchanged")


@memory.command()
@click.argument("id")
@click.option("--off", is_flag=True, help="Take it out again.")
def pin(workspace: Path | None, id: str, off: bool) -> None:
    """Put a memory into the prompt of each new session."""
    memory, entry = _memories(workspace).find(id)
    moved = memory.pin(entry.id, pinned=not off)
    click.echo(f"{moved.id} is in {memory.folder.root / moved.file}")


@memory.command()
@click.argument("id")
def forget(workspace: Path | None, id: str) -> None:
    """Remove a memory; it is not concluded again. `memory undo` brings it back."""
    memory, entry = _memories(workspace).find(id)
    memory.forget(entry.id)
    shared.echo(f"forgot {entry.id}: {entry.text}")


@memory.command()
@scope_option
def undo(workspace: Path | None, scope: Scope | None) -> int:
    """Take back the last change; again, the one before it."""
    done = _memories(workspace).undo(scope)
    click.echo(printable(operation_text(done[1])) if done else "there is nothing to undo")
    return 0 if done else 1


@memory.command()
@click.argument("text", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
def purge(workspace: Path | None, text: tuple[str, ...], yes: bool) -> None:
    """Remove a memory, or any text, for good: from files, index and the logs of sessions, without a way back.

    Sessions in the database of a cluster that have the text must be deleted before, and are named.

    TEXT is a memory's id or the text itself.
    """
    memories, words = _memories(workspace), " ".join(text)
    if words.startswith("m-"):
        words = memories.find(words)[1].text
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigError("a purge cannot be undone", fix="add --yes to do it without a question")
        click.confirm(printable(f"Remove every copy of {words!r}?"), abort=True)
    store = _cluster_store(workspace)
    count = remove(memories, words, store.holding) if store is not None else remove(memories, words)
    click.echo(f"removed it from {plural(count, 'file')}")
    if store is not None:
        store.delete_index()


def _cluster_store(workspace: Path | None) -> ClusterStore | None:
    """Return the sessions in the cluster's database; None without a cluster."""
    loaded = shared.loaded_settings(workspace)
    if not loaded.settings.cluster_url:
        return None
    return cast("ClusterStore", open_store(open_workspace(loaded.workspace).path, loaded.settings, SystemClock()))


@memory.command("export")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--scope", type=click.Choice(SCOPE), default="workspace", show_default=True)
def export_(workspace: Path | None, folder: Path, scope: Scope) -> None:
    """Write knowledge.md, learnings.md and index.json into a new folder, as agent_computer has them."""
    for path in export_folder(_memories(workspace).scopes[scope], folder):
        click.echo(str(path))


@memory.command("import")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--scope", type=click.Choice(SCOPE), default="workspace", show_default=True)
def import_(workspace: Path | None, folder: Path, scope: Scope) -> None:
    """Take over the memory folder of agent_computer: knowledge.md, learnings.md and memory.db."""
    found = import_folder(_memories(workspace).scopes[scope], folder)
    click.echo(f"took {found.taken} memories")
    for line in found.left:
        shared.say(printable(f"left: {line}"))


@memory.command()
@scope_option
@shared.json_option
def stats(workspace: Path | None, scope: Scope | None, as_json: bool) -> None:
    """Show how much is remembered, and how it is searched."""
    for memory in _chosen(_memories(workspace), scope):
        found = memory.stats()
        counts = f"{found.entries} memories, {found.pinned} in every prompt, {found.indexed} texts in the index"
        line = f"{memory.scope}: {counts}, searched by {found.search}\n  {memory.folder.root}"
        shared.show(as_json, [found], [line])


@memory.command()
@shared.model_options
def reflect(workspace: Path | None, **options: Any) -> int:
    """Let the model read the news of the sessions and store its findings; `memory undo` takes it back."""
    from lmagent.app.reflecting import reflect as run

    async def do(host: Host) -> int:
        report = await run(host)
        shared.echo(report_text(report))
        return 1 if report.failed else 0

    return shared.with_host(shared.host_options(workspace, options), do)
