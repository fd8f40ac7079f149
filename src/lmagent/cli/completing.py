"""Completing: the shell's completions for an unfinished command line, including names of sessions and models."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import anyio
import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from lmagent.app.records import open_records
from lmagent.cli.main import rewrite
from lmagent.cli.shared import WORKSPACE, loaded_settings
from lmagent.core.errors import LmagentError
from lmagent.providers.transport import HttpTransport

VARIABLE = "_LMAGENT_COMPLETE"
"""The variable by which a shell's script asks: `bash_source` for the script, `bash_complete` for an answer."""

MOST = 50

PATIENCE = 1.0

_SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print the completion script: eval "$(lmagent completion bash)"."""
    from lmagent.cli.root import root

    click.echo(completer(root, shell).source())


def completer(root: click.Group, shell: str) -> ShellComplete:
    """Return the completion of a shell, in which a task needs no command."""
    kind = get_completion_class(shell)
    assert kind is not None

    class Completer(kind):
        # fish: a title or a summary may hold commas itself
        source_template = kind.source_template.replace('split ","', 'split -m 1 ","')

        def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
            if args[:1] == ["help"]:
                return super().get_completions(args[1:], incomplete)
            found = super().get_completions(rewrite(args), incomplete)
            if not args:  # options of a task and of the program, and the commands
                known = {item.value for item in found}
                found += [item for item in super().get_completions([], incomplete) if item.value not in known]
            return found

    return Completer(root, {}, "lmagent", VARIABLE)


def answer(root: click.Group, instruction: str) -> int:
    """Print the answer to the shell's question; returns the exit code."""
    shell, _, action = instruction.partition("_")
    if shell not in _SHELLS or action not in ("source", "complete"):
        return 1
    found = completer(root, shell)
    click.echo(found.source() if action == "source" else found.complete())
    return 0


def session_ids(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    with suppress(LmagentError, OSError):
        rows = open_records(context.meta.get(WORKSPACE)).rows(MOST, "")
        return [CompletionItem(row.id, help=row.title) for row in rows if row.id.startswith(incomplete)]
    return []


def model_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from lmagent.providers.discovery import models

    async def ask(url: str, key: str) -> Sequence[str]:
        transport = HttpTransport()
        try:
            with anyio.move_on_after(PATIENCE):
                return await models(url, key, transport=transport)
        finally:
            await transport.aclose()
        return ()

    with suppress(LmagentError, OSError):
        settings = loaded_settings(context.meta.get(WORKSPACE)).settings
        names = anyio.run(ask, context.params.get("base_url") or settings.endpoint, settings.key)
        return [CompletionItem(name) for name in names if name.lower().startswith(incomplete.lower())]
    return []
