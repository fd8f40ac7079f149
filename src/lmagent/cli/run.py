"""`lmagent run TASK` (also `lmagent TASK`) and `lmagent chat`."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from lmagent.cli import shared
from lmagent.cli.streams import with_piped

if TYPE_CHECKING:
    from lmagent.app.host import Host
    from lmagent.config.settings import Settings
    from lmagent.core.commands import SetWork
    from lmagent.headless.oneshot import TaskRequest

NO_SERVER = """\
lmagent: no model server is configured, and none was found on this machine
  → start LM Studio, Ollama or another server, or name one: --base-url URL
    lmagent models recommend    models that lmagent runs itself
    lmagent demo                see it at work without a model server"""

plan_options = shared.together(
    click.option("--plan", is_flag=True, help="Only read, propose a plan, and begin when you approve it."),
    click.option("--deep", is_flag=True, help="Work long on it within a budget, by a plan; write a report."),
    click.option("--yes-plan", is_flag=True, help="Approve the plan unread, as for a run at night."),
    click.option("--budget-steps", type=click.IntRange(min=1), help="Model calls of --deep in all."),
    click.option("--budget-tokens", type=click.IntRange(min=1), help="Tokens of --deep in all."),
)


@click.command()
@click.argument("words", metavar="[TASK]", nargs=-1)
@shared.workspace_option
@shared.resume_option
@click.option("--list-sessions", is_flag=True, help="List sessions and exit.")
@shared.events_option
@click.option(
    "--output-schema", type=click.Path(path_type=Path), help="Make the final answer JSON that follows this schema."
)
@plan_options
@shared.model_options
def run(
    words: tuple[str, ...],
    workspace: Path | None,
    resume: str,
    latest: bool,
    list_sessions: bool,
    as_json: bool,
    output_schema: Path | None,
    **options: Any,
) -> int:
    """Do one task and exit; without a task, open the conversation.

    Text piped in is added to the task. Exit codes: 0 done, 1 error, 2 limit reached, 3 blocked or waiting for the
    user, 4 permission denied, 64 usage error, 130 interrupted.
    """
    if list_sessions:
        from lmagent.cli.sessions import print_sessions

        return print_sessions(workspace, 20, "", as_json=as_json)
    if len(words) > 1 and not sys.stdin.isatty():  # on a terminal several words are a task too
        raise click.UsageError('put the task in quotes: lmagent "' + " ".join(words) + '"')
    typed, resumed = " ".join(words), bool(resume or latest)
    task = with_piped(typed, needed=not (typed or resumed))
    if not task:
        if options["plan"] or options["deep"]:
            raise click.UsageError("--plan and --deep need a task; in the conversation: /plan TASK, /deep TASK")
        if sys.stdin.isatty() and not (as_json or output_schema) and (sys.stdout.isatty() or not resumed):
            return _talk(workspace, resume, options, latest=latest)
        if not resumed:
            raise click.UsageError('no task given: lmagent "what to do"')
    if resume == shared.PICK:
        raise click.UsageError("--resume needs the ID of a session here; lmagent sessions lists them")
    from lmagent.headless.oneshot import TaskRequest

    request = TaskRequest(task, resume, as_json, output_schema, typed=typed)
    return _one_shot(workspace, request, options, latest=latest and not resume)


@click.command()
@shared.workspace_option
@shared.resume_option
@click.option("--plain", is_flag=True, help="Plain lines only: no colours, nothing redrawn.")
@shared.model_options
def chat(workspace: Path | None, resume: str, latest: bool, plain: bool, **options: Any) -> int:
    """Talk with the agent in the terminal."""
    return _talk(workspace, resume, options, latest=latest, plain=plain)


def _one_shot(workspace: Path | None, request: TaskRequest, options: dict[str, Any], *, latest: bool) -> int:
    from lmagent.core.model import split_name
    from lmagent.headless.oneshot import ERROR, run_task

    attended = not request.json and sys.stdin.isatty() and sys.stderr.isatty()
    given = shared.host_options(workspace, options, attended=attended)

    async def do(host: Host) -> tuple[int, Settings]:
        session = host.require_latest() if latest else request.resume
        work = _work(options, planning=host.settings.deep_planning)
        return await run_task(host, replace(request, resume=session, work=work)), host.settings

    code, settings = shared.with_host(given, do)
    if code == ERROR and given.replay is None:
        if not settings.given_endpoint and not split_name(settings.llm_model)[0]:
            shared.say(NO_SERVER)
        else:
            from lmagent.cli.answering import say_what_answers

            say_what_answers(given)
    return code


def _work(options: dict[str, Any], *, planning: bool) -> SetWork | None:
    """Return the session's mode of work; None if no option sets it. `planning`: deep work begins with a plan."""
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


def _talk(
    workspace: Path | None, resume: str, options: dict[str, Any], *, latest: bool = False, plain: bool = False
) -> int:
    from lmagent.cli.answering import greeted
    from lmagent.repl.app import run_repl  # loads the terminal's library

    async def do(host: Host) -> int:
        gc.freeze()  # loaded modules stay: no collection needs to look at them again
        gc.enable()
        name = "" if resume == shared.PICK else resume or (host.require_latest() if latest else "")
        return await run_repl(host, name, pick=resume == shared.PICK, plain=plain)

    return shared.with_host(greeted(shared.host_options(workspace, options, attended=True)), do)
