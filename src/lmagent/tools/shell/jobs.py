"""jobs: commands in the background. Each has a sandbox and output of its own, and ends with the session."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import anyio
import anyio.to_thread
from msgspec import Meta, Struct

from lmagent.core.errors import SandboxError, StoreError, ToolError
from lmagent.core.sandbox import Exec, Exit, Running, Sandbox, Stream
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.tools.sanitize import one_line
from lmagent.tools.shell.collect import Collector, clean

MOST = 16
"""Jobs of a session that run at once."""

FIRST_LOOK = 0.3
"""Seconds in which a new job may fail at once, so that the result of the call reports the failure."""

TAIL = 4000
LONGEST_WAIT = 600

QUIET = 3.0
"""Seconds without output that count as silence."""

BUDGET = 5.0
"""Seconds that a pattern may take for one piece of output."""

PIECE = 1 << 20
"""Bytes that are searched at once; more than these without a line end count as a line."""

_CODE: dict[str, object] = {"code": "pattern"}
_CATCH_UP = 5.0  # seconds after its timeout that a wait may take for output that was not searched before
_PAUSE = 0.1  # seconds between two searches, each of which costs a process


class JobsArgs(Struct, frozen=True):
    """Arguments of jobs."""

    action: Literal["list", "tail", "kill", "wait"]
    id: str = ""
    until: Annotated[str, Meta(description="wait: exit, silence, or a regex for an output line")] = "exit"
    timeout: Annotated[int, Meta(description="wait: seconds", ge=0)] = 60


class Job:
    def __init__(self, id: str, command: str, collector: Collector) -> None:
        self.id = id
        self.command = command
        self.collector = collector
        self.searched: dict[str, int] = {}  # pattern -> bytes of the output in which it was looked for
        self.began = time.monotonic()
        self.end: Exit | None = None
        self.failure = ""
        self.told = False  # the model knows of its end
        self.changed = anyio.Event()
        self.running: Running | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def state(self) -> str:
        if self.failure:
            return f"failed: {self.failure}"
        if self.end is None:
            return f"running for {time.monotonic() - self.began:.0f} s"
        how = {"exit": f"exit code {self.end.code}", "timeout": "timed out", "memory": "out of memory"}
        return f"{how.get(self.end.reason, 'killed')} after {self.end.seconds:.1f} s"

    @property
    def over(self) -> bool:
        return self.end is not None or bool(self.failure)

    @property
    def facts(self) -> dict[str, object]:
        """The facts for the log, part of each result about this job."""
        return {"job": self.id, "state": self.state if self.over else "running"}

    def feed(self, stream: Stream, piece: bytes) -> None:
        """Take output; the channel, with the shell's state, is not used."""
        if stream != "channel":
            self.collector.feed(piece)
            self.news()

    def news(self) -> None:
        """Wake all waiters for this job."""
        self.changed.set()
        self.changed = anyio.Event()


class Jobs:
    """The jobs of all sessions; `spill` is the folder for long outputs."""

    def __init__(self, spill: Path) -> None:
        self._spill = spill
        self._jobs: dict[str, list[Job]] = {}

    async def start(
        self, sandbox: Sandbox, command: Exec, text: str, ctx: ToolContext, remarks: Sequence[str]
    ) -> ToolOutput:
        """Start a command in the background; the output begins with `remarks`. Raises SandboxError or ToolError."""
        mine = self._jobs.setdefault(ctx.session, [])
        if sum(not job.over for job in mine) >= MOST:
            raise ToolError(f"{MOST} jobs are running already. Nothing was run. Kill one with jobs first.")
        job = Job(f"job{len(mine) + 1}", text, Collector(self._spill, lambda _: None))
        job.running = await sandbox.start(command, job.feed)
        mine.append(job)
        # A plain task: a job outlives the call that starts it, so no task group of the call can hold it.
        job.task = asyncio.get_running_loop().create_task(_run(job, job.running))
        with anyio.move_on_after(FIRST_LOOK):
            while not job.over:
                await job.changed.wait()
        notes = [*remarks, f'{job.id}: {job.state}. See it with jobs(action="tail", id="{job.id}").']
        job.told = job.over
        content = "\n".join(filter(None, (*notes, job.collector.tail(TAIL))))
        return ToolOutput(content, {**job.facts, "notes": notes})

    async def run(self, arguments: JobsArgs, ctx: ToolContext) -> ToolOutput:
        if arguments.action == "list":
            rows = [f"{job.id}: {job.state}: {one_line(job.command, 100)}" for job in self._jobs.get(ctx.session, [])]
            return ToolOutput("\n".join(rows) or "There are no jobs.")
        job = self._find(ctx.session, arguments.id)
        if arguments.action == "kill" and job.running is not None and not job.over:
            job.running.kill()
            while not job.over:
                await job.changed.wait()
        output = await _wait(job, arguments) if arguments.action == "wait" else _seen(job)
        job.told = job.over
        return output

    def note(self, session: str) -> str:
        """Return a note on jobs that have ended without the model's knowledge, for the tail of the conversation."""
        ended = [job for job in self._jobs.get(session, []) if job.over and not job.told]
        for job in ended:
            job.told = True
        return f"<jobs>{chr(10).join(f'{job.id} ended: {job.state}' for job in ended)}</jobs>" if ended else ""

    def runs(self, session: str) -> bool:
        return any(not job.over for job in self._jobs.get(session, ()))

    async def ended(self, session: str) -> None:
        for job in self._jobs.get(session, []):
            while not job.over:
                await job.changed.wait()

    async def end(self, session: str) -> None:
        """Kill the jobs of a session, and wait for their end."""
        jobs = self._jobs.pop(session, [])
        tasks = [job.task for job in jobs if job.task is not None]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for job in jobs:
            job.collector.discard()

    async def aclose(self) -> None:
        for session in list(self._jobs):
            await self.end(session)

    def _find(self, session: str, id: str) -> Job:
        jobs = self._jobs.get(session, [])
        for job in jobs:
            if job.id == id or job.id == f"job{id}":
                return job
        known = ", ".join(job.id for job in jobs) or "no jobs"
        raise ToolError(f"There is no job {id!r}. Jobs: {known}.")


