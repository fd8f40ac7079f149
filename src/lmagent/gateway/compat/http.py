"""Events and modes in the vocabulary of earlier clients, and their routes: a blocking chat, history and tasks."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import aclosing
from typing import Annotated, Any, Literal, cast

import msgspec
from anyio import to_thread
from msgspec import Meta, Struct
from starlette.responses import Response

from lmagent.core import events as ev
from lmagent.core.commands import SetWork
from lmagent.core.ids import InputOrigin
from lmagent.core.messages import ToolCall, user
from lmagent.core.view import is_filler, spoken
from lmagent.core.work import Plan, Task, Way
from lmagent.engine.budget import limits, over_total, used
from lmagent.engine.session import Session
from lmagent.engine.state import SessionState
from lmagent.engine.toolbox import USE_TOOL
from lmagent.engine.work import WorkState
from lmagent.engine.worktext import counted
from lmagent.gateway.gateway import Gateway
from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.http.route import Call, Routes, json
from lmagent.gateway.turns import Spent, approval_patience, followed, named, raise_for_server, while_there
from lmagent.store.port import SessionStore

Mode = Literal["bounded", "deep_work"]  # A session's mode for earlier clients: a chat, or long work within a budget
ANSWERED = ("question", "blocked", "waiting")  # outcomes of a turn after which the next message is an answer
PREVIEW = 500  # characters of a result that are sent

Told = dict[str, Any]


def mode_of(work: WorkState) -> Mode:
    return "deep_work" if "deep" in (work.mode, work.then if work.mode == "plan" else "") else "bounded"


def change_of(session: Session, mode: Mode, *, planning: bool) -> SetWork | None:
    """Return the command that sets the mode from now on; None if the session has it."""
    work = session.state.work
    if mode == "bounded":
        return None if work.mode == "bounded" else SetWork(mode="bounded")
    if mode_of(work) == "deep_work":
        return None
    way = _deep(planning=planning and not _is_at_work(session.state))
    return SetWork(mode=way.mode, then=way.then)


def way_of(session: Session, mode: Mode | None, *, planning: bool) -> Way | None:
    """Return how the session works on a message that comes now; None leaves it.

    In deep work each message is a new task with a budget of its own, and begins with a plan if `planning`. Exceptions
    are a message about a pending plan and the answer to the agent's question, unless the budget is used up.
    """
    state = session.state
    if (mode or mode_of(state.work)) == "bounded":
        return Way("bounded") if mode is not None and state.work.mode != "bounded" else None
    is_deep, is_at_work = mode_of(state.work) == "deep_work", _is_at_work(state)
    is_said_of_it = state.work.mode == "plan" or (state.last_outcome in ANSWERED and not is_at_work)
    if is_deep and is_said_of_it and (is_at_work or over_total(state) is None):
        return None
    return _deep(planning=planning)


def _deep(*, planning: bool) -> Way:
    return Way("plan", "deep") if planning else Way("deep")


def _is_at_work(state: SessionState) -> bool:
    return state.turn_open or bool(state.inputs)


def input_of(call: ToolCall) -> tuple[str, dict[str, Any]]:
    """Return a call's tool and arguments; arguments that are not a JSON object are returned as text."""
    try:
        arguments = msgspec.json.decode(call.arguments or "{}")
    except (msgspec.DecodeError, UnicodeEncodeError):
        arguments = None
    if not isinstance(arguments, dict):
        return call.name, {"arguments": call.arguments}
    fields = cast("dict[str, Any]", arguments)
    inner = fields.get("arguments")
    if call.name == USE_TOOL.name and isinstance(fields.get("name"), str) and isinstance(inner, dict):
        return str(fields["name"]), cast("dict[str, Any]", inner)
    return call.name, fields


def tasks_of(tasks: Iterable[Task]) -> list[Told]:
    return [
        {"id": task.id, "title": task.title, "status": task.status, "kind": task.kind, "parent_id": task.parent or None}
        | {"notes": task.notes, "result": task.result, "depends_on": list(task.depends_on)}
        for task in tasks
    ]


