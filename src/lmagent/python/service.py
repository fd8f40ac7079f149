"""Service: the sessions of an agent in one event loop, open while a run or a session of the program needs them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import anyio
from msgspec.structs import replace

from lmagent.app.options import HostOptions
from lmagent.app.runner import Runner
from lmagent.app.wiring import open_host
from lmagent.core.errors import ShuttingDown, ungrouped
from lmagent.core.model import SessionOptions
from lmagent.python.answers import AnswerReview
from lmagent.python.run import SURFACE
from lmagent.tools.sanitize import printable

if TYPE_CHECKING:
    from lmagent.app.host import Host


class AgentService:
    """A host and its runner, in a task of their own.

    No task group of the program can own that task: the program may leave an `async for` over a run at any point, and
    another task of the event loop then closes the run. The end of the event loop ends the task, too.

    Attributes:
        users: runs and sessions that need it.
        answers: the types of the answers that the program waits for.
    """

    def __init__(self, options: HostOptions, instructions: str) -> None:
        self.users = 0
        self.answers = AnswerReview()
        self._options = options
        self._instructions = instructions
        self._runner: Runner | None = None
        self._failure: BaseException | None = None
        self._ready, self._end, self._ended = anyio.Event(), anyio.Event(), anyio.Event()
        self._task = asyncio.get_running_loop().create_task(self._serve(), name="lmagent")

    async def runner(self) -> Runner:
        """Return the runner once it runs. Raise LmagentError if it cannot, or has ended."""
        await self._ready.wait()
        if self._failure is not None:
            raise self._failure
        if self._runner is None or self._end.is_set():
            raise ShuttingDown("the event loop of this agent has ended", fix="run the agent in one that runs")
        return self._runner

    async def end(self) -> None:
        """End all turns, and release everything."""
        self._end.set()
        if not self._ready.is_set():
            self._task.cancel()
        with anyio.CancelScope(shield=True):
            await self._ended.wait()

    async def _serve(self) -> None:
        try:
            with ungrouped():
                await self._run()
        except Exception as failure:  # noqa: BLE001 - raised by `runner` in the program's own task
            self._failure = failure
        finally:
            self._ready.set()
            self._ended.set()

    async def _run(self) -> None:
        host = await open_host(self._options, say=_say)
        try:
            self._set_up(host)
            runner = Runner(host, _say, surface=SURFACE, attended=self._options.attended, resumable=False)
            async with runner.running():
                self._runner = runner
                self._ready.set()
                await self._end.wait()
        finally:
            with anyio.CancelScope(shield=True):
                await host.aclose()

    def _set_up(self, host: Host) -> None:
        host.registry.reviews.append(self.answers)  # the last one: an answer that fits ends the turn
        if self._instructions:
            host.agent = replace(host.agent, options=SessionOptions(instructions=self._instructions))


def _say(text: str) -> None:
    logging.getLogger("lmagent").warning("%s", printable(text))
