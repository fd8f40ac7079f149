"""Renderer: events as finished text, which a style formats for a terminal or leaves plain."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from lmagent.app.subagents.nested import NestedLines
from lmagent.core import events as ev
from lmagent.core.lines import advice_line, command_end, ending_line, failure_line, retry_line
from lmagent.core.messages import NO_WORDS, Thinking
from lmagent.core.model import Usage
from lmagent.core.plurals import plural
from lmagent.core.view import is_filler, proof_line, spoken
from lmagent.planning.plans import plan_text
from lmagent.planning.proposing import PlanWords
from lmagent.terminal.style import PlainStyle
from lmagent.tools.sanitize import one_line, printable, visible

MAX_DIFF_LINES = 40
"""Lines of a diff that are shown; the rest is counted."""

SHOWN, LIVE = 8, 4
"""Lines of a command's output that are shown under its call, and while the command runs."""

_KEPT = 8192
"""Characters of a running command's output that are kept."""

_CUT = re.compile(r"^\[… (.* left out); read on with read_artifact\(.*\) …\]$", re.MULTILINE)
"""Marks the missing middle of a long output, with advice for the model."""

_HEADING = re.compile(r"#{1,6}[ \t]")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")

_OF_AGENTS = (ev.SubagentStarted, ev.SubagentEvent, ev.SubagentFinished)

Write = Callable[[str], None]


