"""`lmagent completion SHELL`."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script: eval "$(lmagent completion bash)"."""
    from click.shell_completion import get_completion_class

    from lmagent.cli.root import root

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(kind(root, {}, "lmagent", "_LMAGENT_COMPLETE").source())
