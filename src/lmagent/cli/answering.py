"""The questions before a start: those of a first run, and the offer of another server in place of a silent one."""

from __future__ import annotations

import sys

import anyio
import click
from msgspec.structs import replace

from lmagent.app.options import HostOptions, load_settings
from lmagent.app.servers import found
from lmagent.cli.shared import say
from lmagent.providers.transport import is_silent


def stand_in(options: HostOptions) -> found.StandIn | None:
    """Return the server to offer in place of the configured one; None if that answers, or no other does."""
    loaded = load_settings(options)
    url = loaded.settings.given_endpoint
    if options.replay is not None or not url or not is_silent(url):
        return None
    return anyio.run(found.stand_in, loaded)


def with_answering_server(options: HostOptions) -> HostOptions:
    """Return the options with a server that answers, if the configured one does not and the user agrees."""
    other = stand_in(options)
    if other is None or not click.confirm(f"{other}. Use it?", default=True, err=True):
        return options
    say(found.keep(load_settings(options), other))
    return replace(options, flags={**options.flags, "llm_url": other.server.base_url})


def greeted(options: HostOptions) -> HostOptions:
    """Return the options with the answers of the first run, or with a server that answers in place of a silent one."""
    from lmagent.app.servers.firstrun import Person, first_run, is_first_run

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return options
    if not is_first_run(options):
        return with_answering_server(options)
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
