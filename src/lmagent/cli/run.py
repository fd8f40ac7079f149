"""`lmagent run TASK` (also `lmagent TASK`) and `lmagent chat`."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lmagent.cli.options import flags, model_options, resume_option, workspace_option
from lmagent.cli.piped import with_piped
from lmagent.cli.working import plan_options, work_flags, work_of

if TYPE_CHECKING:
    from lmagent.app.wiring import HostOptions


@click.command()
@click.argument("words", metavar="[TASK]", nargs=-1)
@workspace_option
@resume_option
@click.option("--continue", "latest", is_flag=True, help="Go on with the newest session of this workspace.")
@click.option("--list-sessions", is_flag=True, help="List sessions and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print events as JSON lines.")
@click.option(
    "--output-schema", type=click.Path(path_type=Path), help="Make the final answer JSON that follows this schema."
)
@plan_options
@model_options
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
    """Do one task and exit.

    Text piped in is added to the task. Exit codes: 0 done, 1 error, 2 limit reached, 3 blocked or waiting for a
    person, 4 permission denied, 64 usage error, 130 interrupted.
    """
    if list_sessions:
        from lmagent.cli.sessions import print_sessions

        return print_sessions(workspace, 20, "", as_json=as_json)
    task = _task(words)
    planned = options["plan"] or options["deep"]
    task = with_piped(task, needed=not (task or resume or latest))
    if planned and not task:
        raise click.UsageError("--plan and --deep need a task; in the conversation: /plan TASK, /deep TASK")
    if not task and not resume and not latest:
        if as_json or output_schema or not sys.stdin.isatty():
            raise click.UsageError('no task given: lmagent "what to do"')
        return _chat(workspace, "", options)
    return _one_shot(task, workspace, resume, latest, as_json, output_schema, options)


@click.command()
@workspace_option
@resume_option
@click.option("--plain", is_flag=True, help="Plain lines only: no colours, nothing redrawn.")
@model_options
def chat(workspace: Path | None, resume: str, plain: bool, **options: Any) -> int:
    """Talk with the agent in the terminal."""
    return _chat(workspace, resume, options, plain=plain)


def _task(words: tuple[str, ...]) -> str:
    """The task: one argument in quotes, or words without quotes, which only a person at a terminal leaves out."""
    if len(words) > 1 and not sys.stdin.isatty():
        raise click.UsageError('put the task in quotes: lmagent "' + " ".join(words) + '"')
    return " ".join(words)


def _one_shot(
    task: str,
    workspace: Path | None,
    resume: str,
    latest: bool,
    as_json: bool,
    output_schema: Path | None,
    options: dict[str, Any],
) -> int:
    import anyio

    from lmagent.app.wiring import HostOptions, open_host
    from lmagent.core.errors import SessionNotFound
    from lmagent.headless.oneshot import TaskRequest, run_task

    attended = not as_json and sys.stdin.isatty() and sys.stderr.isatty()
    host_options = HostOptions(
        workspace, {**flags(**options), **work_flags(options)}, options["record"], options["replay"], attended
    )

    async def do() -> int:
        host = await open_host(host_options, say=_say)
        try:
            session = resume or (host.latest() if latest else "")
            if latest and not session:
                raise SessionNotFound("there is no session to continue", fix='lmagent "TASK" starts one')
            color = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
            request = TaskRequest(
                task,
                session or "",
                as_json,
                output_schema,
                color,
                work=work_of(options, planning=host.settings.deep_planning),
            )
            return await run_task(host, request)
        finally:
            await host.aclose()

    return anyio.run(do)


def _chat(workspace: Path | None, resume: str, options: dict[str, Any], *, plain: bool = False) -> int:
    import anyio

    from lmagent.app.wiring import HostOptions, open_host
    from lmagent.repl.app import run_repl

    host_options = _greeted(
        HostOptions(workspace, flags(**options), options["record"], options["replay"], attended=True)
    )

    async def do() -> int:
        host = await open_host(host_options, say=_say)
        gc.freeze()  # what was loaded stays: no collection needs to look at it again
        gc.enable()
        try:
            return await run_repl(host, resume=resume, plain=plain)
        finally:
            await host.aclose()

    return anyio.run(do)


def _greeted(options: HostOptions) -> HostOptions:
    """The options, with the answers of the first run if it is the first and a person is there to answer."""
    from lmagent.app.firstrun import Person, first_run, is_first_run

    if not (sys.stdin.isatty() and sys.stdout.isatty()) or not is_first_run(options):
        return options
    return first_run(
        options,
        Person(
            ask=lambda question, default: str(click.prompt(question, default=default)),
            confirm=lambda question: click.confirm(question, default=True),
            say=click.echo,
        ),
    )


def _say(text: str) -> None:
    click.echo(text, err=True)
