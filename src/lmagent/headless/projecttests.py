"""Project tests: run the tests of an agent project, on cassettes or with a model, and report what came of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.sax.saxutils import quoteattr

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from lmagent.app.agentproject import give_files, with_settings
from lmagent.app.options import HostOptions
from lmagent.app.prompt import DATE_NOTE, ENVIRONMENT_NOTE
from lmagent.app.wiring import open_host
from lmagent.core import events as ev
from lmagent.core.commands import Submit
from lmagent.core.errors import LmagentError, ToolError
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.engine.toolbox import Toolbox
from lmagent.headless.judging import judged
from lmagent.headless.schema import AnswerCheck
from lmagent.projects.load import AgentFolder
from lmagent.projects.tests import ProjectTest, RunOutcome, faults
from lmagent.providers.cassette import ReplayTransport

NOT_RECORDED = "it was not recorded yet: lmagent agent test --update"
NOT_JUDGED = "the recorded verdict is about other criteria, or another answer: lmagent agent test --update"

MAY_DIFFER = (DATE_NOTE, ENVIRONMENT_NOTE, r'"model":"[^"]*",?')
"""Parts of a request that may differ from the recorded one: another day, machine, or model."""

ALIKE: dict[str, Any] = {"temperature": 0.0, "seed": 1}
"""How a model samples in a test, so that it answers alike each time."""


class TestRun(Struct, frozen=True):
    """The outcome of a test: its faults, and remarks that are not faults."""

    name: str
    model: str
    seconds: float
    faults: tuple[str, ...]
    remarks: tuple[str, ...] = ()


async def run_test(folder: AgentFolder, test: ProjectTest, options: HostOptions, model: str, how: str) -> TestRun:
    """Run one test in a new workspace. `how`: "replay" its cassette, run it "live", or "record" it anew."""
    begun, remarks = time.monotonic(), list[str]()
    if how == "replay" and not test.cassette.is_file():
        return TestRun(test.name, model, 0, (NOT_RECORDED,))
    with TemporaryDirectory(prefix="lmagent-test-", ignore_cleanup_errors=True) as temporary:
        workspace = Path(os.path.realpath(temporary)) / "workspace"
        give_files(folder, workspace)
        record = Path(temporary) / "new.jsonl" if how == "record" else None
        try:
            player = ReplayTransport(test.cassette, MAY_DIFFER) if how == "replay" else None
            given = replace(options, workspace=workspace, record=record, replay=player)
            seen = await _seen(with_settings(given, folder), test, workspace, model, remarks)
            found = (*faults(test.wanted.expect, seen), *_misfits(test, seen))
        except LmagentError as error:
            found = (str(error),)
        if record is not None and not found:
            test.cassette.parent.mkdir(exist_ok=True)
            os.replace(record, test.cassette)
    return TestRun(test.name, model, time.monotonic() - begun, found, tuple(remarks))


async def _seen(options: HostOptions, test: ProjectTest, workspace: Path, model: str, remarks: list[str]) -> RunOutcome:
    # No user is asked: its workspace is new, and removed.
    flags = {"permission_mode": "auto", **options.flags, **({"llm_model": model} if model else {})}
    host = await open_host(replace(options, flags=flags), say=lambda _: None)
    assert host.named is not None  # the project's agent
    host.named = replace(host.named, options=replace(host.named.options, **ALIKE))
    calls = list[tuple[str, dict[str, Any]]]()
    finished: ev.TurnFinished | None = None
    try:
        session = await host.new_session()
        session.listen(lambda event: calls.extend(_calls(event, session.wiring.toolbox)))
        for message in test.wanted.messages:
            await session.send(Submit(message=user(message), by="test"))
            finished = await run_until_idle(session)
        assert finished is not None
        judge, verdict = test.wanted.expect.judging, ""
        if judge is not None:
            verdict = await judged(host, judge, session.state.model, test.wanted.messages, finished.answer)
            if host.replay is not None and any(one.exchange == host.replay.played for one in host.replay.deviations):
                verdict = NOT_JUDGED  # a verdict is about the text that the judge read, and no other
        if host.replay is not None and any(
            one.exchange == 1 for one in host.replay.deviations
        ):  # later ones have results
            remarks.append("the agent's prompt is not the recorded one: --update records the test anew")
    finally:
        await host.aclose()
    return RunOutcome(calls, finished.answer, finished.outcome, workspace, verdict)


def _calls(event: ev.Event, toolbox: Toolbox) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the calls of a reply by their tools' names, with their arguments: through `use_tool` and aliases too."""
    if isinstance(event, ev.MessageAdded) and event.message.role == "assistant":
        for call in event.message.tool_calls:
            try:
                invocation = toolbox.resolve(call)
            except ToolError:
                yield call.name, {}  # there is no such tool, or its arguments do not fit
                continue
            yield invocation.tool.name, msgspec.to_builtins(invocation.arguments)


def _misfits(test: ProjectTest, seen: RunOutcome) -> Iterator[str]:
    if test.wanted.expect.json_schema is not None:
        yield from (f"the answer: {fault}" for fault in AnswerCheck(test.wanted.expect.json_schema).faults(seen.answer))


async def run_tests(
    folder: AgentFolder,
    tests: Iterable[ProjectTest],
    options: HostOptions,
    models: Iterable[str],
    how: str,
    tell: Callable[[TestRun], None],
) -> list[TestRun]:
    """Run the tests with each model, one after the other; `tell` gets each run at its end."""
    runs = list[TestRun]()
    models = tuple(models)
    for test in tests:
        for model in models:
            runs.append(await run_test(folder, test, options, model, how))
            tell(runs[-1])
    return runs


def junit(name: str, runs: Iterable[TestRun]) -> str:
    """Return the runs in JUnit's XML, as servers of continuous integration read it."""
    runs = tuple(runs)
    failed = sum(bool(run.faults) for run in runs)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuite name={quoteattr(name)} tests="{len(runs)}" failures="{failed}">',
    ]
    for run in runs:
        named = quoteattr(f"{run.name} [{run.model}]" if run.model else run.name)
        lines.append(f'  <testcase classname={quoteattr(name)} name={named} time="{run.seconds:.3f}">')
        lines += [f"    <failure message={quoteattr(fault)}/>" for fault in run.faults]
        lines.append("  </testcase>")
    return "\n".join((*lines, "</testsuite>", ""))