def usage_of(spent: Spent) -> dict[str, int]:
    told = {"prompt_tokens": spent.prompt, "completion_tokens": spent.completion, "cached_tokens": spent.cached}
    return {**told, "total_tokens": spent.prompt + spent.completion}


class Telling:
    """Translates the events of one session, from a state on; `spent` is the usage of the running turn."""

    def __init__(self, state: SessionState) -> None:
        self._tasks = dict(state.work.tasks)
        self.mode = mode_of(state.work)
        self.model = state.model
        self.spent = Spent()
        self._calls: dict[str, tuple[str, dict[str, Any]]] = {}
        for message in state.messages:
            self._note(message.tool_calls)

    def pending(self, state: SessionState) -> list[Told]:
        """Return the messages for pending approvals and plans, for a client that joins late."""
        told = [self._approval(asked) for asked in state.approvals.values()]
        if state.work.proposal is not None:
            told.append({"type": "plan_ready", "plan": msgspec.to_builtins(state.work.proposal.plan)})
        return told

    def tell(self, event: ev.Event, session: Session | None) -> list[Told]:
        """Return the messages for an event. `session`, which knows the budget, is None if it is not open here."""
        self.spent.take(event)
        _, inner = ev.innermost(event)
        match inner:
            case ev.ApprovalRequested():
                return [self._approval(inner)]
            case ev.ApprovalResolved(approval=approval) if approval:
                told = {"tool_call_id": inner.call_id, "approved": inner.approved, "by": inner.by}
                return [{"type": "approval_resolved", **told}]
            case _:
                return self._work(event, session) if inner is event and event.seq else []

    def _work(self, event: ev.Event, session: Session | None) -> list[Told]:
        match event:
            case ev.TurnStarted():
                self.spent = Spent()
            case ev.StepStarted():
                return [{"type": "thinking", "iteration": event.step, **self._budget(session)}]
            case ev.MessageAdded() if event.message.role == "assistant" and not is_filler(event):
                self._note(event.message.tool_calls)
                said = spoken(event).text
                text = [{"type": "text", "text": said}] if said.strip() else []
                return text + [self._call(call.id) for call in event.message.tool_calls]
            case ev.ToolFinished():
                return [self._result(event)]
            case ev.TasksChanged():
                self._tasks.update((task.id, task) for task in event.items)
                for id in event.removed:
                    self._tasks.pop(id, None)
                tasks = list(self._tasks.values())
                return [{"type": "task_update", "tasks": tasks_of(tasks), "summary": counted(tasks)}]
            case ev.WorkChanged():
                before, self.mode = self.mode, mode_of(WorkState(mode=event.mode, then=event.then))
                return [{"type": "mode_changed", "mode": self.mode}] if self.mode != before else []
            case ev.PlanProposed():
                return [{"type": "plan_ready", "plan": msgspec.to_builtins(event.plan)}]
            case ev.TurnFinished():
                return self._end(event)
            case _:
                pass
        return []

    def _end(self, event: ev.TurnFinished) -> list[Told]:
        if event.outcome == "error":
            return [{"type": "error", "message": f"{event.reason}\n{event.fix}".strip()}]
        if event.cause == "plan":
            return []  # the run continues with the decision on the plan
        text = event.answer or event.reason
        done = {"type": "done", "text": text, "iterations": self.spent.steps, "model": self.spent.model or self.model}
        return [{**done, "usage": usage_of(self.spent), "mode": self.mode, "outcome": event.outcome}]

    def _budget(self, session: Session | None) -> Told:
        if session is None or self.mode != "deep_work":
            return {}
        work, spent, turn = session.state.work, used(session.state), limits(session).steps
        told = {"max_iterations": min(turn, work.budget.steps or turn), "tokens_used": spent.tokens}
        return {**told, "token_budget": work.budget.tokens, "task_summary": counted(list(self._tasks.values()))}

    def _note(self, calls: Iterable[ToolCall]) -> None:
        self._calls.update((call.id, input_of(call)) for call in calls)

    def _call(self, id: str) -> Told:
        tool, arguments = self._calls[id]
        return {"type": "tool_call", "tool": tool, "input": arguments, "tool_call_id": id}

    def _result(self, event: ev.ToolFinished) -> Told:
        told = {"type": "tool_result", "tool": event.tool, "result_preview": event.content[:PREVIEW]}
        told |= {"duration_ms": round(event.duration * 1000), "success": event.status == "ok"}
        return {**told, "tool_call_id": event.call_id}

    def _approval(self, asked: ev.ApprovalRequested) -> Told:
        _, arguments = self._calls.get(asked.call_id.partition("/")[0], ("", {"summary": asked.summary}))
        told = {"type": "approval_request", "tool_call_id": asked.call_id, "tool": asked.tool, "input": arguments}
        return {**told, "reason": asked.reason, "summary": asked.summary, "preview": asked.preview}


