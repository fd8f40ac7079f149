"""`lmagent acp`: the agent of an editor."""

from __future__ import annotations

import gc
from typing import Any

import click

from lmagent.cli.shared import host_options, model_options, say


@click.command()
@model_options
def acp(**given: Any) -> None:
    """Be the agent of an editor, by the Agent Client Protocol.

    Your editor starts this command and names the folder; docs/acp.md has the settings for Zed, JetBrains, Neovim and
    Emacs. It ends when the editor closes its standard input; turns that run then can be continued.
    """
    import anyio

    from lmagent.acp.serve import serve

    gc.enable()
    anyio.run(serve, host_options(None, given, attended=True), say)
