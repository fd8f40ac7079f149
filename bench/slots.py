"""Tokens that a server with slots reads again while side calls, a fork and a second session go on beside the main one.

    python bench/slots.py [--quick]

The server is the fake llama.cpp, which keeps prompts in its slots byte by byte as the real one does and counts what it
reads (`testkit.servers`). The main conversation has 60 steps; every tenth is followed by a question on the side
and a turn of a second session, the thirtieth by a fork of it that works for a turn. `naive` is a client that begins
each prompt with something that changes (the time), as many do: it is read whole at every call.

With one slot, the second session's turns come while the main one's turn is running (`slots_1`): it then waits for the
turn's end. `slots_1_between` lets it work between the turns, where one of the two must go.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.core.commands import Submit
from lmagent.core.events import Event, StepFinished
from lmagent.core.messages import user
from lmagent.core.model import ModelReply
from lmagent.engine.context.aside import ask_aside
from lmagent.engine.lane import run_until_idle
from lmagent.engine.session import Session
from lmagent.testing.loopback import Received
from lmagent.testing.script import Behaviour, call, say

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from testkit.servers.llamacpp import LlamaCppServer

BAR = 10.0
EVERY = 10


def answer(received: Received) -> Behaviour:
    """Reads as many files as the task says, one a step; answers questions on the side."""
    messages = received.body["messages"]
    last = next(at for at in range(len(messages) - 1, -1, -1) if messages[at]["role"] == "user")
    task = re.search(r"read files (\d+) now$", str(messages[last]["content"]))  # behind what the first message lists
    if received.body.get("tool_choice") == "none" or task is None:
        return say("Forty-two.")
    wanted = int(task[1])
    done = sum(message["role"] == "tool" for message in messages[last:])
    return call("read", path=f"{(done * 7 + last) % 60}.txt") if done < wanted else say("Read.")


async def turn(session: Session, files: int) -> None:
    """One turn that reads files."""
    await session.send(Submit(message=user(f"read files {files} now")))
    await run_until_idle(session)


async def play(slots: int, steps: int, workspace: Path, *, during: bool = False) -> dict[str, Any]:
    """The whole script against a server with so many slots.

    Args:
        slots: how many.
        steps: of the main conversation.
        workspace: what is read.
        during: the main conversation is one long turn; the second session begins to work in the middle of it.
    """
    with LlamaCppServer(answer, context=65536 * slots, slots=slots) as server:
        host = await open_host(
            HostOptions(workspace, {"llm_url": server.base_url, "permission_mode": "auto"}), say=print
        )
        main = await host.new_session()
        second = await host.new_session()
        if during:
            await _all_at_once(main, second, steps)
            fork = await host.fork_session(main.state.session)
            await turn(fork, 2)
        for done in range(0, 0 if during else steps, EVERY):
            await turn(main, EVERY - 1)
            async for event in ask_aside(main, "What is the answer?"):
                assert isinstance(event, ModelReply) or event
            await turn(second, 2)
            if done == steps // 2:
                fork = await host.fork_session(main.state.session)
                await turn(fork, 2)
        await host.aclose()
        log = server.kv.log
        main_rows = [row for row in log if row.slot == 0]
        if during:
            main_rows = main_rows[: steps + steps // EVERY]  # behind its last step the others had their turn
        return {
            "calls": len(log),
            "read": server.kv.read,
            "naive": sum(row.tokens for row in log),
            "ratio": round(sum(row.tokens for row in log) / server.kv.read, 1),
            "main_evicted": sum(row.evicted > 0 for row in main_rows),
        }


async def _all_at_once(main: Session, second: Session, steps: int) -> None:
    """The main conversation's turn, a question in the middle of every ten steps, and a second session meanwhile."""
    reached = [anyio.Event() for _ in range(steps // EVERY)]

    def watch(event: Event) -> None:
        if isinstance(event, StepFinished) and event.step % EVERY == EVERY // 2:  # never the last one: it ends the turn
            reached[event.step // EVERY].set()

    async def questions() -> None:
        for number, step in enumerate(reached):
            await step.wait()
            if number == 0:
                tasks.start_soon(turn, second, 2)
            async for event in ask_aside(main, "What is the answer?"):
                assert isinstance(event, ModelReply) or event

    main.listen(watch)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(questions)
        await turn(main, steps - 1)


def main() -> int:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    steps = 30 if parser.parse_args().quick else 60
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(60):
            (Path(folder) / f"{number}.txt").write_text(f"line {number} of a file\n" * 60)
        workspace = Path(folder)
        figures["slots_1"] = anyio.run(partial(play, 1, steps, workspace, during=True))
        figures["slots_1_between"] = anyio.run(play, 1, steps, workspace)
        for slots in (2, 3, 4):
            figures[f"slots_{slots}"] = anyio.run(play, slots, steps, workspace)
    shared = [row for name, row in figures.items() if name != "slots_1_between"]
    figures["ok"] = all(row["ratio"] >= BAR and row["main_evicted"] == 0 for row in shared)
    print(json.dumps(figures))
    return 0 if figures["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
