"""Root: the group of all commands. Each is imported when it is called: a one-shot run pays for none of the others."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from pathlib import Path

import click

from lmagent import __version__
from lmagent.cli.main import COMMANDS, GROUPS, USAGE
from lmagent.cli.shared import WORKSPACE
from lmagent.core.errors import LmagentError, ungrouped

EXAMPLES = (
    ("lmagent", "talk with the agent in this folder"),
    ('lmagent "fix the failing test"', "do one task and exit"),
    ("lmagent -c", "continue the newest session"),
    ('git diff | lmagent "review this"', "add piped text to the task"),
    ("lmagent models recommend", "see which models this machine can run"),
    ("lmagent web", "use the agent in a browser"),
)
"""The examples that most users need, each with an explanation."""

MAIN_OPTIONS = (
    *("latest", "resume", "workspace", "model", "base_url", "permission"),
    *("sandbox", "plan", "as_json"),
)
"""Options of `run` that `lmagent --help` shows, by their parameters' names."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; an unexpected error is printed as one sentence, and its traceback is logged."""
        try:
            with ungrouped():
                return super().invoke(ctx)
        except (LmagentError, click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as defect:
            raise _explained(defect, ctx.meta.get(WORKSPACE)) from defect

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage("lmagent", "[OPTIONS] [TASK]")
        formatter.write_usage("lmagent", "COMMAND [OPTIONS] [ARGUMENTS]", "       ")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write examples, the main options of a task, and the commands under their headings."""
        from lmagent.cli.run import run

        with formatter.section("Examples"):
            formatter.write_dl(EXAMPLES, col_max=36)
        params = {param.name: param for param in run.params}
        records = [params[name].get_help_record(ctx) for name in MAIN_OPTIONS]
        records += [param.get_help_record(ctx) for param in self.get_params(ctx)]
        with formatter.section("Options (lmagent run --help shows the others)"):
            formatter.write_dl([record for record in records if record is not None])
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for group in GROUPS:
            with formatter.section(group):
                formatter.write_dl([(f"{name:<10}", text) for name, (_, text, of) in COMMANDS.items() if of == group])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="lmagent help COMMAND shows the options of a command.",
)
@click.version_option(__version__, prog_name="lmagent")
def root() -> None:
    """A local AI agent: it works in a folder with tools, on a model of LM Studio, Ollama, llama.cpp, vLLM, another
    OpenAI-compatible server, or its own engine."""


def _explained(defect: Exception, workspace: Path | None) -> LmagentError:
    from lmagent.app.logs import unexpected
    from lmagent.app.options import HostOptions, load_settings

    try:
        loaded = load_settings(HostOptions(workspace))
    except LmagentError as failure:  # the user can correct it
        return failure
    return unexpected(defect, loaded.workspace.path, loaded.settings)


def call(arguments: Sequence[str]) -> int:
    if instruction := os.environ.get("_LMAGENT_COMPLETE"):
        from lmagent.cli.completing import answer  # only shells ask

        return answer(root, instruction)
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
        from lmagent.tools.sanitize import visible  # errors quote what servers and files say

        click.echo(visible(f"lmagent: {failure}"), err=True)
        code = 1
    return code if isinstance(code, int) else 0
