"""Updates: the fold from a session's events to the updates that an editor gets, live and when it loads a session."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from lmagent.acp.content import CallFacts, Object, code, diffs, kind_of, locations, quoted, shown, text
from lmagent.core import events as ev
from lmagent.core.messages import Image, Text, Thinking, ToolCall
from lmagent.core.view import NoticeBlock, View, is_filler, reduce, spoken
from lmagent.core.work import TaskStatus
from lmagent.planning.plans import plan_text
from lmagent.tools.sanitize import one_line

MESSAGE, THOUGHT = "agent_message_chunk", "agent_thought_chunk"

LIVE = 4000  # characters of a running command's output that are shown, from its end

_STATUS: dict[TaskStatus, str] = {
    "pending": "pending",
    "in_progress": "in_progress",
    "completed": "completed",
    "blocked": "pending",
    "failed": "completed",
    "skipped": "completed",
}


class Updates:
    """The display of one session in an editor.

    Attributes:
        view: the session's view. Blocks of ended turns are left out.
        calls: the calls that the editor knows, by id.
    """

    def __init__(self, workspace: Path, describe: Callable[[ToolCall], CallFacts]) -> None:
        self.view = View()
        self.calls: dict[str, CallFacts] = {}
        self._workspace = workspace
        self._describe = describe
        self._sent = {MESSAGE: "", THOUGHT: ""}  # of the reply that is being written
        self._last = ""  # the kind of the last update
        self._is_fresh = True  # the next text begins a new message
        self._outputs: dict[str, str] = {}
        self._grown: list[str] = []

    def of(self, events: Iterable[ev.Event], *, replay: bool = False) -> list[Object]:
        """Return the updates for some events; `replay` for those of the past, with the user's own messages."""
        found: list[Object] = []
        for event in events:
            for update in self._of(event, replay=replay):
                self._add(found, update)
        for call in self._grown:
            self._add(found, _call_update(call, content=[shown(self._outputs[call])]))
        self._grown.clear()
        return found

    def _add(self, found: list[Object], update: Object) -> None:
        kind = update["sessionUpdate"]
        if kind not in (MESSAGE, THOUGHT):
            found.append(update)
        elif found and found[-1]["sessionUpdate"] == kind and update["content"]["type"] == "text":
            found[-1]["content"]["text"] += update["content"]["text"]
        else:
            found.append(update)
        self._last = kind

    def _of(self, event: ev.Event, *, replay: bool) -> list[Object]:
        before = self.view
        self.view = reduce(before, event)
        found = self._shown(event, replay=replay)
        found += self._notices(event, before, replay=replay)
        if self.view.title != before.title:
            found.append({"sessionUpdate": "session_info_update", "title": one_line(self.view.title)})
        if self.view.tasks != before.tasks:
            found.append(self._plan())
        if isinstance(event, ev.TurnFinished):
            self.view = msgspec.structs.replace(self.view, blocks=())
            self._outputs.clear()
        return found

    def _shown(self, event: ev.Event, *, replay: bool) -> list[Object]:
        match event:
            case ev.TextDelta(text=words):
                return self._live(MESSAGE, words)
            case ev.ThinkingDelta(text=words):
                return self._live(THOUGHT, words)
            case ev.RetryScheduled():
                return self._broken_off()
            case ev.MessageAdded():
                return self._message(event, replay=replay)
            case ev.ToolStarted():
                return [self._started(event)]
            case ev.ToolOutput(call_id=call, text=words) if call in self.calls:
                self._outputs[call] = (self._outputs.get(call, "") + words)[-LIVE:]
                self._grown += [] if call in self._grown else [call]
                return []
            case ev.ToolFinished() if event.call_id in self.calls:
                return [self._finished(event)]
            case ev.PlanProposed(plan=plan) if replay:
                return self._paragraph(quoted(plan_text(plan)))
            case _:
                return []

    # --- text -------------------------------------------------------------------------------------------------------

    def _live(self, kind: str, words: str) -> list[Object]:
        found = self._chunk(kind, words) if words else []
        self._sent[kind] += words
        return found

    def _chunk(self, kind: str, words: str) -> list[Object]:
        gap = "\n\n" if self._is_fresh and self._last == kind else ""
        self._is_fresh = False
        return [{"sessionUpdate": kind, "content": text(gap + words)}]

    def _paragraph(self, words: str) -> list[Object]:
        self._is_fresh = True
        found = self._chunk(MESSAGE, words)
        self._is_fresh = True
        return found

    def _broken_off(self) -> list[Object]:
        if not any(self._sent.values()):
            return []
        self._sent = {MESSAGE: "", THOUGHT: ""}
        return self._paragraph(quoted("The reply broke off. It is asked for again."))

    def _message(self, event: ev.MessageAdded, *, replay: bool) -> list[Object]:
        if event.message.role == "user":
            is_input = replay and event.origin in ("input", "steer")
            self._is_fresh, self._last = True, "" if event.origin in ("input", "steer") else self._last
            return [_user_chunk(part) for part in event.message.parts if isinstance(part, Text | Image)] * is_input
        if event.message.role != "assistant" or is_filler(event):
            return []
        found: list[Object] = []
        message = spoken(event)
        thought = "".join(part.text for part in message.parts if isinstance(part, Thinking))
        for kind, whole in ((THOUGHT, thought), (MESSAGE, message.text)):
            if rest := _rest(whole, self._sent[kind]):
                found += self._chunk(kind, rest)
        self._sent = {MESSAGE: "", THOUGHT: ""}
        self._is_fresh = True
        return found + [self._announced(call) for call in message.tool_calls]

    def _notices(self, event: ev.Event, before: View, *, replay: bool) -> list[Object]:
        """Return the notices that the view gained; how a turn ended without an answer is in the prompt's response."""
        is_shown_elsewhere = not replay or (isinstance(event, ev.TurnFinished) and event.reason == ev.BY_USER)
        if isinstance(event, ev.TurnFinished) and event.outcome in ("interrupted", "error") and is_shown_elsewhere:
            return []
        gained = self.view.blocks[len(before.blocks) :]
        return [
            chunk for block in gained if isinstance(block, NoticeBlock) for chunk in self._paragraph(quoted(block.text))
        ]

    # --- calls ------------------------------------------------------------------------------------------------------

    def _announced(self, call: ToolCall) -> Object:
        facts = self.calls[call.id] = self._describe(call)
        return self._call(call.id, facts, "pending")

    def _call(self, id: str, facts: CallFacts, status: str) -> Object:
        update = _call_update(id, title=facts.title, kind=facts.kind, status=status)
        update |= {"sessionUpdate": "tool_call", "locations": locations(self._workspace, facts.paths)}
        return update

    def _started(self, event: ev.ToolStarted) -> Object:
        known = self.calls.get(event.call_id)
        paths = known.paths if known is not None else ()
        facts = CallFacts(code(event.summary or event.tool), kind_of(event.tool, event.effect), paths)
        self.calls[event.call_id] = facts
        if known is None:  # a call of our own, such as the project's check
            return self._call(event.call_id, facts, "in_progress")
        return _call_update(event.call_id, title=facts.title, kind=facts.kind, status="in_progress")

    def _finished(self, event: ev.ToolFinished) -> Object:
        self._outputs.pop(event.call_id, None)
        if event.call_id in self._grown:
            self._grown.remove(event.call_id)
        path, difference = event.data.get("path"), event.data.get("diff")
        content = [shown(event.content)]
        fields: Object = {}
        if isinstance(path, str) and path:
            fields["locations"] = locations(self._workspace, (path,))
            if isinstance(difference, str) and difference:
                content = diffs(difference, self._workspace / path) or [shown(difference)]
        status = "completed" if event.status == "ok" else "failed"
        return _call_update(event.call_id, status=status, content=content, **fields)

    def _plan(self) -> Object:
        entries = [
            {"content": one_line(task.title, 300), "priority": "medium", "status": _STATUS[task.status]}
            for task in self.view.tasks
        ]
        return {"sessionUpdate": "plan", "entries": entries}


def _call_update(id: str, **fields: object) -> Object:
    return {"sessionUpdate": "tool_call_update", "toolCallId": id, **fields}


def _rest(whole: str, sent: str) -> str:
    """Return the text of a finished reply that was not streamed; calls written as text are cut off later."""
    if not sent.strip():
        return whole
    if whole.startswith(sent):
        return whole[len(sent) :]
    return "" if whole.strip() in sent else f"\n\n{whole}"


def _user_chunk(part: Text | Image) -> Object:
    if isinstance(part, Text):
        return {"sessionUpdate": "user_message_chunk", "content": text(part.text)}
    image = {"type": "image", "data": part.data, "mimeType": part.media_type}
    return {"sessionUpdate": "user_message_chunk", "content": image}
