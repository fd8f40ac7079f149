"""`lmagent tool list|call`: the tools, with the same guards that the agent has."""

from __future__ import annotations

import sys
from pathlib import Path
from shutil import get_terminal_size

import anyio
import click
import msgspec

from lmagent.app.commands.charts import tool_rows
from lmagent.app.single import call_tool, open_toolbox
from lmagent.cli.shared import CommandGroup, print_json, workspace_option
from lmagent.tools.sanitize import visible


@click.group(cls=CommandGroup, default="list")
def tool() -> None:
    """List the tools, or call one yourself."""


@tool.command("list")
@workspace_option
@click.option("--json", "as_json", is_flag=True, help="With their argument schemas.")
def list_(workspace: Path | None, as_json: bool) -> None:
    """List the tools."""
    tools = tuple(open_toolbox(workspace))
    if as_json:
        specs = ((msgspec.to_builtins(item.spec), item) for item in tools)
        print_json(*({**spec, "effect": item.effect, "aliases": item.aliases} for spec, item in specs))
        return
    width = get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize  # elsewhere a tool is a line
    for line in tool_rows(tools, width):
        click.echo(line)


@tool.command("call")
@click.argument("name")
@click.argument("arguments", default="{}")
@workspace_option
@click.option("--yes", is_flag=True, help="Run it without a question; deny rules hold all the same.")
def call(name: str, arguments: str, workspace: Path | None, yes: bool) -> int:
    """Run one tool on the workspace and print its result; exit 1 if it is refused or fails.

    ARGUMENTS is a JSON object. Permission mode and rules hold as in a session: a call that needs an approval is asked
    about in a terminal, and refused elsewhere unless --yes is given. A file that exists counts as read.
    """

    def ask(question: str) -> bool:
        if yes:
            return True
        return sys.stdin.isatty() and click.confirm(f"{visible(question)}\nAllow this call?", err=True)

    result = anyio.run(call_tool, workspace, name, arguments, ask)
    click.echo(result.text, err=result.status == "refused")
    sys.stdout.flush()
    return 0 if result.status == "done" else 1
