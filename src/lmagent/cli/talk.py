"""The conversation in the terminal: what `lmagent chat` starts, with the questions of a first run."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

import click

from lmagent.app.host import Host
from lmagent.app.options import HostOptions
from lmagent.app.servers.firstrun import Person, first_run, is_first_run
from lmagent.cli import shared
from lmagent.cli.answering import say_what_answers
from lmagent.repl.app import run_repl


def talk(
    workspace: Path | None, resume: str, options: dict[str, Any], *, latest: bool = False, plain: bool = False
) -> int:
    async def do(host: Host) -> int:
        gc.freeze()  # loaded modules stay: no collection needs to look at them again
        gc.enable()
        name = "" if resume == shared.PICK else resume or (host.require_latest() if latest else "")
        return await run_repl(host, name, pick=resume == shared.PICK, plain=plain)

    return shared.with_host(_greeted(shared.host_options(workspace, options, attended=True)), do)


def _greeted(options: HostOptions) -> HostOptions:
    """Return the options with the answers of the first run."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return options
    if not is_first_run(options):
        say_what_answers(options)
        return options
    return first_run(
        options,
        Person(
            ask=lambda question, default: str(click.prompt(question, default=default)),
            confirm=lambda question: click.confirm(question, default=True),
            say=click.echo,
            download=lambda name: _download(options, name),
            demo=_demo,
        ),
    )


def _download(options: HostOptions, name: str) -> str:
    from lmagent.cli.models import download, open_library

    return download(open_library(options.workspace), name)


def _demo() -> None:
    from lmagent.cli.demo import demo

    click.get_current_context().exit(demo.main([], standalone_mode=False) or 0)
