"""View: the fold from events to a surface's display, for the terminal, replay and reconnect; the web UI has its twin.

`reduce` takes durable and live events alike. Live text is in `draft` until the durable message replaces it, so a
watcher who joins late, reconnects or replays a log ends with the same view.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec
from msgspec import Struct

from lmagent.core import events as ev
from lmagent.core.lines import proof_line, stop_line
from lmagent.core.live import AWAY, BACK
from lmagent.core.messages import STOPPED, Image, Message, Part, Text, Thinking, ToolCall, ToolStatus
from lmagent.core.model import SessionOptions, Usage
from lmagent.core.titles import title_of
from lmagent.core.work import Task

_USED = re.compile(r'\{ *"name": *"([A-Za-z0-9_.:-]+)"')

State = Literal["idle", "queued", "thinking", "running", "waiting", "retrying"]


class UserBlock(Struct, frozen=True, tag_field="kind", tag="user"):
    """A message of the user, with the number of its images and the turn in which the model got it."""

    id: str
    text: str
    delivery: str
    images: int = 0
    turn: int = 0


class TextBlock(Struct, frozen=True, tag_field="kind", tag="text"):
    """A text of the model, and the turn to which it belongs."""

    text: str
    turn: int = 0


class ThinkingBlock(Struct, frozen=True, tag_field="kind", tag="thinking"):
    """A thought of the model."""

    text: str


class PageCard(Struct, frozen=True):
    """A web page that a call has read: its address and title."""

    url: str
    title: str


class ToolBlock(Struct, frozen=True, tag_field="kind", tag="tool"):
    """A call: one line, and its result when it is there; `picture` is the path of one that it drew."""

    call_id: str
    tool: str
    summary: str
    status: ToolStatus | Literal["pending", "running"]
    content: str = ""
    diff: str = ""
    duration: float = 0.0
    page: PageCard | None = None
    picture: str = ""


class NoticeBlock(Struct, frozen=True, tag_field="kind", tag="notice"):
    """A notice, a compaction, or the end of a turn that is not simply done."""

    level: Literal["info", "warning", "error"]
    text: str


class BranchBlock(Struct, frozen=True, tag_field="kind", tag="branch"):
    """The place where the session left the one that it is a copy of."""

    parent: str


Block = UserBlock | TextBlock | ThinkingBlock | ToolBlock | NoticeBlock | BranchBlock


class Pending(Struct, frozen=True):
    """An approval that waits for the user."""

    id: str
    call_id: str
    tool: str
    summary: str
    preview: str
    reason: str
    grant: str


class Totals(Struct, frozen=True):
    """Usage so far; `context` is the size of the last prompt in tokens."""

    steps: int = 0
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    context: int = 0


ENOUGH = 200
"""Tokens read in a call above which its speed is meaningful: below, the server's own overhead counts more."""

NEWS = 0.5
"""Weight of the newest call in the speed of reading."""

LOST = 2000
"""Tokens read again above which the user gets a notice."""


class Pace(Struct, frozen=True):
    """The measured speed.

    Attributes:
        read_per_s: prompt tokens a second; 0 before it is known.
        write_per_s: reply tokens a second of the last call; 0 before it is known.
        prompt: tokens of the last prompt, which the server may still have in its cache.
        fresh: tokens that the running call adds to it, by our count.
        reread: tokens of the last call's prompt that had been read before and were read again.
        reread_total: the same for all calls.
        reports_cache: the server reports how much it took from its cache.
    """

    read_per_s: float = 0.0
    write_per_s: float = 0.0
    prompt: int = 0
    fresh: int = 0
    reread: int = 0
    reread_total: int = 0
    reports_cache: bool = False

    @property
    def reading_s(self) -> float:
        """Estimate the seconds in which the running call's prompt is read; 0 if unknown."""
        return self.fresh / self.read_per_s if self.read_per_s else 0.0

    def started(self, prompt_tokens: int) -> Pace:
        """A call has been sent."""
        return msgspec.structs.replace(self, fresh=max(0, prompt_tokens - self.prompt))

    def finished(self, step: ev.StepFinished) -> Pace:
        """A call has ended."""
        usage = step.usage
        reports = self.reports_cache or usage.cached_tokens > 0
        read = usage.prompt_tokens - usage.cached_tokens if reports else max(0, usage.prompt_tokens - self.prompt)
        speed = self.read_per_s
        if read >= ENOUGH and step.first_token_s >= 0.05:
            sample = read / step.first_token_s
            speed = sample * NEWS + speed * (1 - NEWS) if speed else sample
        writing = step.total_s - step.first_token_s
        again = max(0, min(self.prompt, usage.prompt_tokens) - usage.cached_tokens) if reports else 0
        return Pace(
            read_per_s=speed,
            write_per_s=usage.completion_tokens / writing if writing > 0.05 else self.write_per_s,
            prompt=usage.prompt_tokens,
            reread=again,
            reread_total=self.reread_total + again,
            reports_cache=reports,
        )

    def compacted(self) -> Pace:
        """Note that the conversation was compacted: the server's cache is useless now, and that counts as no loss."""
        return msgspec.structs.replace(self, prompt=0)

    def why_slow(self) -> str:
        """Return why the last call was slow, if the user can do something about it."""
        if self.reread >= LOST:
            return f"{self.reread:,} tokens were read again: the server had lost its cache"
        return ""