# --- routes -----------------------------------------------------------------------------------------------------------


ROUTES = Routes()


class Chat(Struct, frozen=True):
    """A message, and the mode of the session from here on (None leaves it)."""

    message: Annotated[str, Meta(min_length=1)]
    mode: Mode | None = None  # `bounded` for a chat, `deep_work` for long work that begins with a plan
    id: str = ""  # the client's own id of the message: the same one is accepted only once
    # seconds that an approval waits for another client before it is denied; None is the shorter of 300 and the
    # setting of that name
    approval_timeout: Annotated[float, Meta(gt=0, le=86_400)] | None = None


class ChatAnswer(Struct, frozen=True):
    """The result of a message."""

    response: str
    session_id: str
    mode: Mode
    iterations: int  # model calls
    usage: dict[str, int]
    model: str
    outcome: str  # how the turn ended: done, question, blocked, limit, waiting, interrupted or error
    # the plan that waits for a decision: `approve_plan` on the socket, or the command `decide_plan`
    plan: Plan | None = None


class HistoryQuery(Struct, frozen=True):
    """The newest messages; with `before`, the `first` of the previous page, those before it."""

    limit: Annotated[int, Meta(ge=1, le=5000)] = 500
    before: Annotated[int, Meta(ge=0)] | None = None


class HistoryMessage(Struct, frozen=True, omit_defaults=True):
    """A message of a conversation: of the user, of the assistant, or the result of a tool's call."""

    role: str
    content: str
    timestamp: float
    tool_calls: tuple[dict[str, Any], ...] = ()
    tool_call_id: str = ""
    tool: str = ""
    success: bool | None = None


class History(Struct, frozen=True):
    """A page of a conversation, the oldest message first; `before` = `first` gets those before it."""

    session_id: str
    messages: tuple[HistoryMessage, ...]
    more: bool
    first: int = 0


class TaskList(Struct, frozen=True):
    session_id: str
    mode: Mode
    tasks: list[dict[str, Any]]
    summary: str


# --- chat -------------------------------------------------------------------------------------------------------------


@ROUTES.post("/api/chat/{session}", "Send a message and wait for the answer", answer=ChatAnswer)
async def chat(call: Call, body: Chat) -> Response:
    """Send a message and wait for the end of its turn. If the client leaves, the turn continues."""
    gateway, session = call.gateway, call.path["session"]
    input = await _accept(gateway, session, body)
    patience = body.approval_timeout or approval_patience(gateway)
    answer = await while_there(call.request, lambda: _answered(gateway, session, input, patience))
    return Response(status_code=499) if answer is None else json(answer)


async def _accept(gateway: Gateway, session: str, body: Chat) -> ev.InputReceived:
    if not body.message.strip():
        raise Refusal(400, "invalid", "the message is empty")
    known = await named(gateway, session)
    way = way_of(known.session, body.mode, planning=gateway.host.settings.deep_planning)
    return await gateway.runner.submit(session, user(body.message), id=body.id, way=way)


