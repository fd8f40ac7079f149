"""Render: events to finished lines, which a style formats for a terminal or leaves plain."""

from __future__ import annotations

from collections.abc import Callable

from lmagent.app.subagents.nested import NestedLines
from lmagent.core import events as ev
from lmagent.core.lines import advice_line, command_end, ending_line, failure_line, proof_line, retry_line
from lmagent.core.messages import NO_WORDS, Thinking
from lmagent.core.plurals import plural
from lmagent.core.view import is_filler, spoken
from lmagent.planning.proposing import PlanWords
from lmagent.terminal.blocks import BlockStream
from lmagent.terminal.output import SHOWN, CommandOutput
from lmagent.terminal.style import TextStyle
from lmagent.terminal.tally import TurnTally
from lmagent.tools.sanitize import one_line, printable, visible

MAX_DIFF_LINES = 40
"""Lines of a diff that are shown; the rest is counted."""

Write = Callable[[str], None]


class Renderer:
    """Prints finished text once. Unfinished text is in `tail` and `running`.

    Args:
        style: formats it.
        write: prints finished text above the prompt.
        terminal: whether a user watches, and sees the output of commands and the cost of a turn.
        more: how the user sees the rest of a command's output, printed after the count of lines; empty for no way.
        aside: style and destination of everything but the model's text; None for the same place.

    Attributes:
        previewed: calls whose diff the user has seen before they ran.
    """

    def __init__(
        self,
        style: TextStyle,
        write: Write,
        *,
        terminal: bool = True,
        more: str = "",
        aside: tuple[TextStyle, Write] | None = None,
    ) -> None:
        self._style = style
        self._write = write
        self._aside = aside or (style, write)
        self._terminal = terminal
        self._tally = TurnTally()
        self._more_hint = f" ({more})" if more else ""
        self._blocks = BlockStream()
        self._streamed = False
        self._after_block = False
        self.previewed: set[str] = set()
        self.running: dict[str, str] = {}
        self.output = CommandOutput()
        self._nested = NestedLines()
        self.words = PlanWords()

    @property
    def tail(self) -> str:
        """Return the block that is still growing."""
        return printable(self._blocks.tail)

    def __call__(self, event: ev.Event) -> None:
        self._tally.add(event)
        match event:
            case ev.TextDelta(text=text):
                self._streamed = True
                self._print_blocks(self._blocks.feed(self.words.feed(text)))
            case ev.MessageAdded():
                self._message(event)
            case ev.ToolStarted() | ev.ToolOutput() | ev.ToolFinished():
                self._call(event)
            case ev.StepStarted() if self._streamed:  # the reply broke off and comes again
                self._blocks.drop()
                self.words.drop()
                self._streamed = False
            case ev.RetryScheduled():
                self._blocks.drop()
                self.words.drop()
                self._say(retry_line(event), "warning")
            case ev.CompactionDone():
                self._say(f"conversation shortened: {event.before_tokens:,} → {event.after_tokens:,} tokens", "quiet")
            case ev.Notice():
                self._say(event.text + advice_line(event), "warning")
            case ev.TurnFinished():
                self._ending(event)
                if self._terminal and (line := self._tally.line(event)):
                    self._say(line, "quiet")
            case (
                ev.ApprovalRequested()
                | ev.ApprovalResolved()
                | ev.SubagentStarted()
                | ev.SubagentFinished()
                | ev.SubagentEvent()
            ):
                self._beside(event)
            case ev.PlanProposed() | ev.WorkChanged():
                self._work(event)
            case _:
                pass

    def say(self, text: str, kind: str = "plain") -> None:
        self._say(text, kind)

    def diff(self, text: str, indent: str = "") -> None:
        for line in text.splitlines():
            self._say(f"{indent}{line}", {"+": "added", "-": "fault"}.get(line[:1], "quiet"))

    def approval(self, request: ev.ApprovalRequested) -> None:
        self._say(f"{one_line(request.summary)} — {request.reason}", "warning")
        self._diff(visible(request.preview))
        if request.preview:
            self.previewed.add(request.call_id)

    def plan(self, proposal: ev.PlanProposed) -> None:
        from lmagent.planning.plans import plan_text

        # Not as Markdown, which leaves out comments and the targets of links.
        for line in visible(plan_text(proposal.plan)).splitlines():
            self._print_line(line, "plain")

    def _work(self, event: ev.PlanProposed | ev.WorkChanged) -> None:
        if isinstance(event, ev.PlanProposed):
            self.plan(event)
        else:
            self.words.planning = event.mode == "plan"

    def _beside(self, event: ev.Event) -> None:
        inner = ev.innermost(event)[1]
        if isinstance(inner, ev.ApprovalRequested):
            self.approval(inner)
        elif not isinstance(event, ev.ApprovalResolved) and (line := self._nested(event)) is not None:
            self._say(visible(line[1]), line[0])

    def _message(self, event: ev.MessageAdded) -> None:
        if event.message.role != "assistant" or is_filler(event):
            return
        thought = "".join(part.text for part in event.message.parts if isinstance(part, Thinking))
        if thought.strip():
            self._say(f"… thought: {one_line(printable(thought), 80)}", "quiet")
        rest, whole = self.words.finish(spoken(event).text)
        if self._streamed:
            self._print_blocks([*self._blocks.feed(rest), *self._blocks.finish()])
        elif whole.strip() and event.message.text != NO_WORDS:
            stream = BlockStream()
            self._print_blocks([*stream.feed(whole), *stream.finish()])
        self._streamed = False

    def _call(self, event: ev.ToolStarted | ev.ToolOutput | ev.ToolFinished) -> None:
        match event:
            case ev.ToolStarted():
                self.running[event.call_id] = one_line(event.summary or event.tool)
            case ev.ToolOutput():
                self.output.add(event)
            case ev.ToolFinished():
                self._tool(event)

    def _tool(self, event: ev.ToolFinished) -> None:
        summary = self.running.pop(event.call_id, "") or one_line(str(event.data.get("summary") or event.tool))
        took = f" · {event.duration:.1f} s" if event.duration >= 0.1 else ""
        lines = self.output.finish(event, summary)
        if event.status == "ok" and (end := command_end(event)):
            self._say(f"✗ {summary} · {end}{took}", "fault")
        elif event.status == "ok":
            self._say(f"✓ {summary}{took}", "ok")
            diff = event.data.get("diff")
            if isinstance(diff, str) and event.call_id not in self.previewed:
                self._diff(diff)
        else:
            self._say(f"✗ {summary}: {one_line(printable(failure_line(event)), 200)}", "fault")
            return
        self._last_lines(lines)

    def _last_lines(self, lines: list[str]) -> None:
        """Print the end of a command's output: the important part is there."""
        if not self._terminal:
            return
        if (more := len(lines) - SHOWN) > 0:
            self._say(f"  … +{plural(more, 'line')}{self._more_hint}", "quiet")
        for line in lines[-SHOWN:]:
            self._print_line(f"  {line}", "output")

    def whole_output(self, blobs: str = "") -> None:
        """Print the last command's output; if it was shortened, name the file in `blobs` that has all of it."""
        if not self.output.last:
            self._say("no command has printed anything yet", "quiet")
            return
        self._say(f"{self.output.last_summary}:", "quiet")
        for line in self.output.last:
            self._say(f"  {line}", "plain")
        if self.output.last_cut:
            self._say(f"the middle is left out above; all of it: {blobs}/{self.output.last_cut}", "quiet")

    def live_lines(self) -> list[str]:
        """Return the running calls, each with its last lines of output; safe to show, and not cut to a width."""
        lines = list[str]()
        for call_id, summary in self.running.items():
            lines.append(f"• {summary}")
            lines += [f"  {line}" for line in self.output.live(call_id)] if self._terminal else ()
        return lines

    def _diff(self, diff: str) -> None:
        lines = diff.splitlines()
        self.diff("\n".join(lines[:MAX_DIFF_LINES]), indent="  ")
        if len(lines) > MAX_DIFF_LINES:
            self._say(f"  … {plural(len(lines) - MAX_DIFF_LINES, 'more line')}", "quiet")

    def _ending(self, event: ev.TurnFinished) -> None:
        self._print_blocks(self._blocks.finish())
        self._streamed = False
        self.running.clear()
        self.output.forget_running()
        if proof := proof_line(event):
            self._say(proof, "quiet" if event.proof == "verified" else "warning")
        if line := ending_line(event):
            self._say(line, "fault" if event.outcome == "error" else "warning")

    def _print_blocks(self, blocks: list[str]) -> None:
        for block in blocks:
            if self._after_block:
                self._write("\n")
            self._write(self._style.markdown(printable(block)))
            self._after_block = True

    def _say(self, text: str, kind: str) -> None:
        for line in printable(text).split("\n"):
            self._print_line(line, kind)

    def _print_line(self, line: str, kind: str) -> None:
        self._after_block = False
        style, write = self._aside
        write(style.line(line, kind))
