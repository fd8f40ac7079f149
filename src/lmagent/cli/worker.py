"""`lmagent worker`: one process of a cluster."""

from __future__ import annotations

import gc
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import click

from lmagent.app.signals import ending
from lmagent.cli import shared
from lmagent.cli.cluster import cluster_url
from lmagent.cluster import workspace_name
from lmagent.config.workspace import open_workspace
from lmagent.core.errors import ConfigError
from lmagent.core.plurals import plural

if TYPE_CHECKING:
    from lmagent.app.options import HostOptions
    from lmagent.gateway.worker import ClusterWorker


def _labels(context: click.Context, option: click.Parameter, value: tuple[str, ...]) -> dict[str, Path]:
    labels: dict[str, Path] = {}
    for label in value:
        name, path = (part.strip() for part in label.partition("=")[::2])
        if not (name and path):
            raise click.BadParameter(f"{label!r} is not NAME=PATH")
        if name in labels:
            raise click.BadParameter(f"{name} is given twice")
        labels[name] = Path(path)
    return labels


@click.command()
@shared.workspace_option
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="NAME=PATH",
    callback=_labels,
    help="A workspace of the cluster, and where it is on this machine; may be given several times.",
)
@click.option(
    "--lanes",
    type=click.IntRange(min=1),
    metavar="N",
    help="Jobs that run at the same time in each workspace.",
)
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    default=25.0,
    show_default=True,
    metavar="SECONDS",
    help="How long turns may take to end after the worker was asked to stop.",
)
@shared.model_options
def worker(workspace: Path | None, labels: dict[str, Path], grace: float, **options: Any) -> int:
    """Run the work of a cluster's workspaces: sessions, tasks of the inbox, cron jobs.

    Without --label, it works for the current folder, under the name in the setting cluster_workspace, else the name of
    the folder. Any number of workers may share a workspace, on storage that they share. SIGTERM, Ctrl+C and `lmagent
    cluster drain` let running turns end; another worker resumes the others.
    """
    url = cluster_url(workspace)
    if not labels:
        loaded = shared.loaded_settings(workspace)
        path = open_workspace(loaded.workspace).path
        labels = {workspace_name(path, loaded.settings): path}
    for name, path in labels.items():
        if not path.is_dir():
            raise ConfigError(f"the workspace {name} is not mounted: there is no folder {path}", fix="mount it first")
    return anyio.run(_work, url, labels, shared.host_options(None, options, attended=True), grace)


async def _work(url: str, labels: dict[str, Path], options: HostOptions, grace: float) -> int:
    from lmagent.gateway.worker import ClusterWorker

    known = await ClusterWorker.open(url, labels, options, _log)
    try:
        gc.freeze()
        gc.enable()
        _log(f"worker {known.presence.name} has {plural(len(labels), 'workspace')}: {', '.join(labels)}")
        async with anyio.create_task_group() as tasks:
            if sys.platform != "win32":
                tasks.start_soon(_until_signalled, known, tasks.cancel_scope)
            await known.run(grace)
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await known.aclose()
    _log("stopped; other workers resume unfinished turns")
    return 0


async def _until_signalled(known: ClusterWorker, work: anyio.CancelScope) -> None:
    """Drain the worker at the first signal, and end it at the second."""
    with anyio.open_signal_receiver(signal.SIGINT, *ending()) as signals:
        async for _ in signals:
            known.drain()
            break
        async for _ in signals:
            work.cancel()


def _log(text: str) -> None:
    shared.echo(f"{time.strftime('%H:%M:%S')}  {text}")
