"""Cases through the real agent: its host, its loop, its tools, its sandbox, on a model server that is running."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lmagent.app.host import Host
from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.core.commands import Submit
from lmagent.core.events import ToolStarted, TurnFinished
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle

from .heldout import Case, Tree

LONGEST = 400
"""Tokens of a reply at most; the longest one trained on has about 150."""

OWN = ".lmagent"
"""What the agent keeps in a workspace."""


@dataclass(frozen=True)
class Verdict:
    """What became of a case; `wrong` is empty where all was right."""

    case: Case
    wrong: str
    answer: str


async def judge(cases: Iterable[Case], url: str, workspace: Path, temperature: float = 0.0) -> list[Verdict]:
    """Run each case in a session of its own and compare the workspace, the calls and the answer.

    Args:
        cases: what is asked.
        url: the model server.
        workspace: a folder, which is cleared for each case.
        temperature: of the sampling.
    """
    workspace.mkdir(parents=True, exist_ok=True)
    flags = {"llm_url": url, "llm_temperature": temperature, "llm_max_tokens": LONGEST, "permission_mode": "auto"}
    host = await open_host(HostOptions(workspace, flags), say=lambda _: None)
    try:
        return [await _judged(host, case, workspace) for case in cases]
    finally:
        await host.aclose()


async def _judged(host: Host, case: Case, workspace: Path) -> Verdict:
    _lay_out(workspace, case.before)
    session = await host.new_session()
    await session.send(Submit(message=user(case.request.text)))
    await run_until_idle(session)
    events = list(host.store.read(session.state.session))
    end = next(event for event in reversed(events) if isinstance(event, TurnFinished))
    calls = tuple(event.tool for event in events if isinstance(event, ToolStarted))
    answer = end.answer or end.reason
    held = tree_of(workspace)
    if held != case.after:
        wrong = f"workspace: {sorted(set(held.items()) ^ set(case.after.items()), key=str)}"
    elif calls != case.calls:
        wrong = f"calls: {calls}"
    elif end.outcome != case.outcome:
        wrong = f"outcome: {end.outcome} {end.cause}"
    else:
        missing = [text for text in case.said if text not in answer]
        wrong = f"answer lacks {missing}" if missing else ""
    return Verdict(case, wrong, answer)


def tree_of(workspace: Path) -> Tree:
    """What a workspace holds, but for what the agent keeps there."""
    paths = (path for path in workspace.rglob("*") if path.relative_to(workspace).parts[0] != OWN)
    return {
        path.relative_to(workspace).as_posix(): None if path.is_dir() else path.read_text(errors="replace")
        for path in paths
    }


def _lay_out(workspace: Path, tree: Tree) -> None:
    for path in workspace.iterdir():
        if path.name == OWN:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    for name, held in sorted(tree.items()):
        path = workspace / name
        if held is None:
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(held)
