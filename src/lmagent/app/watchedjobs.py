"""Watched jobs: a session's commands in the background, from its log."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct, field

from lmagent.core.events import DurableEvent, MessageAdded, SessionForked, ToolFinished, ToolStarted

_ENDED = re.compile(r"^(?:<jobs>)?(job\d+) ended: ([^<\n]*)", re.MULTILINE)

SHOWN = 12
"""Latest jobs that are shown; the rest is counted."""


class WatchedJobs(Struct):
    """A fold of the events of a session."""

    commands: dict[str, str] = field(default_factory=dict[str, str])
    states: dict[str, str] = field(default_factory=dict[str, str])
    _summaries: dict[str, str] = field(default_factory=dict[str, str])

    def apply(self, event: DurableEvent) -> None:
        match event:
            case ToolStarted() if event.tool == "shell":
                self._summaries[event.call_id] = event.summary.removeprefix("shell ")
            case ToolFinished():
                self._finished(event)
            case MessageAdded() if event.origin == "note" and event.message.text.startswith("<jobs>"):
                self.states.update(_ENDED.findall(event.message.text))
            case SessionForked():
                self.commands.clear()  # they belong to the session from which this one was copied
                self.states.clear()
            case _:
                pass

    def _finished(self, event: ToolFinished) -> None:
        summary, job = self._summaries.pop(event.call_id, ""), event.data.get("job")
        if not isinstance(job, str) or event.tool not in ("shell", "jobs"):
            return
        if event.tool == "shell":
            self.commands[job] = summary
        if job in self.commands:
            self.states[job] = str(event.data.get("state") or "running")

    def lines(self, *, alive: bool) -> Iterator[str]:
        """Yield a line for each job.

        Args:
            alive: whether the process that began them still has the session open; jobs end with it.
        """
        for job in list(self.commands)[-SHOWN:]:
            state = self.states[job]
            if state == "running" and not alive:
                state = "ended with the program"
            mark = "▸" if state == "running" else "✓" if state.startswith("exit code 0 ") else "✗"
            yield f"{mark} {job} {self.commands[job]} ({state})"
        if len(self.commands) > SHOWN:
            yield f"… {len(self.commands) - SHOWN} earlier jobs"
