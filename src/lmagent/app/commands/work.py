"""The slash commands of long work: /todo, /plan, /deep, /work and /cron."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from lmagent.app.registry import SlashCommand
from lmagent.app.slash import WORK, SlashContext, SlashResult, need_session
from lmagent.core.commands import ChangeTasks, DecidePlan, SetWork
from lmagent.core.errors import ConfigError
from lmagent.core.work import Budget, Task, TaskState, WorkMode
from lmagent.engine import budget, worktext
from lmagent.planning import editing
from lmagent.planning.plans import plan_text
from lmagent.planning.tasks import fresh
from lmagent.schedule.crontab import cron_history, cron_list, history_text, list_text
from lmagent.schedule.jobs import find_job, set_enabled
from lmagent.tools.sanitize import visible

if TYPE_CHECKING:
    from lmagent.engine.session import Session

BY = "slash"

DECISIONS = ("approve", "reject", "revise", "edit")
TODO = "[add TEXT|done ID|open ID|drop ID|drop state]"
PLAN = "[TASK|show|approve|edit|revise WORDS|reject]"
CRON = "[run ID|toggle ID|history [ID]]"


def commands() -> Iterator[SlashCommand]:
    for name, usage, help, run in (
        ("todo", TODO, "show the tasks of this session, or change them", _todo),
        ("plan", PLAN, "plan a task first, or decide on the plan", _plan),
        ("deep", "[TASK|more [STEPS]]", "work long on a task, within a budget, and report", _deep),
        ("work", "[normal|bounded]", "show or change how the session works, and its budget", _work),
        ("cron", CRON, "show the jobs that run by the clock, or run or switch one", _cron),
    ):
        yield SlashCommand(name, usage, help, run, WORK)


# --- tasks --------------------------------------------------------------------------------------------------------


async def _todo(context: SlashContext, line: str) -> SlashResult:
    verb, _, rest = line.partition(" ")
    rest = rest.strip()
    if not verb or verb == "list":
        return SlashResult(_listed(context.session))
    session = need_session(context)
    work = session.state.work
    if verb not in ("add", "done", "open", "drop") or not rest:
        fix = "/todo add TEXT, /todo done ID, /todo open ID, /todo drop ID, /todo drop state"
        raise ConfigError(f"/todo does not know {line!r}", fix=fix)
    if verb == "add":
        task = Task(fresh(work, "todo"), "todo", rest)
        await session.send(ChangeTasks(items=(task,), by=BY))
        return SlashResult(f"{task.id}: {task.title}")
    if (verb, rest) == ("drop", "state") and "state" not in work.tasks:
        await session.send(ChangeTasks(state=TaskState(), by=BY))
        return SlashResult("dropped the task state")
    ids = tuple(dict.fromkeys(rest.split()))
    if verb == "drop":
        await session.send(ChangeTasks(removed=ids, by=BY))
        return SlashResult(f"dropped {', '.join(ids)}")
    if unknown := [id for id in ids if id not in work.tasks]:
        raise ConfigError(f"there is no task {', '.join(unknown)}", fix="/todo lists them")
    status = "completed" if verb == "done" else "pending"
    await session.send(ChangeTasks(items=tuple(replace(work.tasks[id], status=status) for id in ids), by=BY))
    return SlashResult(f"{status}: {', '.join(ids)}")


def _listed(session: Session | None) -> str:
    if session is None:
        return "there are no tasks yet"
    work = session.state.work
    tasks = list(work.tasks.values())
    lines = [f"{worktext.counted(tasks)} done", worktext.rows(tasks)] if tasks else []
    if state := worktext.state_lines(work.state):
        lines += ["Task state:", *state]
    lines += worktext.delegated_lines(work)
    return "\n".join(lines) or "there are no tasks yet"


# --- plans --------------------------------------------------------------------------------------------------------


async def _plan(context: SlashContext, line: str) -> SlashResult:
    verb, _, words = line.partition(" ")
    waiting = context.session is not None and context.session.state.work.proposal is not None
    if not line:
        return _shown(context) if waiting else await _set(context, SetWork(mode="plan", by=BY), "")
    if verb == "show" and not words:
        return _shown(context)
    if verb == "off" and not words:
        return await _set(context, SetWork(mode="normal", by=BY), "")
    if verb in DECISIONS and (not words or verb == "revise"):
        return await _decide(need_session(context), verb, words.strip())
    return await _set(context, SetWork(mode="plan", by=BY), line)


def _shown(context: SlashContext) -> SlashResult:
    work = need_session(context).state.work
    plan = work.proposal.plan if work.proposal is not None else work.plan
    if plan is None:
        raise ConfigError("there is no plan", fix="/plan TASK makes one")
    waits = "\n\nIt waits: /plan approve, edit, revise WORDS or reject" if work.proposal is not None else ""
    return SlashResult(f"{visible(plan_text(plan))}{waits}")


async def _decide(session: Session, verb: str, words: str) -> SlashResult:
    if verb == "revise":
        command = DecidePlan(decision="revise", feedback=words, by=BY)
    else:
        command = await editing.decision({"approve": "y", "reject": "n", "edit": "e"}[verb], session, by=BY)
    if command is None:
        return SlashResult(editing.UNDECIDED)
    await session.send(command)
    return SlashResult(editing.DECIDED[command.decision], run=command.decision != "rejected")


# --- ways of working --------------------------------------------------------------------------------------------


async def _deep(context: SlashContext, line: str) -> SlashResult:
    verb, _, steps = line.partition(" ")
    if verb == "more" and (not steps or steps.isdigit()):
        return await _more(context, steps)
    if not line:
        raise ConfigError("/deep needs a task", fix="/deep TASK, or /deep more [STEPS] for another budget")
    planning = context.host.settings.deep_planning
    command = SetWork(mode="plan", then="deep", by=BY) if planning else SetWork(mode="deep", by=BY)
    return await _set(context, command, line)


async def _more(context: SlashContext, steps: str) -> SlashResult:
    """Extend the budget, in planning too: only the user's decision ends that."""
    work = need_session(context).state.work
    if steps and not (steps.isascii() and len(steps) < 10):
        raise ConfigError(f"{steps[:20]} is no number of model calls", fix="/deep more 200")
    if work.proposal is not None:
        raise ConfigError("a plan waits for your decision", fix="/plan approve, and then /deep more")
    budget = Budget(int(steps), None) if steps else Budget()
    command = SetWork(mode="deep", budget=budget, by=BY)
    if work.mode == "plan" and work.then == "deep":
        command = SetWork(mode="plan", then="deep", budget=budget, by=BY)
    return await _set(context, command, "")


