"""Options for how to work on a task: planned first, or long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lmagent.cli.options import Function

if TYPE_CHECKING:
    from lmagent.core.commands import SetWork


def plan_options(function: Function) -> Function:
    for option in reversed(
        (
            click.option("--plan", is_flag=True, help="Only read, propose a plan, and begin when you approve it."),
            click.option("--deep", is_flag=True, help="Work long on it within a budget, by a plan; write a report."),
            click.option("--yes-plan", is_flag=True, help="Approve the plan unread, as for a run at night."),
            click.option("--budget-steps", type=click.IntRange(min=1), help="Model calls of --deep in all."),
            click.option("--budget-tokens", type=click.IntRange(min=1), help="Tokens of --deep in all."),
        )
    ):
        function = option(function)
    return function


def work_of(options: dict[str, Any], *, planning: bool) -> SetWork | None:
    """Return the session's mode of work; None if no option sets it.

    Args:
        options: of the command line.
        planning: whether deep work begins with a plan.
    """
    steps, tokens = options["budget_steps"], options["budget_tokens"]
    if not (options["plan"] or options["deep"]):
        if steps or tokens:
            raise click.UsageError("a budget belongs to --deep")
        return None
    from lmagent.core.commands import SetWork
    from lmagent.core.work import Budget

    if not options["deep"]:
        return SetWork(mode="plan", by="cli")
    budget = Budget(steps, tokens)
    if options["plan"] or planning:
        return SetWork(mode="plan", then="deep", budget=budget, by="cli")
    return SetWork(mode="deep", budget=budget, by="cli")
