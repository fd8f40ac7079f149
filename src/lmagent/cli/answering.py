"""The hint at another model server if the configured one does not answer."""

from __future__ import annotations

import anyio

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
