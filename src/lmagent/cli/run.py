"""`lmagent run TASK` (also `lmagent TASK`) and `lmagent chat`."""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from lmagent.cli.options import PICK, flags, model_options, resume_option, workspace_option
from lmagent.cli.piped import with_piped
from lmagent.cli.working import plan_options, work_of
from lmagent.core.errors import LmagentError, ungrouped

if TYPE_CHECKING:
    from lmagent.app.host import Host
    from lmagent.app.reach import StandIn
    from lmagent.app.wiring import HostOptions
    from lmagent.config.settings import Settings

NO_SERVER = """\
lmagent: no model server is configured, and none was found on this machine
  → start LM Studio, Ollama or another server, or name one: --base-url URL
    lmagent models recommend    models that lmagent runs itself
    lmagent demo                see it at work without a model server"""


@click.command()
@click.argument("words", metavar="[TASK]", nargs=-1)
@workspace_option
@resume_option
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
    """Do one task and exit; without a task, open the conversation.

    Text piped in is added to the task. Exit codes: 0 done, 1 error, 2 limit reached, 3 blocked or waiting for the
    user, 4 permission denied, 64 usage error, 130 interrupted.
    """
    if list_sessions:
        from lmagent.cli.sessions import print_sessions

        return print_sessions(workspace, 20, "", as_json=as_json)
    typed = _task(words)
    planned = options["plan"] or options["deep"]
    task = with_piped(typed, needed=not (typed or resume or latest))
    if planned and not task:
        raise click.UsageError("--plan and --deep need a task; in the conversation: /plan TASK, /deep TASK")
    if not task:
        talking = sys.stdin.isatty() and not (as_json or output_schema)
        if talking and (sys.stdout.isatty() or not (resume or latest)):
            return _chat(workspace, resume, options, latest=latest)
        if not (resume or latest):
            raise click.UsageError('no task given: lmagent "what to do"')
    if resume == PICK:
        raise click.UsageError("--resume needs the ID of a session here; lmagent sessions lists them")
    session = None if latest and not resume else resume
    return _one_shot(task, typed, workspace, session, as_json, output_schema, options)


@click.command()
@workspace_option
@resume_option
@click.option("--plain", is_flag=True, help="Plain lines only: no colours, nothing redrawn.")
@model_options
def chat(workspace: Path | None, resume: str, latest: bool, plain: bool, **options: Any) -> int:
    """Talk with the agent in the terminal."""
    return _chat(workspace, resume, options, latest=latest, plain=plain)


def _task(words: tuple[str, ...]) -> str:
    """Return the task: one argument in quotes, or several words, which are accepted only on a terminal."""
    if len(words) > 1 and not sys.stdin.isatty():
        raise click.UsageError('put the task in quotes: lmagent "' + " ".join(words) + '"')
    return " ".join(words)


def _one_shot(
    task: str,
    typed: str,
    workspace: Path | None,
    session: str | None,
    as_json: bool,
    output_schema: Path | None,
    options: dict[str, Any],
) -> int:
    """Do a task in a session: a new one for an empty name, the newest for None."""
    import anyio

    from lmagent.app.wiring import HostOptions, open_host
    from lmagent.core.model import split_name
    from lmagent.headless.oneshot import ERROR, TaskRequest, run_task

    attended = not as_json and sys.stdin.isatty() and sys.stderr.isatty()
    host_options = HostOptions(workspace, flags(**options), options["record"], options["replay"], attended)
    if attended:
        host_options = _with_answering_server(host_options)

    async def do() -> tuple[int, Settings]:
        host = await open_host(host_options, say=_say)
        try:
            request = TaskRequest(
                task,
                _latest(host) if session is None else session,
                as_json,
                output_schema,
                work=work_of(options, planning=host.settings.deep_planning),
                typed=typed,
            )
            with _defects_explained(host):
                return await run_task(host, request), host.settings
        finally:
            await host.aclose()

    code, settings = anyio.run(do)
    if code == ERROR and options["replay"] is None:
        if not settings.given_endpoint and not split_name(settings.llm_model)[0]:
            _say(NO_SERVER)
        elif not attended and (found := _stand_in(host_options)) is not None:
            _say(f"lmagent: {found}\n  → {found.fix}")
    return code


@contextmanager
def _defects_explained(host: Host) -> Generator[None]:
    """Turn an unexpected error into a sentence that says how to resume the session."""
    try:
        with ungrouped():
            yield
    except (LmagentError, click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except Exception as defect:
        from lmagent.app.logs import unexpected

        session = next(iter(host.sessions), "")
        back = {"back": f"lmagent --resume {session}"} if session else {}
        raise unexpected(defect, host.workspace, host.settings, **back) from defect


def _latest(host: Host) -> str:
    from lmagent.core.errors import SessionNotFound

    if session := host.latest():
        return session
    raise SessionNotFound("there is no session here to continue", fix="lmagent starts one")


def _chat(
    workspace: Path | None, resume: str, options: dict[str, Any], *, latest: bool = False, plain: bool = False
) -> int:
    import anyio

    from lmagent.app.wiring import HostOptions, open_host
    from lmagent.repl.app import run_repl

    host_options = _greeted(
        HostOptions(workspace, flags(**options), options["record"], options["replay"], attended=True)
    )

    async def do() -> int:
        host = await open_host(host_options, say=_say)
        gc.freeze()  # loaded modules stay: no collection needs to look at them again
        gc.enable()
        try:
            name = "" if resume == PICK else resume or (_latest(host) if latest else "")
            with _defects_explained(host):
                return await run_repl(host, name, pick=resume == PICK, plain=plain)
        finally:
            await host.aclose()

    return anyio.run(do)


def _greeted(options: HostOptions) -> HostOptions:
    """Return the options with the answers of the first run, or with a server that answers in place of a silent one."""
    from lmagent.app.firstrun import Person, first_run, is_first_run

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return options
    if not is_first_run(options):
        return _with_answering_server(options)
    return first_run(
        options,
        Person(
            ask=lambda question, default: str(click.prompt(question, default=default)),
            confirm=lambda question: click.confirm(question, default=True),
            say=click.echo,
            download=lambda name: _download(options, name),
            demo=_demo,
        ),
    )


def _download(options: HostOptions, name: str) -> str:
    from lmagent.cli.models import open_library
    from lmagent.cli.models_fetch import download

    return download(open_library(options.workspace), name)


def _demo() -> None:
    from lmagent.cli.demo import demo

    click.get_current_context().exit(demo.main([], standalone_mode=False) or 0)


def _stand_in(options: HostOptions) -> StandIn | None:
    from lmagent.app.wiring import load_settings
    from lmagent.providers.transport import is_silent

    loaded = load_settings(options)
    url = loaded.settings.given_endpoint
    if options.replay is not None or not url or not is_silent(url):
        return None
    import anyio

    from lmagent.app.reach import stand_in

    return anyio.run(stand_in, loaded)


def _with_answering_server(options: HostOptions) -> HostOptions:
    """Return the options with a server that answers, if the configured one does not and the user agrees."""
    found = _stand_in(options)
    if found is None or not click.confirm(f"{found}. Use it?", default=True, err=True):
        return options
    from lmagent.app.reach import keep
    from lmagent.app.wiring import load_settings

    _say(keep(load_settings(options), found))
    return replace(options, flags={**options.flags, "llm_url": found.server.base_url})


def _say(text: str) -> None:
    click.echo(text, err=True)