def jobs_tool(jobs: Jobs) -> Tool:
    return Tool(
        name="jobs",
        description="Background commands: list, tail, kill, or wait for one.",
        arguments=JobsArgs,
        deferred=True,
        effect="read",
        run=jobs.run,
        renames={"job_id": "id", "job": "id"},
    )


async def _run(job: Job, running: Running) -> None:
    try:
        job.end = await running.wait()
    except (SandboxError, StoreError) as failure:
        job.failure = failure.message
    finally:
        job.collector.close()
        if not job.over:
            job.failure = "stopped"
        job.news()


def _seen(job: Job) -> ToolOutput:
    return ToolOutput(f"{job.id}: {job.state}\n{job.collector.tail(TAIL)}", job.facts)


async def _wait(job: Job, arguments: JobsArgs) -> ToolOutput:
    """Wait for the end, for quiet, or for a line."""
    seconds = min(arguments.timeout, LONGEST_WAIT)
    if arguments.until in ("exit", "silence"):
        met = ""
        with anyio.move_on_after(seconds):
            met = await _condition(job, arguments.until)
    else:
        met = await _line(job, arguments.until, seconds)
    head = met or ("it has ended without such a line" if job.over else f"waited {seconds} s in vain")
    facts = {**job.facts, "met": bool(met), "ended": job.over}
    return ToolOutput(f"{job.id}: {job.state} ({head})\n{job.collector.tail(TAIL)}", facts)


async def _condition(job: Job, until: str) -> str:
    while not job.over:
        changed = job.changed
        if until == "silence":
            quiet = time.monotonic() - job.collector.changed_at
            if quiet >= QUIET:
                return f"silent for {quiet:.0f} s"
            with anyio.move_on_after(QUIET - quiet):
                await changed.wait()
        else:
            await changed.wait()
    return "it has ended"


async def _line(job: Job, until: str, seconds: float) -> str:
    """Wait for a line; return the text about it, or nothing.

    Output before the wait counts too, so that a line between two calls is not missed; but each line only once for one
    pattern, so that a second wait finds the next such line.
    """
    if "\n" in until:
        raise ToolError("wait looks at single lines: the regex must not have a line break.", data=_CODE)
    deadline = time.monotonic() + seconds
    while True:
        changed, over, at = job.changed, job.over, job.searched.get(until, 0)
        begin, piece = job.collector.read(at, PIECE)
        found, size = await anyio.to_thread.run_sync(_search, piece, until, abandon_on_cancel=True)
        reached = begin + size
        job.searched[until] = max(reached, job.searched.get(until, 0))  # several callers may wait at once
        if found is not None:
            return f"a line matches: {one_line(found, 200)}"
        left = deadline - time.monotonic()
        if reached > at:
            if left < -_CATCH_UP:
                return ""
        elif over or left <= 0:
            return ""
        else:
            with anyio.move_on_after(left):
                await changed.wait()
                await anyio.sleep(_PAUSE)


def _search(piece: bytes, pattern: str) -> tuple[str | None, int]:
    """Return the first line of some output that matches, and the number of bytes that are done with.

    An unfinished line counts as far as it goes; if it does not match, it is searched again when there is more of it.
    """
    from lmagent.tools.find.matching import Expression, Late

    cut = piece.rfind(b"\n") + 1
    lines = (piece[:cut] or piece).removesuffix(b"\n").split(b"\n")
    try:
        with Expression(pattern, BUDGET) as expression:
            hits = expression.find(clean(b"\n".join(lines))).hits if piece else []
    except Late:
        raise ToolError(
            f"The regex {pattern!r} takes too long: {BUDGET:.0f} s were not enough for a piece of output. "
            "Use one without nested repetitions such as (a+)+, or a plain word of the line.",
            data=_CODE,
        ) from None
    if hits:
        lines = lines[: hits[0].line]
        return clean(lines[-1]), min(sum(len(line) + 1 for line in lines), cut or len(piece))
    return None, cut or (len(piece) if len(piece) == PIECE else 0)