class View(Struct, frozen=True):
    """A session, as a surface shows it.

    Attributes:
        blocks: the conversation in the model's order: a message of the user is in it once the model gets it.
        waiting: messages of the user that have not reached the model, oldest first.
        until: when the session continues by itself, in Unix seconds; 0 for never.
    """

    session: str = ""
    title: str = ""
    agent: str = ""
    model: str = ""
    mode: str = "normal"
    state: State = "idle"
    turn: int = 0
    outcome: str = ""
    until: float = 0.0
    blocks: tuple[Block, ...] = ()
    waiting: tuple[UserBlock, ...] = ()
    draft: str = ""
    thinking: str = ""
    progress: float | None = None
    approvals: tuple[Pending, ...] = ()
    totals: Totals = Totals()
    pace: Pace = Pace()
    seconds_left: float | None = None
    work: str = "normal"
    tasks: tuple[Task, ...] = ()
    plan: ev.PlanProposed | None = None
    options: SessionOptions = SessionOptions()


def reduce(view: View, event: ev.Event) -> View:
    """Return the view after the event."""
    match event:
        case ev.TextDelta(text=text):
            return _with(view, draft=view.draft + text, state="running", progress=None)
        case ev.ThinkingDelta(text=text):
            return _with(view, thinking=view.thinking + text, state="thinking", progress=None)
        case ev.PrefillProgress(waits=True):
            return _with(view, state="queued", progress=None, seconds_left=None)
        case ev.PrefillProgress(fraction=fraction, seconds_left=left):
            state = "thinking" if view.state == "queued" else view.state
            return _with(view, state=state, progress=fraction, seconds_left=left)
        case ev.RetryScheduled():
            return _with(view, draft="", thinking="", state="retrying")
        case ev.ToolOutput():
            return view
        case ev.MessageAdded():
            return _message(view, event)
        case ev.ToolStarted() | ev.ToolFinished():
            return _tool(view, event)
        case ev.ApprovalRequested() | ev.ApprovalResolved() | ev.SubagentEvent():
            return _approval(view, ev.innermost(event)[1])
        case ev.StepStarted() | ev.StepFinished() | ev.TurnStarted() | ev.TurnFinished():
            return _turn(view, event)
        case ev.TasksChanged() | ev.PlanProposed() | ev.PlanDecided() | ev.WorkChanged():
            return _work(view, event)
        case _:
            return _session(view, event)


def _with(view: View, **changes: object) -> View:
    return msgspec.structs.replace(view, **changes)


def _add(view: View, *blocks: Block, **changes: object) -> View:
    return _with(view, blocks=(*view.blocks, *blocks), **changes)


def is_filler(event: ev.MessageAdded) -> bool:
    """Whether a reply only fills the place of a missing one, so that the conversation can be sent."""
    return event.message.role == "assistant" and event.origin == "recovery" and not event.turn


def spoken(event: ev.MessageAdded) -> Message:
    """Return the message without the mark that tells only the model that its reply was stopped."""
    if event.origin != "recovery":
        return event.message
    parts = [Text(part.text.removesuffix(STOPPED)) if isinstance(part, Text) else part for part in event.message.parts]
    return Message(event.message.role, tuple[Part, ...](parts))


