"""Orders: the user's decisions about tasks, plans and the mode of work."""

from __future__ import annotations

from lmagent.core.commands import ChangeTasks, DecidePlan, SetWork, Submit
from lmagent.core.errors import ConfigError
from lmagent.core.events import DurableEvent, PlanDecided, TasksChanged, WorkChanged
from lmagent.core.ids import InputOrigin
from lmagent.core.messages import user
from lmagent.core.work import Budget, Plan
from lmagent.engine.session import Session
from lmagent.planning.plans import Unusable, plan_json, steps_of
from lmagent.planning.proposing import usable
from lmagent.planning.tree import faults

BEGIN = (
    "The plan is approved, as the tasks above list it. Carry it out, each step when what it depends on is done. After "
    "each step, check it as its verification says, and call plan_complete_step (through use_tool) with what you saw."
)


async def carry_out(session: Session, command: SetWork | DecidePlan | ChangeTasks, deep: Budget) -> DurableEvent:
    """Carry out a command; `deep` is the budget of deep work if the command names none."""
    match command:
        case SetWork():
            return await _set_work(session, command, deep)
        case DecidePlan():
            return await decide(session, command)
        case ChangeTasks():
            return await _change_tasks(session, command)


async def _set_work(session: Session, command: SetWork, deep: Budget) -> DurableEvent:
    """Switch the mode of work; a waiting plan is dropped."""
    if command.mode == "plan" and command.then == "plan":
        raise ConfigError("a plan cannot be followed by planning", fix="/plan TASK, or /deep TASK")
    budget = command.budget
    if any(limit is not None and limit <= 0 for limit in (budget.steps, budget.tokens)):
        raise ConfigError("a budget must be more than 0", terminal="--budget-steps 200 --budget-tokens 1500000")
    if "deep" in (command.mode, command.then if command.mode == "plan" else ""):
        budget = Budget(budget.steps or deep.steps, budget.tokens or deep.tokens)
    if (proposal := session.state.work.proposal) is not None:
        await session.record(PlanDecided(proposal=proposal.id, decision="rejected", by=command.by))
    return await session.record(
        WorkChanged(mode=command.mode, budget=budget, then=command.then, by=command.by), sync=True
    )


async def decide(session: Session, command: DecidePlan) -> DurableEvent:
    """Decide on the waiting plan, and start the work that follows from it."""
    proposal, choice, feedback = session.state.work.proposal, command.decision, command.feedback.strip()
    if proposal is None:
        typed = "/plan TASK, or lmagent --plan TASK, makes one"
        raise ConfigError("there is no plan to decide on", fix="/plan TASK makes one", terminal=typed)
    if choice == "revise" and not feedback:
        raise ConfigError("to have a plan revised, say what should be otherwise", fix="/plan revise WORDS")
    plan: Plan | None = None
    if choice == "approved":
        found = usable(session, plan_json(command.plan or proposal.plan))
        if isinstance(found, Unusable):
            raise ConfigError(f"the plan cannot be followed: {found.words}", fix="edit it again; nothing was decided")
        plan = found
    decided = PlanDecided(proposal=proposal.id, decision=choice, plan=plan, feedback=feedback, by=command.by)
    event = await session.record(decided, sync=True)
    await settle(session)
    return event


async def _change_tasks(session: Session, command: ChangeTasks) -> DurableEvent:
    """Change tasks for the user, all or none."""
    tasks = dict(session.state.work.tasks)
    unknown = [id for id in command.removed if id not in tasks]
    if unknown or not (command.items or command.removed or command.state is not None):
        raise ConfigError(f"there is no task {', '.join(unknown) or 'to change'}", fix="/todo lists them")
    tasks.update((task.id, task) for task in command.items)
    for id in command.removed:
        del tasks[id]
    found = faults({id: task.depends_on for id, task in tasks.items()})
    found += faults({id: (task.parent,) if task.parent else () for id, task in tasks.items()})
    if found or any(not task.title.strip() or not task.id.strip() for task in command.items):
        raise ConfigError("; ".join(found[:5]) or "a task needs an id and a title", fix="nothing was changed")
    event = TasksChanged(items=command.items, removed=command.removed, state=command.state, by=command.by or "user")
    return await session.record(event, sync=True)


async def settle(session: Session) -> None:
    """Record the consequences of the last decision that are not on record yet: a crash may have come between."""
    work = session.state.work
    decided = work.decided
    if decided is None:
        return
    if decided.decision == "rejected":
        if work.mode == "plan":
            await session.record(WorkChanged(mode="normal", by=decided.by), sync=True)
        return
    origin = InputOrigin("plan", decided.proposal)
    if origin in work.origins:
        return
    text = f"About your plan: {decided.feedback}\nAnswer with the whole plan, revised, as JSON."
    if decided.decision == "approved":
        assert work.plan is not None
        await _take_over(session, work.plan, decided.by)
        text = f"{BEGIN}\n{decided.feedback}" if decided.feedback else BEGIN
    await session.send(Submit(message=user(text), origin=origin, by=decided.by))


async def _take_over(session: Session, plan: Plan, by: str) -> None:
    work, steps = session.state.work, steps_of(plan)
    if any(work.tasks.get(step.id) != step for step in steps):
        ids = {step.id for step in steps}
        old = tuple(id for id, task in work.tasks.items() if task.kind == "step" and id not in ids)
        await session.record(TasksChanged(items=steps, removed=old, by=by or "user"))
    if work.mode == "plan":
        await session.record(WorkChanged(mode=work.then, budget=work.budget, by=by), sync=True)
