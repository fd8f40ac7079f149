"""Plays runs of models, honest and not, with the real tools, and gives how their turns ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.core import events as ev
from lmagent.core.commands import Submit
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say

RUNS: dict[str, Any] = json.loads((Path(__file__).parent / "runs.json").read_text(encoding="utf-8"))


def calls_of(run: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Its calls, those that go by a name looked up."""
    named = RUNS["edits"]
    return [(one[0], one[1]) for one in (named[item] if isinstance(item, str) else item for item in run["calls"])]


async def play(folder: Path, run: dict[str, Any], **flags: Any) -> ev.TurnFinished:
    """One run in a workspace of its own; the model swears in the end that all is tested."""
    for name, content in {**RUNS["files"], **run.get("files", {})}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        path.chmod(0o755 if name.endswith(".sh") else 0o644)
    flags = {"check_commands": tuple(run.get("checks", ())), **flags}
    calls = [*(("read", {"path": name}) for name in RUNS["files"]), *calls_of(run)]
    filled = json.loads(json.dumps(calls).replace("{workspace}", str(folder)))
    replies = [call(tool, **arguments) for tool, arguments in filled]
    return (await play_replies(folder, [*replies, *[say("Fixed. All tests pass.")] * 5], ["Mend calc.py."], **flags))[
        -1
    ]


async def play_replies(folder: Path, replies: list[Any], tasks: list[str], **flags: Any) -> list[ev.TurnFinished]:
    """A session that is given one task after the other."""
    with ScriptedServer(replies) as server:
        given = {"llm_url": server.base_url, "permission_mode": "auto", "sandbox": "off", **flags}
        host = await open_host(HostOptions(folder, given), say=lambda _: None)
        try:
            session = await host.new_session()
            ends = list[ev.TurnFinished]()
            for task in tasks:
                await session.send(Submit(message=user(task)))
                finished = await run_until_idle(session)
                assert finished is not None
                ends.append(finished)
            return ends
        finally:
            await host.aclose()