class Renderer:
    """Prints finished text once. Unfinished text is in `tail` and `running`.

    Args:
        write: prints finished text above the prompt.
        terminal: whether a user watches, and sees thoughts, the output of commands and the cost of a turn.
        more: how the user sees the rest of a command's output, printed after the count of lines; empty for no way.
        aside: style and destination of everything but the model's text and plans; None for the same place.
        verbatim: each text of the model is printed once and unchanged, when it is whole: for a pipe or a file.

    Attributes:
        previewed: calls whose diff the user has seen before they ran.
        workspace: where pictures are, if this terminal may show them.
    """

    def __init__(
        self,
        style: PlainStyle,
        write: Write,
        *,
        terminal: bool = True,
        more: str = "",
        aside: tuple[PlainStyle, Write] | None = None,
        verbatim: bool = False,
    ) -> None:
        self._style = style
        self._write = write
        self._aside = aside or (style, write)
        self._terminal = terminal
        self._more_hint = f" ({more})" if more else ""
        self._verbatim = verbatim
        self._began, self._used = 0.0, list[Usage]()
        self._blocks = BlockStream()
        self._streamed = self._after_block = False
        self.previewed: set[str] = set()
        self.workspace: Path | None = None
        self.running: dict[str, str] = {}
        self._output: dict[str, str] = {}
        self._last: tuple[str, list[str], str] | None = None
        self._nested = NestedLines()
        self.words = PlanWords()

    @property
    def tail(self) -> str:
        """Return the block that is still growing."""
        return printable(self._blocks.tail)

    def __call__(self, event: ev.Event) -> None:
        match event:
            case ev.TextDelta() if not self._verbatim:
                self._streamed = True
                self._print_blocks(self._blocks.feed(self.words.feed(event.text)))
            case ev.MessageAdded() if event.message.role == "assistant" and not is_filler(event):
                self._message(event)
            case ev.ToolStarted():
                self.running[event.call_id] = one_line(event.summary or event.tool)
            case ev.ToolOutput():
                self._output[event.call_id] = (self._output.get(event.call_id, "") + event.text)[-_KEPT:]
            case ev.ToolFinished():
                self._tool(event)
            case ev.StepStarted():
                self._comes_again()
            case ev.RetryScheduled():
                self._comes_again()
                self.say(retry_line(event), "warning")
            case ev.CompactionDone():
                self._used += [event.usage] if event.usage is not None else []
                self.say(f"conversation shortened: {event.before_tokens:,} → {event.after_tokens:,} tokens", "quiet")
            case ev.Notice():
                self.say(event.text + advice_line(event), "fault" if event.level == "error" else "warning")
            case ev.TurnFinished():
                self._ending(event)
            case _:
                self._beside(event)

    def say(self, text: str, kind: str = "plain") -> None:
        for line in printable(text).split("\n"):
            self._print_line(line, kind)

    def diff(self, text: str, indent: str = "") -> None:
        for line in text.splitlines():
            self.say(f"{indent}{line}", {"+": "added", "-": "fault"}.get(line[:1], "quiet"))

    def approval(self, request: ev.ApprovalRequested) -> None:
        self.say(f"{one_line(request.summary)} — {one_line(request.reason, 1000)}", "warning")
        self._diff(visible(request.preview))
        if request.preview:
            self.previewed.add(request.call_id)

    def plan(self, proposal: ev.PlanProposed) -> None:
        # Not as Markdown, which leaves out comments and the targets of links.
        for line in visible(plan_text(proposal.plan)).splitlines():
            self._write(self._style.line(line, "plain"))

    def whole_output(self, blobs: str = "") -> None:
        """Print the last command's output; if it was shortened, name the file in `blobs` that has all of it."""
        if self._last is None:
            self.say("no command has printed anything yet", "quiet")
            return
        summary, lines, cut = self._last
        self.say(f"{summary}:", "quiet")
        for line in lines:
            self.say(f"  {line}")
        if cut:
            self.say(f"the middle is left out above; all of it: {blobs}/{cut}", "quiet")

    def live_lines(self) -> list[str]:
        """Return the running calls, each with its last lines of output; safe to show, and not cut to a width."""
        lines = list[str]()
        for call_id, summary in self.running.items():
            lines.append(f"• {summary}")
            if self._terminal:
                lines += [f"  {line}" for line in _lines(self._output.get(call_id, ""))[-LIVE:]]
        return lines

    def _beside(self, event: ev.Event) -> None:
        inner = ev.innermost(event)[1]
        if isinstance(inner, ev.ApprovalRequested):
            self.approval(inner)
        elif isinstance(event, ev.PlanProposed):
            self.plan(event)
        elif isinstance(event, ev.TurnStarted):
            self._began, self._used = event.ts, []
        elif isinstance(event, ev.StepFinished):
            self._used.append(event.usage)
        elif isinstance(event, ev.WorkChanged):
            self.words.planning = event.mode == "plan"
        elif isinstance(event, _OF_AGENTS) and (line := self._nested(event)):
            self.say(visible(line[1]), line[0])

    def _comes_again(self) -> None:
        self._streamed = False
        self._blocks.drop()
        self.words.drop()

    def _message(self, event: ev.MessageAdded) -> None:
        thought = "".join(part.text for part in event.message.parts if isinstance(part, Thinking))
        if thought.strip() and self._terminal:
            self.say(f"… thought: {one_line(printable(thought), 80)}", "quiet")
        rest, whole = self.words.finish(spoken(event).text)
        whole = "" if event.message.text == NO_WORDS else whole
        if self._verbatim:
            self._write(self._style.markdown(printable(whole.rstrip("\n"))) if whole.strip() else "")
        else:
            self._print_blocks(self._blocks.feed(rest if self._streamed else whole))
        self._end_text()

    def _end_text(self) -> None:
        self._print_blocks(self._blocks.finish())
        self._streamed = False

    def _tool(self, event: ev.ToolFinished) -> None:
        summary = self.running.pop(event.call_id, "") or one_line(str(event.data.get("summary") or event.tool))
        took = f" · {event.duration:.1f} s" if event.duration >= 0.1 else ""
        self._output.pop(event.call_id, None)
        if lines := command_output(event):
            self._last = summary, lines, event.artifact or ""
        if event.status != "ok":
            self.say(f"✗ {summary}: {one_line(printable(failure_line(event)), 200)}", "fault")
        elif end := command_end(event):
            self.say(f"✗ {summary} · {end}{took}", "fault")
        else:
            self.say(f"✓ {summary}{took}", "ok")
        if event.status != "ok" or not self._terminal:
            return
        diff = event.data.get("diff")
        if isinstance(diff, str) and event.call_id not in self.previewed:
            self._diff(diff)
        if self.workspace is not None and isinstance(picture := event.data.get("picture"), str):
            from lmagent.terminal.pictures import printed  # few sessions draw

            self._write(printed(self.workspace, picture, os.environ))
        # The end of a command's output is the important part.
        if (more := len(lines) - SHOWN) > 0:
            self.say(f"  … +{plural(more, 'line')}{self._more_hint}", "quiet")
        for line in lines[-SHOWN:]:
            self._print_line(f"  {line}", "output")

    def _diff(self, diff: str) -> None:
        lines = diff.splitlines()
        self.diff("\n".join(lines[:MAX_DIFF_LINES]), indent="  ")
        if len(lines) > MAX_DIFF_LINES:
            self.say(f"  … {plural(len(lines) - MAX_DIFF_LINES, 'more line')}", "quiet")

    def _ending(self, event: ev.TurnFinished) -> None:
        self._end_text()
        self.running.clear()
        self._output.clear()
        if proof := proof_line(event):
            self.say(proof, "quiet" if event.proof == "verified" else "warning")
        if line := ending_line(event):
            self.say(line, "fault" if event.outcome == "error" else "warning")
        if self._began and self._terminal:  # else a turn of a resumed session is shown again
            self.say(_cost(max(0.0, event.ts - self._began), self._used), "quiet")
        self._began = 0.0

    def _print_blocks(self, blocks: list[str]) -> None:
        for block in blocks:
            if self._after_block:
                self._write("\n")
            self._write(self._style.markdown(printable(block)))
            self._after_block = True

    def _print_line(self, line: str, kind: str) -> None:
        self._after_block = False
        style, write = self._aside
        write(style.line(line, kind))