async def _answered(gateway: Gateway, session: str, input: ev.InputReceived, patience: float) -> ChatAnswer:
    """Follow the turn, and the work on its plan if the settings approve that."""
    spent, plan, steps, following = Spent(), None, 0, input
    while True:
        proposed = end = None
        async with aclosing(followed(gateway, session, following, patience=patience)) as events:
            async for event in events:
                spent.take(event)
                proposed = event if isinstance(event, ev.PlanProposed) else proposed
                end = event if isinstance(event, ev.TurnFinished) else end
        assert end is not None, "a turn that is followed ends"
        steps, spent.steps = steps + spent.steps, 0  # each turn counts its own steps
        begun = None
        if proposed is not None:
            plan = proposed.plan
            if (end.outcome, end.cause) == ("done", "plan"):
                begun = await gateway.runner.sent(session, InputOrigin("plan", proposed.id))
        if begun is None:
            spent.steps = steps
            return await _answer(gateway, session, end, spent, plan)
        following = begun


async def _answer(gateway: Gateway, session: str, end: ev.TurnFinished, spent: Spent, plan: Plan | None) -> ChatAnswer:
    raise_for_server(end)
    work = (await state_of(gateway, session)).work
    if plan is None and work.proposal is not None:  # waiting since an earlier turn
        plan = work.proposal.plan
    return ChatAnswer(
        response=end.answer or end.reason,
        session_id=session,
        mode=mode_of(work),
        iterations=spent.steps,
        usage=usage_of(spent),
        model=spent.model,
        outcome=end.outcome,
        plan=plan,
    )


# --- history and tasks ------------------------------------------------------------------------------------------------


@ROUTES.get("/api/sessions/{session}/history", "The messages of a session", place="gateway")
def show_history(call: Call, query: HistoryQuery) -> History:
    """Return the whole conversation with tool results, messages from before a compaction included."""
    session = call.path["session"]
    messages = _history(call.gateway.host.store, session)[: query.before]
    first = max(0, len(messages) - query.limit)
    return History(session, tuple(messages[first:]), first > 0, first)


def _history(store: SessionStore, session: str) -> list[HistoryMessage]:
    found: list[HistoryMessage] = []
    inputs: dict[str, ev.InputReceived] = {}
    for event in store.read(session):
        match event:
            case ev.InputReceived():
                inputs[event.id] = event
            case ev.MessageAdded() if not is_filler(event) and (
                event.message.role == "assistant" or event.origin in ("input", "steer")
            ):
                found.append(_message(event, inputs.get(event.input or "")))
            case ev.ToolFinished():
                is_ok = event.status == "ok"
                found.append(HistoryMessage("tool", event.content, event.ts, (), event.call_id, event.tool, is_ok))
            case _:
                pass
    return found


def _message(event: ev.MessageAdded, input: ev.InputReceived | None) -> HistoryMessage:
    """Return a message as the user sent it, with its time and without the notes for the model."""
    calls = [(call.id, *input_of(call)) for call in event.message.tool_calls]
    told = tuple({"id": id, "tool": tool, "input": arguments} for id, tool, arguments in calls)
    said, message = (event, spoken(event)) if input is None else (input, input.message)
    return HistoryMessage(event.message.role, message.text, said.ts, tool_calls=told)


@ROUTES.get("/api/sessions/{session}/tasks", "Tasks of a session", place="gateway")
async def show_tasks(call: Call) -> TaskList:
    """Return the session's tasks: of deep work, of a plan, and the model's own list."""
    session = call.path["session"]
    state = await state_of(call.gateway, session)
    tasks = list(state.work.tasks.values())
    return TaskList(session, mode_of(state.work), tasks_of(tasks), counted(tasks))


async def state_of(gateway: Gateway, session: str) -> SessionState:
    """Return a session's state, read from its log if it is not open here."""
    if (known := gateway.runner.usable(session)) is not None:
        return known.session.state
    return await to_thread.run_sync(_folded, gateway.host.store, session)


def _folded(store: SessionStore, session: str) -> SessionState:
    state = SessionState(session=session)
    for event in store.read(session):
        state.apply(event)
    return state
