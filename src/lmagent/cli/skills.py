"""`lmagent skills …`: instructions and tested functions that the agent can use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lmagent.cli import shared
from lmagent.tools.sanitize import printable, visible

if TYPE_CHECKING:
    from lmagent.app.skilling import SkillTools


@click.group(cls=shared.CommandGroup, default="list")
@shared.group_workspace_option
def skills() -> None:
    """List, show, test and allow skills.

    A skill is a folder with a SKILL.md in .lmagent/skills, .claude/skills or ~/.agents/skills, or a Python function
    that was promoted. What you have not allowed is not used; a skill that changes has to be allowed again.
    """


def _tools(workspace: Path | None) -> SkillTools:
    from lmagent.app.skilling import open_skills

    return open_skills(workspace)


@skills.command("list")
@shared.json_lines_option
@click.pass_obj
def list_(workspace: Path | None, as_json: bool) -> None:
    """List the skills, with their states."""
    from msgspec import to_builtins

    from lmagent.skills.show import skill_line, skill_row

    shelf = _tools(workspace).shelf
    found = shelf.all()
    for skill in found:
        if as_json:
            shared.print_json(to_builtins(skill_row(shelf, skill)))
        else:
            click.echo(printable(skill_line(skill)))
    if not found and not as_json:
        shared.say("there are no skills yet; docs/skills.md shows how to write one")


@skills.command()
@click.argument("name")
@click.pass_obj
def show(workspace: Path | None, name: str) -> None:
    """Show all of a skill: its text or code, its trial, its uses."""
    from lmagent.skills.show import skill_text

    shelf = _tools(workspace).shelf
    click.echo(visible(skill_text(shelf, shelf.find(name))))


@skills.command()
@click.argument("name")
@click.pass_obj
def test(workspace: Path | None, name: str) -> int:
    """Run the recorded call of a skill in the sandbox."""
    from lmagent.skills.show import trial_text

    result = _tools(workspace).test(name)
    click.echo(printable(trial_text(result)))
    return 0 if result.ok else 1


@skills.command()
@click.argument("name")
@click.pass_obj
def enable(workspace: Path | None, name: str) -> int:
    """Allow a skill as it is now; a Python skill has to pass its trial first."""
    from lmagent.skills.show import enabled_text

    result = _tools(workspace).enable(name)
    click.echo(printable(enabled_text(name, result)))
    return 0 if result.ok else 1


@skills.command()
@click.argument("name")
@click.pass_obj
def disable(workspace: Path | None, name: str) -> None:
    """Stop using a skill."""
    shelf = _tools(workspace).shelf
    shelf.disable(shelf.find(name))
    click.echo(f"{name} is disabled")


@skills.command()
@click.argument("name")
@click.pass_obj
def rollback(workspace: Path | None, name: str) -> None:
    """Bring back the version of a Python skill before the one in use."""
    skill = _tools(workspace).shelf.rollback(name)
    assert skill.manifest is not None
    click.echo(f"{name} is version {skill.manifest.version} again ({skill.state})")


@skills.command("rm")
@click.argument("name")
@click.pass_obj
def remove(workspace: Path | None, name: str) -> None:
    """Delete one of the workspace's own skills."""
    shelf = _tools(workspace).shelf
    shelf.remove(shelf.find(name))
    click.echo(f"removed {name}")


@skills.command("import")
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.pass_obj
def import_(workspace: Path | None, path: Path) -> int:
    """Propose the public functions of a Python file, or of all in a folder, such as memory/skills of agent_computer.

    Each is tried by the first example (`>>> f(…)`) of its docstring.
    """
    taken = _tools(workspace).take(path, lambda name, outcome: click.echo(printable(f"{name}: {outcome}")))
    return 0 if taken else 1
