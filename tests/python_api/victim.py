"""A program that is killed at one of its events, or by one of its own tools.

    victim.py WORKSPACE BASE_URL KILL_AT SESSION

KILL_AT: number of the event at which it kills itself; 0 for none, -1 lets the tool do it. With an unfinished turn in
the session it resumes that, otherwise it sends its task.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from lmagent import Agent, tool


def main(workspace: str, base_url: str, kill_at: int, name: str) -> int:
    stamps = Path(workspace, "stamps.txt")

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    @tool
    def stamp(text: str) -> str:
        """Leave a mark."""
        with stamps.open("a") as file:
            file.write(f"{text}\n")
        if kill_at < 0:
            die()
        return f"stamped {text}"

    agent = Agent(workspace, endpoint=base_url, model="scripted", tools=[stamp], settings={"sandbox": "off"})

    async def work() -> str:
        async with agent.session(name, create=True) as session:
            run = session.resume() if session.is_unfinished else session.send("Stamp a and b")
            count = 0
            async for _ in run:
                count += 1
                if count == kill_at:
                    die()
            return run.result.status

    print(asyncio.run(work()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))
