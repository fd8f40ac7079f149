"""Printers: events to a terminal or a pipe, as text or as JSON lines. Light: nothing but the standard library."""

from __future__ import annotations

import re
import sys
import time
from functools import cached_property
from typing import TYPE_CHECKING, TextIO

from lmagent.core import events as ev
from lmagent.core.lines import advice_line, command_end, ending_line, failure_line, proof_line, retry_line
from lmagent.core.messages import NO_WORDS
from lmagent.planning.proposing import PlanWords
from lmagent.tools.sanitize import printable, visible

if TYPE_CHECKING:
    from lmagent.app.subagents.nested import NestedLines
    from lmagent.headless.life import ActivityLine

FLUSH_EVERY = 0.04
"""Seconds between flushes of streamed text: 25 times a second looks live, and saves most flushes."""

_UNSAFE = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
"""Control characters and direction marks must not reach a terminal. Most deltas have none, and cost nothing."""

_NESTED = {"ok": "dim", "quiet": "dim", "fault": "red", "warning": "yellow"}
"""Colours of the lines about sub-agents."""

_OF_AGENTS = (ev.SubagentStarted, ev.SubagentEvent, ev.SubagentFinished)


class JsonPrinter:
    """Prints every event verbatim, one JSON object a line, flushed."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = (out or sys.stdout).buffer

    def __call__(self, event: ev.Event) -> None:
        self._out.write(ev.encode(event) + b"\n")
        self._out.flush()

    def close(self) -> None: ...


class Questions:
    """Questions to the user, on a terminal that also shows other output.

    Args:
        err: the terminal.
        life: the activity line, paused during a question; None without one.
    """

    def __init__(self, err: TextIO, life: ActivityLine | None) -> None:
        self._err = err
        self._life = life
        self._question = ""

    def ask(self, details: str, question: str) -> None:
        """Show a question. It stays the last thing on the screen until `answered`.

        Args:
            details: shown once, above the question.
            question: repeated below any later output.
        """
        if self._life is not None:
            self._life.pause(True)
        self._question = question
        self._err.write(f"\n{details}\n{question}")
        self._err.flush()

    def answered(self, *, entered: bool) -> None:
        """Settle the question; `entered` when the Enter key has ended its line."""
        self._question = ""
        if not entered:
            self._err.write("\n")
            self._err.flush()
        if self._life is not None:
            self._life.pause(False)

    def print(self, text: str) -> None:
        """Print finished lines above the question, if one is open."""
        if self._life is not None:
            self._life.erase()
        self._err.write(f"\n{text}{self._question}" if self._question else text)
        self._err.flush()


class TextPrinter:
    """Prints the answer to a pipe or a file as it comes, and the actions to stderr.

    Args:
        out: for the model's text.
        err: for calls, notices and the end of the turn.
        color: whether to use colours on `err`.
        answer: whether the model's text is shown.
        plans: whether plans are shown when proposed; False if the question about a plan shows it.
        life: the activity line on `err`; None if that is not a terminal.
    """

    def __init__(
        self,
        out: TextIO | None = None,
        err: TextIO | None = None,
        *,
        color: bool,
        answer: bool = True,
        plans: bool = True,
        life: ActivityLine | None = None,
    ) -> None:
        self._out = out or sys.stdout
        self._life = life
        self.questions = Questions(err or sys.stderr, life)
        self._color = color
        self._answer = answer
        self._plans = plans
        self._open_line = False
        self._streamed = False
        self._shown: list[str] = []
        self._again = _Again("")
        self._flushed = 0.0
        self._summaries: dict[str, str] = {}
        self.words = PlanWords()

    @cached_property
    def _unsafe(self) -> re.Pattern[str]:
        return re.compile(_UNSAFE)  # compiled with the first text, so that the first request need not wait for it

    @cached_property
    def _nested(self) -> NestedLines:
        from lmagent.app.subagents.nested import NestedLines  # most sessions have no sub-agent

        return NestedLines()

    def __call__(self, event: ev.Event) -> None:
        self._print(event)
        if self._life is not None:
            self._life.see(event)
            if isinstance(event, ev.TurnFinished) and (figures := self._life.figures(event)):
                self._say("dim", figures)

    def _print(self, event: ev.Event) -> None:
        match event:
            case ev.TextDelta(text=text):
                text = self.words.feed(text)
                self._text(self._again.take(text) if self._again.before else text)
            case ev.MessageAdded() if event.message.role == "assistant" and event.origin == "model":
                self._message(event.message.text)
            case ev.StepStarted() if self._streamed:
                self._broke_off()
            case ev.ToolStarted():
                self._summaries[event.call_id] = visible(event.summary)
            case ev.ToolFinished():
                self._tool(event)
            case ev.RetryScheduled():
                self._broke_off()
                self._say("yellow", retry_line(event))
            case ev.CompactionDone():
                self._say("dim", f"conversation shortened: {event.before_tokens:,} → {event.after_tokens:,} tokens")
            case ev.Notice():
                self._say("yellow" if event.level != "error" else "red", event.text + advice_line(event))
            case ev.TurnFinished():
                self._ending(event)
            case _:
                self._beside(event)

    def close(self) -> None:
        self._end_line()
        self._out.flush()

    def _beside(self, event: ev.Event) -> None:
        if isinstance(event, ev.WorkChanged):
            self.words.planning = event.mode == "plan"
        elif isinstance(event, ev.PlanProposed) and self._plans:
            from lmagent.planning.plans import plan_text

            self._text(visible(plan_text(event.plan)))
            self._message("")
        elif isinstance(event, _OF_AGENTS) and (line := self._nested(event)) is not None:
            self._say(_NESTED[line[0]], visible(line[1]))

    def _message(self, text: str) -> None:
        rest, whole = self.words.finish(text)
        if self._again.before:
            self._text(self._again.finish(whole))
        elif self._streamed:
            self._text(rest)
        elif text != NO_WORDS:
            self._text(whole)
        self._streamed = False
        self._shown.clear()
        self._end_line()

    def _broke_off(self) -> None:
        """The current reply will begin anew; the part that is the same must not appear twice."""
        self._again = _Again(self._again.before or "".join(self._shown).lstrip("\n"))
        self._shown.clear()
        self._streamed = False
        self.words.drop()

    def _text(self, text: str) -> None:
        if not self._answer or not text:
            return
        if self._life is not None:
            self._life.erase()
        self._shown.append(text)
        self._out.write(printable(text) if self._unsafe.search(text) else text)
        self._open_line = not text.endswith("\n")
        self._streamed = True
        now = time.monotonic()
        if now - self._flushed > FLUSH_EVERY:
            self._out.flush()
            self._flushed = now

    def _end_line(self) -> None:
        if self._open_line:
            self._out.write("\n")
            self._open_line = False
        self._out.flush()

    def _tool(self, event: ev.ToolFinished) -> None:
        summary = self._summaries.pop(event.call_id, "") or str(event.data.get("summary") or event.tool)
        took = f" ({event.duration:.1f} s)" if event.duration >= 0.1 else ""
        if event.status == "ok" and (end := command_end(event)):
            self._say("yellow", f"✗ {summary}: {end}{took}")
        elif event.status == "ok":
            self._say("dim", f"✓ {summary}{took}")
        else:
            first = failure_line(event).partition("\n")[0][:200]
            self._say("red", f"✗ {summary}: {first}")

    def _ending(self, event: ev.TurnFinished) -> None:
        if event.proof:
            self._say("dim" if event.proof == "verified" else "yellow", proof_line(event))
        if line := ending_line(event):
            self._say("red" if event.outcome == "error" else "yellow", line)

    def _say(self, color: str, text: str) -> None:
        codes = {"dim": "2", "red": "31", "yellow": "33"}
        safe = printable(text)
        line = f"\x1b[{codes[color]}m{safe}\x1b[0m" if self._color else safe
        self.questions.print(f"{line}\n")


class _Again:
    """A reply that comes a second time. `before`: the shown text of the first."""

    def __init__(self, before: str) -> None:
        self.before = before
        self._now = ""

    def take(self, text: str) -> str:
        """Return the text to show for another piece: none while it repeats the shown text."""
        self._now += text
        if self.before.startswith(self._now):
            return ""
        return self._different()

    def finish(self, text: str) -> str:
        """Return the text to show at the end, given the whole text."""
        self._now = self._now or text
        return self._different() if self._now.strip() else ""

    def _different(self) -> str:
        before, now = self.before, self._now
        self.before = ""
        return now[len(before) :] if now.startswith(before) else f"\n{now}"
