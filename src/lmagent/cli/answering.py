"""The offer of another model server if the configured one does not answer."""

from __future__ import annotations

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
