"""State: all knowledge about a session, as a fold of its events.

The fold is the only writer. `messages` is the conversation exactly as it is sent: it grows at its end, and only
`compaction.done` replaces it. Messages that were sent (`step.started` seals them) do not change, so the server's cache
stays valid. A tool message holds only the tool's result: text from the user or the harness is a user message after the
results. Two unsent user messages become one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct, ValidationError, field

from lmagent.core import events as ev
from lmagent.core.decoding import convert
from lmagent.core.ids import InputOrigin
from lmagent.core.messages import Image, Message, Part, Text, Thinking, ToolCall, ToolResult
from lmagent.core.model import ToolSpec, Usage
from lmagent.core.titles import title_of
from lmagent.core.tool import FileMark
from lmagent.engine.work import Calling, WorkEvent, WorkState, usage_beside

BYTES_PER_TOKEN = 4
"""The rule of thumb until the server has reported real counts."""

DENSEST, COARSEST = 1.0, 8.0
"""Credible bytes per token. English has 4 to 5, code 3, other scripts 2 to 4."""

LOST_MESSAGE = "[A message is missing here: the log was damaged.]"
LOST_RESULT = "[The result is lost: the log was damaged. The call may have acted. Check the state before you continue.]"

_NOTE_NAME = re.compile(r"<([a-z_]+)>")


class _Data(Struct):
    """Data of the tools that touch files; all other data is ignored."""

    path: str = ""
    sha256: str = ""
    changed: bool = False
    shown: dict[str, str] = {}
    file: str = ""


class FileMarks(Struct):
    """The fold.

    Attributes:
        seen: files that the model was shown or wrote, by path, the last touched last.
        kept: refused writes that the model may confirm, by path: SHA-256 of the blob with the text, and of the file.
    """

    seen: dict[str, FileMark] = field(default_factory=dict[str, FileMark])
    kept: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])

    def apply(self, event: ev.ToolFinished) -> None:
        try:
            data = convert(event.data, _Data)
        except ValidationError:
            return
        if event.status != "ok":
            if event.artifact and data.file:
                self.kept[data.path] = (event.artifact, data.file)
            return
        if data.changed:
            self.kept.pop(data.path, None)
        for path, sha256 in (*data.shown.items(), (data.path, data.sha256)):
            if path and sha256:
                before = self.seen.pop(path, None)
                self.seen[path] = FileMark(sha256, data.changed or (before is not None and before.changed))


class SessionState(Struct):
    """The fold. Read it freely; change it only by `apply`."""

    session: str = ""
    workspace: str = ""
    agent: str = ""
    nonce: str = ""  # see `ModelRequest.nonce`
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    model: str = ""
    mode: ev.PermissionMode = "normal"
    title: str = ""
    seq: int = 0
    messages: list[Message] = field(default_factory=list[Message])
    sealed: int = 0
    calls: dict[str, ToolResult | None] = field(default_factory=dict[str, "ToolResult | None"])
    call_names: set[str] = field(default_factory=set[str])
    started: dict[str, ev.ToolStarted] = field(default_factory=dict[str, ev.ToolStarted])
    inputs: dict[str, ev.InputReceived] = field(default_factory=dict[str, ev.InputReceived])
    approvals: dict[str, ev.ApprovalRequested] = field(default_factory=dict[str, ev.ApprovalRequested])
    grants: list[str] = field(default_factory=list[str])
    marks: FileMarks = field(default_factory=FileMarks)
    artifacts: dict[str, str] = field(default_factory=dict[str, str])
    forgets: bool = False
    notes: dict[str, str] = field(default_factory=dict[str, str])
    user_texts: list[str] = field(default_factory=list[str])
    user_at: list[int] = field(default_factory=list[int])
    truncated: tuple[str, ...] = ()
    changes: list[ev.FilesChanged] = field(default_factory=list[ev.FilesChanged])
    undone: list[ev.FilesChanged] = field(default_factory=list[ev.FilesChanged])
    last_error: str = ""
    turn: int = 0
    turn_open: bool = False
    step: int = 0
    steps_total: int = 0
    compactions: int = 0
    head: int = 0  # parts of the first message that no cut has changed
    summary: str = ""
    usage: Usage = field(default_factory=Usage)
    prompt_tokens: int = 0
    fixed_bytes: int = 0
    conversation_bytes: int = 0
    sealed_bytes: int = 0
    measured_bytes: int = 0
    bytes_per_token: float = BYTES_PER_TOKEN
    served_model: str = ""
    calling: Calling = field(default_factory=Calling)
    last_outcome: str = ""
    wait: ev.TurnFinished | None = None
    origin: InputOrigin = (
        InputOrigin()
    )  # of the last turn's input; a turn that only woke the session keeps the previous one
    unattended_denials: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    work: WorkState = field(default_factory=WorkState)

    # --- questions ------------------------------------------------------------------------------------------

    @property
    def files(self) -> dict[str, FileMark]:
        """Files that the model was shown or wrote, by path."""
        return self.marks.seen

    @property
    def open_calls(self) -> list[ToolCall]:
        """Calls of the last assistant message that have no result yet, in the model's order."""
        if not self.calls:
            return []
        return [call for call in self.messages[-1].tool_calls if self.calls.get(call.id) is None]

    @property
    def owes_reply(self) -> bool:
        """Whether the conversation ends with an unanswered message, sent or not."""
        return bool(self.messages) and self.messages[-1].role != "assistant"

    @property
    def awaits_reply(self) -> bool:
        """Whether the conversation ends with an unanswered message, and all of it has been sent."""
        return self.owes_reply and self.sealed >= len(self.messages)

    def waiting(self, *deliveries: str) -> list[ev.InputReceived]:
        """Return inputs of these deliveries that have not reached the model, oldest first."""
        return [item for item in self.inputs.values() if item.delivery in deliveries]

    def estimate_tokens(self) -> int:
        """Return the prompt tokens of the next request: the server's last count, and later text by the learned ratio.

        A count below half of our own estimate is not believed: some servers report nonsense, or a constant.
        """
        own = self.tokens(self.fixed_bytes + self.conversation_bytes)
        counted = self.prompt_tokens + self.tokens(self.conversation_bytes - self.measured_bytes)
        return max(counted, own // 2) if self.prompt_tokens else own

    def tokens(self, size: int) -> int:
        return int(size / self.bytes_per_token)

    def bytes(self, tokens: int) -> int:
        return int(tokens * self.bytes_per_token)

    # --- the fold ---------------------------------------------------------------------------------------------

    def apply(self, event: ev.DurableEvent) -> None:
        self.seq = event.seq or self.seq
        match event:
            case ev.MessageAdded():
                self._add(event)
            case ev.ToolFinished():
                self._finish_call(event)
            case ev.ToolStarted():
                self.started[event.call_id] = event
            case ev.FilesChanged():
                self.changes.append(event)
                self.undone.clear()
                self.started.pop(
                    event.call_id if event.by else "", None
                )  # the user's own change has no result to end it
            case ev.FilesRestored():
                self._restore(event)
            case ev.StepStarted():
                self.sealed, self.sealed_bytes = len(self.messages), self.conversation_bytes
                self.step = event.step
            case ev.StepFinished():
                self._measure(event)
            case ev.CompactionDone():
                self._compact(event)
            case ev.SessionCreated() | ev.SessionForked() | ev.SessionRenamed() | ev.ModeChanged() | ev.ModelChanged():
                self._describe(event)
            case ev.ContextInherited():
                self._inherit(event)
            case _ if isinstance(event, WorkEvent):
                spent = self.usage.prompt_tokens + self.usage.completion_tokens
                children = self.work.child_usage.prompt_tokens + self.work.child_usage.completion_tokens
                self.work.apply(event, spent + children, self.steps_total + self.work.child_steps)
            case _:
                self._wait(event)

    def _inherit(self, event: ev.ContextInherited) -> None:
        """Take over the parent's conversation: the parent has sent all of it, so it may only be appended to."""
        self.messages = list(event.messages)
        self.notes, self.nonce = dict(event.notes), event.nonce or self.nonce
        self.conversation_bytes = sum(map(message_bytes, self.messages))
        self.call_names.update(call.id for message in self.messages for call in message.tool_calls)

    def _describe(
        self, event: ev.SessionCreated | ev.SessionForked | ev.SessionRenamed | ev.ModeChanged | ev.ModelChanged
    ) -> None:
        match event:
            case ev.SessionCreated():
                self.session, self.workspace, self.agent = event.session, event.workspace, event.agent
                self.system, self.tools, self.nonce = event.system, event.tools, event.id[:8]
                self.model, self.mode = event.model, event.mode
                self.work.parent, self.work.options, self.forgets = event.parent, event.options, event.forgets
                self.fixed_bytes = len(self.system.encode()) + sum(map(_spec_bytes, self.tools))
            case ev.SessionForked():
                self.session = event.session
                self.wait = None  # only the original session continues at that time
                self.inputs.clear()
                self.work.parent = None  # only the original works for a parent
            case ev.SessionRenamed():
                self.title = title_of(event.title, None)
            case ev.ModeChanged():
                self.mode = event.mode
            case ev.ModelChanged():
                self.model = event.model
                self.prompt_tokens, self.bytes_per_token = 0, BYTES_PER_TOKEN  # another model counts other tokens
                self.served_model, self.calling = "", Calling()

    def _wait(self, event: ev.DurableEvent) -> None:
        """Fold in an event on which the model, the user or the end of the turn waits."""
        match event:
            case ev.InputReceived():
                self.inputs[event.id] = event
                if event.origin.key:
                    self.work.origins.add(event.origin)
            case ev.InputWithdrawn():
                self.inputs.pop(event.input, None)
            case ev.TurnStarted():
                self.turn, self.turn_open, self.step = event.turn, True, 0
                self.wait = None
                self.unattended_denials.clear()
            case ev.TurnFinished():
                self.turn_open, self.last_outcome = False, event.outcome
                self.wait = event if event.until else None
            case ev.ApprovalRequested():
                self.approvals[event.id] = event
            case ev.ApprovalResolved():
                self._resolve(event)
            case ev.CallsConstrained():
                self.calling.apply(event)
            case _:
                pass

    def _add(self, event: ev.MessageAdded) -> None:
        message = event.message
        self._close_damaged_calls()
        said = self.inputs.pop(event.input, None) if event.input is not None else None
        if message.role == "assistant":
            if not self.owes_reply:
                self._append(Message("user", (Text(LOST_MESSAGE),)))
            self._append(message)
            self.calls = dict.fromkeys(call.id for call in message.tool_calls)
            self.call_names.update(self.calls)
            self.truncated = event.truncated
            return
        if self.awaits_reply:  # in an undamaged log, the end of a turn has answered
            self._append(Message("assistant", (Text(LOST_MESSAGE),)))
        if self.forgets and event.origin == "input" and self.sealed:
            self._forget()
        self._join(message, apart=event.apart)
        if event.origin == "input" and said is not None and said.origin.kind != "wait":
            self.origin = said.origin
        if event.origin in ("input", "steer"):
            # An input too long for the window is delivered cut: demands in its middle count all the same.
            whole = said.message.text if said is not None else ""
            self.user_texts.append(max(message.text, whole, key=len))
            self.user_at.append(len(self.messages) - 1)
            self.title = self.title or title_of(message.text)
        elif event.origin == "note" and (found := _NOTE_NAME.match(message.text)):
            self.notes[found.group(1)] = message.text

    def _close_damaged_calls(self) -> None:
        """Give results to calls whose results are damaged in the log: no request may lack them."""
        if self.calls:
            self._append_results(
                [result or ToolResult(call, "interrupted", LOST_RESULT) for call, result in self.calls.items()]
            )

    def _append_results(self, results: Sequence[ToolResult]) -> None:
        for result in results:
            self._append(Message("tool", (result,)))
        self.calls = {}

    def _append(self, message: Message) -> None:
        self.messages.append(message)
        self.conversation_bytes += message_bytes(message)

    def _join(self, message: Message, *, apart: bool) -> None:
        """Append a user message, or join it to the unsent message before it; see `MessageAdded.apart`."""
        last = self.messages[-1] if len(self.messages) > self.sealed else None
        apart = apart or any(isinstance(part, Image) for part in message.parts)
        if last is None or last.role == "assistant" or (apart and last.role == "tool"):
            self._append(message)
            return
        self.messages.pop()
        self.conversation_bytes -= message_bytes(last)
        if last.role == "tool":
            (result,) = last.parts
            assert isinstance(result, ToolResult)
            joined = ToolResult(result.call_id, result.status, f"{result.content}\n\n{message.text}")
            self._append(Message("tool", (joined,)))
        else:
            parts: tuple[Part, ...] = (*last.parts, Text("\n\n"), *message.parts)
            self._append(Message("user", parts))

    def _finish_call(self, event: ev.ToolFinished) -> None:
        started = self.started.pop(event.call_id, None)
        # With the approvals of the command's connections: `call/host:port`.
        self.approvals = {
            id: asked for id, asked in self.approvals.items() if asked.call_id.partition("/")[0] != event.call_id
        }
        if (usage := usage_beside(event)) is not None:
            self.steps_total, self.usage = self.steps_total + 1, self.usage + usage
        self.marks.apply(event)
        self.calling.finished(event.data)
        if event.status == "ok":
            self.unattended_denials.discard((event.tool, started.summary if started else ""))
        else:
            self.last_error = event.content[:500]
        if event.data.get("unattended"):
            self.unattended_denials.add((event.tool, str(event.data.get("summary", ""))))
        if event.artifact:
            self.artifacts[event.artifact[:12]] = f"{(started and started.summary) or event.tool} ({event.size} bytes)"
        if event.call_id not in self.calls:
            return
        self.calls[event.call_id] = ToolResult(event.call_id, event.status, event.content)
        results = [result for result in self.calls.values() if result is not None]
        if len(results) == len(self.calls):
            self._append_results(results)

    def _restore(self, event: ev.FilesRestored) -> None:
        source, target = (self.changes, self.undone) if event.to == "before" else (self.undone, self.changes)
        moved = [change for change in source if change.id in event.events]
        source[:] = [change for change in source if change.id not in event.events]
        target.extend(moved)
        target.sort(key=lambda change: change.seq)
        for path in event.paths:
            self.files.pop(path, None)  # it has to be read again before it is edited

    def _measure(self, event: ev.StepFinished) -> None:
        self.steps_total += 1
        self.served_model = event.model or self.served_model
        self.usage = self.usage + event.usage
        if event.usage.estimated:
            return
        self.prompt_tokens, self.measured_bytes = event.usage.prompt_tokens, self.sealed_bytes
        ratio = (self.fixed_bytes + self.sealed_bytes) / max(1, self.prompt_tokens)
        if DENSEST <= ratio <= COARSEST:
            self.bytes_per_token = ratio

    def _resolve(self, event: ev.ApprovalResolved) -> None:
        self.approvals.pop(event.approval, None)
        if event.approved and event.scope == "session" and event.grant and event.grant not in self.grants:
            self.grants.append(event.grant)

    def _forget(self) -> None:
        """Begin the prompt anew, with the notes: the agent remembers only the last message."""
        notes = "\n\n".join(self.notes.values())
        self._replace((Message("user", (Text(notes),)),) if notes else ())

    def _compact(self, event: ev.CompactionDone) -> None:
        self._replace(event.messages)
        self.compactions += 1
        self.head, self.summary = event.head, event.summary or self.summary
        if event.usage is not None:
            self.steps_total += 1
            self.usage = self.usage + event.usage

    def _replace(self, messages: Sequence[Message]) -> None:
        """Take other messages as the conversation: a shorter one, whose tail has only moved."""
        # Texts of the first message, or of the cut part, are "earlier" from now on.
        shift = len(messages) - len(self.messages)
        self.user_at = [position + shift if position + shift > 0 else -1 for position in self.user_at]
        self.messages = list(messages)
        self.conversation_bytes = sum(map(message_bytes, self.messages))
        self.sealed = self.sealed_bytes = 0
        self.calls = {}
        self.prompt_tokens = self.measured_bytes = 0


def message_bytes(message: Message) -> int:
    """Return the bytes of a message that a model reads; an image counts as 4,000 (about 1,000 tokens)."""
    size = 16
    for part in message.parts:
        match part:
            case Text(text=text):
                size += len(text.encode("utf-8", "surrogatepass"))
            case ToolCall(name=name, arguments=arguments):
                size += len(name) + len(arguments.encode("utf-8", "surrogatepass")) + 24
            case ToolResult(content=content):
                size += len(content.encode("utf-8", "surrogatepass"))
            case Image():
                size += 4000
            case Thinking():
                pass
    return size


def _spec_bytes(spec: ToolSpec) -> int:
    return len(spec.name) + len(spec.description) + len(str(spec.parameters)) + 60
