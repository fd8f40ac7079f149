"""Planning in this program: tasks, plan mode and deep work, with the user's settings."""

from __future__ import annotations

from lmagent.app.registry import Registry
from lmagent.core.work import Budget
from lmagent.planning.feature import Choices, Planning
from lmagent.planning.notes import BATCH, STEPS


def register(registry: Registry) -> None:
    settings = registry.settings
    choices = Choices(
        todos=settings.enable_todo_tracking,
        enforce=settings.enable_plan_enforcement,
        deep=Budget(settings.deep_steps, settings.deep_tokens),
        approve=settings.approve_plans,
        small=lambda: registry.profile.name == "4k",
    )
    planning = Planning(registry.records.session, registry.records.events, choices)
    for tool in planning.tools:
        registry.tool(tool)
    registry.hides.append(lambda _: {*STEPS, *BATCH})
    registry.session_notes += planning.notes
    registry.reviews.append(planning)
    registry.fences.append(planning.fence)
    registry.orders.update(planning.orders)
    registry.openers.append(planning.opened)
    registry.command_modules.append("lmagent.app.commands_work")