async def _work(context: SlashContext, mode: str) -> SlashResult:
    modes: dict[str, WorkMode] = {"normal": "normal", "bounded": "bounded"}
    if not mode:
        return SlashResult(_how(need_session(context)))
    if mode not in modes:
        raise ConfigError(f"/work does not know {mode!r}", fix="/work normal, /work bounded, /plan TASK or /deep TASK")
    return await _set(context, SetWork(mode=modes[mode], by=BY), "")


async def _set(context: SlashContext, command: SetWork, task: str) -> SlashResult:
    session = context.session
    if session is not None and session.running:
        raise ConfigError("the agent is working", fix="wait until it has finished, or interrupt it")
    session = session or await context.host.new_session()
    await session.send(command)
    new = session if session is not context.session else None
    return SlashResult("" if task else _how(session), submit=task, session=new)


def _how(session: Session) -> str:
    work, used = session.state.work, budget.used(session.state)
    words = {
        "normal": "ordinary work",
        "bounded": f"short work: at most {session.agent.limits.bounded} model calls a turn",
        "plan": "plan mode: the next task is planned, and nothing is changed before you approve; /plan off leaves",
        "deep": "deep work",
    }
    lines = [words[work.mode]]
    if work.budget.steps is not None:
        lines.append(f"{used.steps:,} of {work.budget.steps:,} model calls")
    if work.budget.tokens is not None:
        lines.append(f"{used.tokens:,} of {work.budget.tokens:,} tokens")
    return "\n".join(lines)


# --- jobs that run by the clock -----------------------------------------------------------------------------------


async def _cron(context: SlashContext, words: str) -> SlashResult:
    workspace = context.host.workspace
    verb, _, id = words.partition(" ")
    match verb, id.strip():
        case (("" | "list"), _):
            return SlashResult(list_text(cron_list(workspace)))
        case "history", id:
            return SlashResult(history_text(cron_history(workspace, id)))
        case "toggle", id if id:
            job = set_enabled(workspace, id, not find_job(workspace, id).enabled)
            return SlashResult(f"{id} is switched {'on' if job.enabled else 'off'}")
        case "run", id if id:
            return SlashResult(submit=find_job(workspace, id).prompt)
        case _:
            raise ConfigError(f"/cron does not know {words!r}", fix=f"/cron {CRON}")
