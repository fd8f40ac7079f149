"""Before a start: the questions of a first run, and the hint at another server if the configured one is silent."""

from __future__ import annotations

import sys

import anyio
import click

from lmagent.app.options import HostOptions, load_settings
from lmagent.app.servers.found import stand_in
from lmagent.cli.shared import say
from lmagent.providers.transport import is_silent


def say_what_answers(options: HostOptions) -> None:
    """Name a server that answers in place of the configured one, if that is silent."""
    loaded = load_settings(options)
    url = loaded.settings.given_endpoint
    if options.replay is None and url and is_silent(url) and (other := anyio.run(stand_in, loaded)) is not None:
        say(f"lmagent: {other.message}\n  → {other.fix}")


def greeted(options: HostOptions) -> HostOptions:
    """Return the options with the answers of the first run."""
    from lmagent.app.servers.firstrun import Person, first_run, is_first_run

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