def _message(view: View, event: ev.MessageAdded) -> View:
    if is_filler(event):
        return view
    if event.message.role == "assistant":
        added: list[Block] = []
        for part in spoken(event).parts:
            if isinstance(part, Thinking) and part.text.strip():
                added.append(ThinkingBlock(part.text))
            elif isinstance(part, Text) and part.text.strip():
                added.append(TextBlock(part.text, event.turn))
        calls = [ToolBlock(call.id, call.name, _called(call), "pending") for call in event.message.tool_calls]
        return _add(view, *added, *calls, draft="", thinking="")
    if event.origin not in ("input", "steer"):
        return view
    sent = next((item for item in view.waiting if item.id == event.input), None)
    if sent is None:  # it was imported, or the line of its arrival is damaged
        title = view.title or title_of(event.message.text)
        return _add(view, UserBlock(event.input or event.id, event.message.text, "submit", 0, event.turn), title=title)
    return _add(view, msgspec.structs.replace(sent, turn=event.turn), waiting=_without(view, event.input))


def _called(call: ToolCall) -> str:
    """Return the name of the tool that a call is for: the arguments of `use_tool` begin with it."""
    found = _USED.match(call.arguments) if call.name == "use_tool" else None
    return found[1] if found else call.name


def _without(view: View, input: str | None) -> tuple[UserBlock, ...]:
    return tuple(item for item in view.waiting if item.id != input)


def _page(given: Any) -> PageCard | None:
    """Return the page in a call's data: a log may come from elsewhere."""
    match given:
        case {"url": str(url), "title": str(title)} if url.startswith(("https://", "http://")):
            return PageCard(url, title)
        case _:
            return None


def _tool(view: View, event: ev.ToolStarted | ev.ToolFinished) -> View:
    blocks = list(view.blocks)
    for position in range(len(blocks) - 1, -1, -1):
        block = blocks[position]
        if not isinstance(block, ToolBlock) or block.call_id != event.call_id:
            continue
        if isinstance(event, ev.ToolStarted):
            blocks[position] = ToolBlock(block.call_id, event.tool, event.summary or event.tool, "running")
        else:
            diff, asked = event.data.get("diff", ""), event.data.get("summary", "")
            picture = event.data.get("picture", "")
            blocks[position] = ToolBlock(
                block.call_id,
                event.tool,
                asked if block.status == "pending" and isinstance(asked, str) and asked else block.summary,
                event.status,
                event.content,
                diff if isinstance(diff, str) else "",
                event.duration,
                _page(event.data.get("page")),
                picture if isinstance(picture, str) else "",
            )
        return _with(view, blocks=tuple(blocks), state=_state(view, event, "running"))
    if isinstance(event, ev.ToolStarted) and event.call_id.startswith(ev.OWN_CALL):
        return _add(
            view, ToolBlock(event.call_id, event.tool, event.summary, "running"), state=_state(view, event, "running")
        )
    return view  # the user's own change of a file is no call


def _state(
    view: View, event: ev.ToolStarted | ev.ToolFinished | ev.ApprovalRequested | ev.ApprovalResolved, new: State
) -> State:
    """Return the state after a call's event; a call between turns does not change it."""
    return view.state if event.call_id.startswith(ev.COMMAND_CALL) else new


def _approval(view: View, event: ev.Event) -> View:
    """Note an approval, also of a sub-agent: those are answered in the session that it works for."""
    if not isinstance(event, ev.ApprovalRequested | ev.ApprovalResolved):
        return view
    if isinstance(event, ev.ApprovalResolved):
        left = tuple(item for item in view.approvals if item.id != event.approval)
        return _with(view, approvals=left, state=_state(view, event, "waiting" if left else "running"))
    if any(item.id == event.id for item in view.approvals):
        return view  # asked again, for a user who was absent the first time
    pending = Pending(event.id, event.call_id, event.tool, event.summary, event.preview, event.reason, event.grant)
    return _with(view, approvals=(*view.approvals, pending), state=_state(view, event, "waiting"))


def _turn(view: View, event: ev.StepStarted | ev.StepFinished | ev.TurnStarted | ev.TurnFinished) -> View:
    match event:
        case ev.TurnStarted():
            return _with(view, turn=event.turn, state="thinking", outcome="", until=0.0)
        case ev.StepStarted():
            totals = msgspec.structs.replace(view.totals, context=event.prompt_tokens)
            begun = _with(view, state="thinking", draft="", thinking="", totals=totals, progress=None)
            return _with(begun, pace=view.pace.started(event.prompt_tokens), model=event.model or view.model)
        case ev.StepFinished():
            pace = view.pace.finished(event)
            totals = _count(view.totals, event.usage)
            return _with(view, totals=totals, pace=pace, model=event.model or view.model)
        case ev.TurnFinished():
            ended = _with(view, state="idle", outcome=event.ending, draft="", thinking="", progress=None)
            ended = _with(ended, until=event.until, approvals=())
            if proof := proof_line(event):
                ended = _add(ended, NoticeBlock("info" if event.proof == "verified" else "warning", proof))
            notice = _ending(event)
            return ended if notice is None else _add(ended, notice)


