"""Root: the group of all commands. Each is imported when it is called: a one-shot run pays for none of the others."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import click

from lmagent import __version__
from lmagent.cli.main import COMMANDS, USAGE
from lmagent.core.errors import LmagentError


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog='lmagent "TASK" does one task (see lmagent run --help); lmagent alone starts a conversation.',
)
@click.version_option(__version__, prog_name="lmagent")
def root() -> None:
    """A locally-hosted AI agent: it works in a folder with tools, on any OpenAI-compatible model."""


def call(arguments: Sequence[str]) -> int:
    """Call the command with arguments that name it; returns the exit code."""
    try:
        code = root.main(list(arguments), prog_name="lmagent", standalone_mode=False)
    except click.exceptions.Exit as ended:
        code = ended.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = 130
    except click.ClickException as wrong:
        wrong.show()
        code = USAGE if isinstance(wrong, click.UsageError) else wrong.exit_code
    except LmagentError as failure:
        from lmagent.tools.sanitize import printable  # errors quote what servers and files say

        click.echo(printable(f"lmagent: {failure}"), err=True)
        code = 1
    return code if isinstance(code, int) else 0
