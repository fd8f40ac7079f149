"""A run in a process of its own that kills itself at one of its events."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from lmagent.engine.recovery import NOT_BEGUN
from lmagent.testing import ScriptedServer
from lmagent.testing.loopback import Received
from lmagent.testing.script import Behaviour, call_raw, calls

VICTIM = Path(__file__).with_name("victim.py")


def run(workspace: Path, server: ScriptedServer, kill_at: int, where: str, task: str) -> subprocess.CompletedProcess:
    """Run `victim.py`.

    Args:
        workspace: where it works; its home is the folder around.
        server: the model.
        kill_at: number of the event at which it dies; 0 for none.
        where: `before`, `torn` (in the middle of) or `after` the write.
        task: what to do; empty to go on.
    """
    environment = {**os.environ, "HOME": str(workspace.parent), "PYTHONPATH": str(VICTIM.parent)}
    return subprocess.run(
        [sys.executable, str(VICTIM), str(workspace), server.base_url, str(kill_at), where, task],
        capture_output=True,
        env=environment,
        cwd=workspace,
        timeout=60,
        check=False,
    )


def careful(answer: Callable[[Received], Behaviour]) -> Callable[[Received], Behaviour]:
    """A scripted model that makes the calls again that a crash kept from beginning, and no other.

    Args:
        answer: the script, which counts its replies; those that only repeat calls are not shown to it.
    """

    def careful_answer(received: Received) -> Behaviour:
        shown: list[dict[str, Any]] = []
        left: list[dict[str, Any]] = []
        for message in received.body["messages"]:
            if message["role"] == "assistant":
                if not left:
                    shown.append(message)
                asked, left = message.get("tool_calls") or [], []
                continue
            if message["role"] == "tool" and str(message["content"]).startswith(NOT_BEGUN):
                left += [one for one in asked if one["id"] == message["tool_call_id"]]
            shown.append(message)
        if left:
            again = [call_raw(one["function"]["name"], one["function"]["arguments"]) for one in left]
            return calls(*(one.calls[0] for one in again))
        return answer(replace(received, body={**received.body, "messages": shown}))

    return careful_answer
