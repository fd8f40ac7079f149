"""`lmagent completion SHELL`."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script: eval "$(lmagent completion bash)"."""
    from lmagent.cli.completing import completer
    from lmagent.cli.root import root

    click.echo(completer(root, shell).source())
