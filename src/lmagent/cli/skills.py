"""`lmagent skills …`: instructions and tested functions that the agent can use."""

from __future__ import annotations

from pathlib import Path

import click

from lmagent.app.skilling import open_skills
from lmagent.cli import shared
from lmagent.skills.show import enabled_text, skill_line, skill_row, skill_text, trial_text
from lmagent.tools.sanitize import visible


@click.group(cls=shared.WorkspaceGroup, default="list")
@shared.group_workspace_option
def skills() -> None:
    """List, show, test and allow skills.

    A skill is a folder with a SKILL.md in .lmagent/skills, .claude/skills or ~/.agents/skills, or a Python function
    that was promoted. What you have not allowed is not used; a skill that changes has to be allowed again.
    """


@skills.command("list")
@shared.json_option
def list_(workspace: Path | None, as_json: bool) -> None:
    """List the skills, with their states."""
    shelf = open_skills(workspace).shelf
    found = shelf.all()
    shared.show(as_json, (skill_row(shelf, skill) for skill in found), map(skill_line, found))
    if not found and not as_json:
        shared.say("there are no skills yet; docs/skills.md shows how to write one")


@skills.command()
@click.argument("name")
def show(workspace: Path | None, name: str) -> None:
    """Show all of a skill: its text or code, its trial, its uses."""
    shelf = open_skills(workspace).shelf
    click.echo(visible(skill_text(shelf, shelf.find(name))))


@skills.command()
@click.argument("name")
def test(workspace: Path | None, name: str) -> int:
    """Run the recorded call of a skill in the sandbox."""
    result = open_skills(workspace).test(name)
    shared.echo(trial_text(result))
    return 0 if result.ok else 1


@skills.command()
@click.argument("name")
def enable(workspace: Path | None, name: str) -> int:
    """Allow a skill as it is now; a Python skill has to pass its trial first."""
    result = open_skills(workspace).enable(name)
    shared.echo(enabled_text(name, result))
    return 0 if result.ok else 1


@skills.command()
@click.argument("name")
def disable(workspace: Path | None, name: str) -> None:
    """Stop using a skill."""
    shelf = open_skills(workspace).shelf
    shelf.disable(shelf.find(name))
    click.echo(f"{name} is disabled")


@skills.command()
@click.argument("name")
def rollback(workspace: Path | None, name: str) -> None:
    """Bring back the version of a Python skill before the one in use."""
    skill = open_skills(workspace).shelf.rollback(name)
    assert skill.manifest is not None
    click.echo(f"{name} is version {skill.manifest.version} again ({skill.state})")


@skills.command("rm")
@click.argument("name")
def remove(workspace: Path | None, name: str) -> None:
    """Delete one of the workspace's own skills."""
    shelf = open_skills(workspace).shelf
    shelf.remove(shelf.find(name))
    click.echo(f"removed {name}")


@skills.command("import")
@click.argument("path", type=click.Path(exists=True, path_type=Path))
def import_(workspace: Path | None, path: Path) -> int:
    """Propose the public functions of a Python file, or of all in a folder, such as memory/skills of agent_computer.

    Each is tried by the first example (`>>> f(…)`) of its docstring.
    """
    taken = open_skills(workspace).take(path, lambda name, outcome: shared.echo(f"{name}: {outcome}"))
    return 0 if taken else 1