class BlockStream:
    """Takes text as it comes and returns whole blocks of Markdown: paragraphs, lists, fenced code.

    A block ends at a blank line outside a fence. A heading and code that is not indented are blocks of their own,
    also without a blank line around them. The unfinished rest is in `tail`.
    """

    def __init__(self) -> None:
        self.tail = ""

    def feed(self, text: str) -> list[str]:
        """Add text; returns the blocks that it finished."""
        self.tail += text
        done: list[str] = []
        while "\n" in text and (end := _block_end(self.tail)) is not None:
            block, self.tail = self.tail[:end], self.tail[end:].lstrip("\n")
            if block.strip():
                done.append(block.rstrip())
        return done

    def finish(self) -> list[str]:
        rest, self.tail = self.tail, ""
        return [rest.rstrip()] if rest.strip() else []

    def drop(self) -> None:
        """Forget the tail."""
        self.tail = ""


def _block_end(text: str) -> int | None:
    """Return where the first block ends: after a blank line, a heading or the end of a fence, or before the next."""
    fence = ""
    position = 0
    while (newline := text.find("\n", position)) >= 0:
        line = text[position:newline]
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
                return newline + 1
        elif (_HEADING.match(line) or (mark and mark.start(1) == 0)) and text[:position].strip():
            return position
        elif mark:
            fence = mark[1]
        elif not line.strip() or _HEADING.match(line):
            return newline + 1
        position = newline + 1
    return None


def _cost(seconds: float, used: Sequence[Usage]) -> str:
    """Return the cost of a turn: its time, tokens of the prompts with the cached part, tokens of the answers."""
    prompt, cached = sum(usage.prompt_tokens for usage in used), sum(usage.cached_tokens for usage in used)
    answer = sum(usage.completion_tokens for usage in used)
    share = f" ({cached / prompt:.0%} cached)" if cached else ""
    parts = [_duration(seconds), f"{prompt:,} tokens in{share}" if prompt else "", f"{answer:,} out" if answer else ""]
    return " · ".join(filter(None, parts))


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 9.5 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def command_output(event: ev.ToolFinished) -> list[str]:
    """Return the lines that a command printed, without the notes to the model; empty if it runs no command."""
    notes: list[str] | None = event.data.get("notes")
    if notes is None or event.content == "(no output)":
        return []
    to_model = {line for note in notes for line in note.split("\n")}
    content = _CUT.sub(r"[… \1 …]", event.content) if event.artifact else event.content
    return _lines("\n".join(line for line in content.split("\n") if line not in to_model))


def _lines(text: str) -> list[str]:
    return printable(text).expandtabs().strip("\n").split("\n") if text.strip() else []