def _ending(event: ev.TurnFinished) -> NoticeBlock | None:
    """Return the notice of a turn that did not end well; a plan that waits has a card of its own."""
    if event.outcome == "done" or event.cause == "plan" or not event.reason:
        return None
    if event.outcome == "interrupted":
        return NoticeBlock("info" if event.reason == ev.BY_USER else "warning", stop_line(event))
    if event.outcome == "error":  # its level says so
        return NoticeBlock("error", f"{event.reason}\n{event.fix}".strip())
    return NoticeBlock("warning", f"{event.outcome.capitalize()}: {event.reason}\n{event.fix}".strip())


_DECIDED = {"approved": "Plan approved", "revise": "Plan sent back for revision", "rejected": "Plan rejected"}


def _work(view: View, event: ev.TasksChanged | ev.PlanProposed | ev.PlanDecided | ev.WorkChanged) -> View:
    match event:
        case ev.TasksChanged():
            tasks = {task.id: task for task in view.tasks} | {task.id: task for task in event.items}
            return _with(view, tasks=tuple(task for task in tasks.values() if task.id not in event.removed))
        case ev.PlanProposed():
            return _with(view, plan=event)
        case ev.PlanDecided():
            return _add(view, NoticeBlock("info", _DECIDED[event.decision]), plan=None)
        case ev.WorkChanged():
            return _with(view, work=event.mode)


def _count(totals: Totals, usage: Usage) -> Totals:
    return Totals(
        steps=totals.steps + 1,
        prompt=totals.prompt + usage.prompt_tokens,
        completion=totals.completion + usage.completion_tokens,
        cached=totals.cached + usage.cached_tokens,
        context=usage.prompt_tokens + usage.completion_tokens or totals.context,
    )


def _session(view: View, event: ev.Event) -> View:
    match event:
        case ev.SessionCreated():
            view = View() if event.replaces else view
            view = _with(view, session=event.session, agent=event.agent)
            return _with(view, model=event.model, mode=event.mode, options=event.options)
        case ev.SessionForked():
            forked = _add(view, BranchBlock(event.parent), session=event.session)
            return _with(forked, waiting=())  # the original session answers them
        case ev.SessionRenamed():
            return _with(view, title=title_of(event.title, None))
        case ev.ModeChanged():
            return _with(view, mode=event.mode)
        case ev.ModelChanged():
            text = f"Model changed to {event.model}. It reads the conversation once: about {event.tokens:,} tokens."
            said = _add(view, NoticeBlock("info", text)) if event.tokens else view
            return _with(said, model=event.model)
        case ev.OptionsChanged():
            return _with(view, options=event.options)
        case ev.InputReceived():
            title = view.title or title_of(event.message.text)
            images = sum(isinstance(part, Image) for part in event.message.parts)
            said = UserBlock(event.id, event.message.text, event.delivery, images)
            return _with(view, waiting=(*view.waiting, said), title=title)
        case ev.InputWithdrawn():
            return _with(view, waiting=_without(view, event.input))
        case ev.CompactionDone():
            text = f"Conversation shortened: {event.before_tokens:,} → {event.after_tokens:,} tokens"
            totals = _count(view.totals, event.usage) if event.usage is not None else view.totals
            totals = msgspec.structs.replace(totals, context=view.totals.context)
            return _add(view, NoticeBlock("info", text), pace=view.pace.compacted(), totals=totals)
        case ev.CallsConstrained():
            now = "writes its calls by itself again" if event.lifted else "is made to write valid calls from now on"
            text = f"{event.model or 'the model'} {now}: {event.reason}"
            return _add(view, NoticeBlock("info", text))
        case ev.Notice():
            state: State = "retrying" if event.code == AWAY else "thinking" if event.code == BACK else view.state
            return _add(view, NoticeBlock(event.level, f"{event.text}\n{event.fix}".strip()), state=state)
        case _:
            return view
