"""The pages of `--help`, as a terminal of 80 columns shows them."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from lmagent.cli.main import COMMANDS
from lmagent.cli.root import root


def _pages() -> Iterator[tuple[str, ...]]:
    def below(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield path
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                yield from below(inner, (*path, name))

    yield from below(root, ())


def page(*path: str) -> str:
    return CliRunner().invoke(root, [*path, "--help"], prog_name="lmagent", terminal_width=80).output


@pytest.mark.parametrize("path", list(_pages()), ids=" ".join)
def test_a_page_fits_80_columns_and_cuts_no_summary(path):
    rows = page(*path).splitlines()
    assert [row for row in rows if len(row) > 80] == []
    assert [row for row in rows if row.endswith("...") and not row.startswith("Usage:")] == []


def test_the_first_page_shows_examples_options_of_a_task_and_each_command_under_a_heading():
    text = page()
    examples = text.split("Examples:\n")[1].split("\n\n")[0].splitlines()
    assert 4 <= len(examples) <= 6
    for option in ("-c, --continue", "--resume", "-m, --model", "-w, --workspace", "--permission", "--json"):
        assert f"\n  {option}" in text
    commands = {row.split()[0] for part in text.split("\n\n")[4:] for row in part.splitlines()[1:]}
    assert commands >= COMMANDS.keys() - {"daemon"}
    assert "\n  daemon" not in text


@pytest.mark.parametrize(
    ("command", "foreign"),
    [
        (("doctor",), ("--replay", "--record", "--max-iterations", "--permission", "--no-sub-agents")),
        (("plan", "reject"), ("--permission", "--replay", "--max-iterations")),
        (("sessions", "list"), ("--model",)),
    ],
)
def test_a_command_offers_only_options_that_mean_something_to_it(command, foreign):
    assert [option for option in foreign if option in page(*command)] == []


@pytest.mark.parametrize("group", ["sessions", "models", "tool", "cron", "config"])
def test_the_name_of_a_group_alone_lists_what_it_holds(program, group):
    alone, named = program.run(group), program.run(group, *([] if group == "config" else ["list"]))
    assert (alone.returncode, alone.stdout) == (named.returncode, named.stdout)
    assert "Usage:" not in alone.stdout


def test_scripts_of_earlier_agents_may_still_give_no_mcp(program):
    assert "nothing listens" in program.run("hi", "--no-mcp", "--base-url", "http://127.0.0.1:9").stderr
