"""`lmagent cluster …`: the database that many workers share, and what they do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lmagent.cli import shared
from lmagent.cli.checks import print_finding
from lmagent.core.errors import ConfigError
from lmagent.core.plurals import plural

if TYPE_CHECKING:
    from lmagent.cluster.database import Database
    from lmagent.cluster.status import ClusterProcess, ClusterStatus, ClusterWorkspace


def cluster_url(workspace: Path | None) -> str:
    """Return the address of the database in the settings. Raise ConfigError if none is set."""
    if not (url := shared.loaded_settings(workspace).settings.cluster_url):
        raise ConfigError(
            "cluster_url is not set, so there is no cluster",
            fix="export LMAGENT_CLUSTER_URL=postgresql://user:password@host:5432/database",
        )
    return url


def database(workspace: Path | None) -> Database:
    from lmagent.cluster.database import Database

    return Database(cluster_url(workspace))


@click.group(cls=shared.WorkspaceGroup, default="status")
@shared.group_workspace_option
def cluster() -> None:
    """Set up, watch, drain and check the workers that share a PostgreSQL database.

    The database is the setting cluster_url (LMAGENT_CLUSTER_URL).
    """


@cluster.command()
@shared.json_option
def init(workspace: Path | None, as_json: bool) -> None:
    """Make the tables in the database, or bring those of an earlier version up to date."""
    known = database(workspace)
    taken = known.migrate()
    text = f"made: {plural(len(taken), 'step')} of the schema" if taken else "the tables are up to date"
    shared.show(as_json, [{"database": known.place, "steps": taken}], [f"{known.place}: {text}"])


@cluster.command()
@shared.json_option
def status(workspace: Path | None, as_json: bool) -> None:
    """Show the processes with what they run, and the work of each workspace."""
    from lmagent.cluster.status import read_status

    found = read_status(database(workspace))
    if as_json:
        shared.print_json(found)
    else:
        _show(found)


def _show(found: ClusterStatus) -> None:
    if found.processes:
        headings = ("ID", "KIND", "NAME", "VERSION", "STATE", "BEAT", "WORKSPACES", "SESSIONS", "RUNS")
        shared.show_table(headings, [_process_row(process) for process in found.processes])
    else:
        shared.echo("no process is connected; in the folder of a workspace: lmagent worker")
    if found.workspaces:
        shared.echo("")
        headings = ("WORKSPACE", "WORKERS", "WAITING", "OLDEST", "RUNNING", "DUE LATER", "RESTING", "SESSIONS", "OPEN")
        shared.show_table(headings, [_workspace_row(workspace) for workspace in found.workspaces])
    for workspace in found.workspaces:
        if workspace.fix:
            shared.echo(f"no worker mounts {workspace.name}; its jobs wait", f"  → {workspace.fix}")
        if workspace.resting:
            shared.echo(f"{workspace.name}: jobs failed too often and are tried again later: {workspace.failure}")


def _process_row(process: ClusterProcess) -> tuple[str, ...]:
    state = "dead" if not process.alive else "draining" if process.draining else "alive"
    names, runs = ", ".join(process.workspaces), ", ".join(process.running)
    beat = f"{process.beat:.1f} s"
    return (
        *(str(process.id), process.kind, process.name, process.version, state, beat),
        *(names or "-", str(process.sessions), runs or "-"),
    )


def _workspace_row(one: ClusterWorkspace) -> tuple[str, ...]:
    oldest = "-" if one.oldest is None else f"{one.oldest:.0f} s"
    counts = (one.running, one.due, one.resting, one.sessions, one.open)
    return (one.name, str(one.workers), str(one.waiting), oldest, *map(str, counts))


@cluster.command()
@click.argument("worker", default="")
@shared.json_option
def drain(workspace: Path | None, worker: str, as_json: bool) -> None:
    """Let a worker, by its NAME or ID, end its turns and stop; all workers without one."""
    from lmagent.cluster.status import drain as ask

    names = ask(database(workspace), worker)
    if worker and not names:
        raise ConfigError(f"no worker {worker} is alive", fix="lmagent cluster status")
    lines = [f"{name} takes no more jobs, and ends with its turns" for name in names] or ["no worker is alive"]
    shared.show(as_json, [{"draining": names}], lines)


@cluster.command()
@shared.json_option
def doctor(workspace: Path | None, as_json: bool) -> int:
    """Check database, rights, schema, clocks, workers and object storage; each fault with its fix."""
    from lmagent.app.servers.clusterdoctor import examine

    findings = list(examine(database(workspace), shared.loaded_settings(workspace).settings.cluster_objects))
    if as_json:
        shared.print_json(*findings)
    else:
        for finding in findings:
            print_finding(finding)
    return 1 if any(finding.state == "fault" for finding in findings) else 0
