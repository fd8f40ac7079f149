"""What todos, plans, a task state and deep work cost a server's prompt cache, over 100 steps each.

    python bench/planning.py [--quick]

The model follows a script: in each step it changes its tasks or reads a file; meanwhile a person changes tasks too.
`prefix` is the least share of a prompt that stands unchanged at the head of the next one, `reread` the tokens read to
the tokens that nobody could have had before. Without a cut both bars are those of an append-only conversation: 1.000,
at most 1.10. In `small_window` the conversation is cut; there the breaks must be those cuts, and `missing` counts open
tasks that do not stand in the prompt after one.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio

from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.core.commands import ChangeTasks, DecidePlan, SetWork, Submit
from lmagent.core.events import CompactionDone, StepStarted
from lmagent.core.messages import user
from lmagent.core.work import Task
from lmagent.engine.lane import run_until_idle
from lmagent.testing import ScriptedServer
from lmagent.testing.script import Reply, call, say

PREFIX_BAR, REREAD_BAR = 1.0, 1.10
FILES = 40
PERSON_EVERY = 20
"""Steps after which a person changes a task."""


def use(name: str, **arguments: Any) -> Reply:
    return call("use_tool", name=name, arguments=arguments)


def todo(steps: int) -> Iterator[Reply]:
    """Adds, works, ticks off."""
    for number in range(1, steps // 3 + 1):
        yield use("todo_add", description=f"look at file {number}", notes=f"it is the {number}th of them")
        yield call("read", path=f"{number % FILES}.txt")
        yield use("todo_complete", todo_id=f"todo{number}")
    yield from _ends(4)


def plan(steps: int) -> Iterator[Reply]:
    """A plan of 30 steps, each with work."""
    items = [
        {
            "id": str(n),
            "description": f"look at file {n}",
            "verification": "read it",
            "dependencies": [str(n - 1)] if n > 1 else [],
        }
        for n in range(1, 31)
    ]
    yield say(json.dumps({"title": "Look", "goal": "All is seen.", "risk_areas": [], "steps": items}))
    for number in range(1, 31):
        for turn in range(max(1, steps // 30)):
            yield call("read", path=f"{(number * 3 + turn) % FILES}.txt")
        yield use("plan_complete_step", step_id=str(number), verification_notes=f"read file {number}")
    yield from _ends(4)


def state(steps: int) -> Iterator[Reply]:
    """A batch under a gate."""
    total = steps // 2
    queue = [f"{n % FILES}.txt" for n in range(total)]
    yield use("task_state_update", completion_gate="processed == total", total_count=total, remaining_queue=queue)
    for number in range(1, total + 1):
        yield call("read", path=f"{number % FILES}.txt")
        yield use("task_state_update", processed_count=number, remaining_queue=queue[number:])
    yield from _ends(4)


def _ends(count: int) -> Iterator[Reply]:
    for _ in range(count):
        yield say("All of it is done.")


async def drive(folder: Path, script: list[Reply], mode: str, **flags: Any) -> dict[str, Any]:
    """One session by the script; returns its figures."""
    replies = iter(script)

    def answer(received: Any) -> Reply:
        return say("In short: much was read.") if received.body.get("tool_choice") == "none" else next(replies)

    with ScriptedServer(answer, strict=True) as server:
        settings = {
            "llm_url": server.base_url,
            "permission_mode": "auto",
            "llm_model": "m",
            "loop_repeats": 50,
            **flags,
        }
        settings |= {"max_no_progress_iters": 500}
        host = await open_host(HostOptions(folder, settings), say=lambda _: None)
        try:
            session = await host.new_session()
            changes: list[int] = []
            missing: list[str] = []

            def person(event: Any) -> None:
                if isinstance(event, StepStarted) and event.step % PERSON_EVERY == 0:
                    changes.append(event.step)
                elif isinstance(event, CompactionDone):
                    text = "\n".join(message.text for message in event.messages)
                    opened = (task for task in session.state.work.tasks.values() if task.is_open)
                    missing.extend(task.id for task in opened if f"- {task.id} [" not in text)

            session.listen(person)
            if mode in ("plan", "deep"):
                await session.send(SetWork(mode="plan", then="deep" if mode == "deep" else "normal", by="bench"))
            await session.send(Submit(message=user("look at all files")))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_person, session, changes)
                await run_until_idle(session)
                if session.state.work.proposal is not None:
                    await session.send(DecidePlan(decision="approved", by="bench"))
                    await run_until_idle(session)
                tasks.cancel_scope.cancel()
            return {**_figures(server, session), "missing": len(missing)}
        finally:
            await host.aclose()


async def _person(session: Any, changes: list[int]) -> None:
    """Adds a finished task whenever the time has come, while the model works."""
    done = 0
    while True:
        await anyio.sleep(0.001)
        while done < len(changes):
            done += 1
            task = Task(f"by-hand-{done}", "todo", f"a thing that a person did, number {done}", "completed")
            await session.send(ChangeTasks(items=(task,), by="bench"))


def _figures(server: ScriptedServer, session: Any) -> dict[str, Any]:
    meter = server.prefix
    sent = "\n".join(str(message.get("content")) for message in server.chats[-1].body["messages"])
    return {
        "steps": session.state.steps_total,
        "prefix": round(meter.ratio, 4),
        "breaks": len(meter.breaks),
        "cuts": session.state.compactions,
        "reread": round(meter.prefilled / max(1, meter.fresh), 3),
        "told_of_a_person": sent.count("<tasks>"),
        "outcome": session.state.last_outcome,
    }


def furnish(folder: Path) -> None:
    for number in range(FILES):
        (folder / f"{number}.txt").write_text("".join(f"line {line} of file {number}\n" for line in range(30)))


def main() -> int:
    """Run all; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    steps = 30 if parser.parse_args().quick else 100
    runs: dict[str, tuple[Callable[[int], Iterator[Reply]], str, dict[str, Any]]] = {
        "todo": (todo, "normal", {"context_window": 131_072}),
        "plan": (plan, "plan", {"context_window": 131_072}),
        "state": (state, "normal", {"context_window": 131_072}),
        "deep": (plan, "deep", {"context_window": 131_072, "deep_tokens": 10_000_000}),
        "small_window": (plan, "deep", {"context_window": 12_000, "deep_tokens": 10_000_000}),
    }
    figures: dict[str, Any] = {}
    for name, (script, mode, flags) in runs.items():
        with tempfile.TemporaryDirectory() as home:
            os.environ["HOME"] = home
            folder = Path(home) / "workspace"
            folder.mkdir()
            furnish(folder)
            flags = {**flags, "summarization_threshold": 120_000}
            made = script(steps)
            figures[name] = anyio.run(
                lambda made=made, mode=mode, flags=flags, folder=folder: drive(folder, list(made), mode, **flags)
            )
    whole = [figures[name] for name in ("todo", "plan", "state", "deep")]
    cut = figures["small_window"]
    figures["ok"] = (
        all(run["prefix"] == PREFIX_BAR and run["reread"] <= REREAD_BAR and run["outcome"] == "done" for run in whole)
        and cut["breaks"] <= cut["cuts"]
        and cut["missing"] == 0
    )
    print(json.dumps(figures))
    return 0 if figures["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
