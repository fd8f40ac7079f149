"""Routes that only earlier clients use: a blocking chat, and a session's history and tasks."""

from __future__ import annotations

from contextlib import aclosing
from typing import Annotated, Any

from anyio import to_thread
from msgspec import Meta, Struct
from starlette.responses import Response

from lmagent.core import events as ev
from lmagent.core.messages import user
from lmagent.core.view import is_filler, spoken
from lmagent.core.work import Plan
from lmagent.engine.state import SessionState
from lmagent.engine.worktext import counted
from lmagent.gateway.compat.words import Mode, input_of, mode_of, tasks_of, usage_of, way_of
from lmagent.gateway.gateway import Gateway
from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.http.route import Call, Routes, json
from lmagent.gateway.turns import Spent, approval_patience, followed, named, raise_for_server, while_there
from lmagent.store.jsonl import JsonlStore

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
                begun = await gateway.runner.sent(session, f"plan-{proposed.id}")
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


@ROUTES.get("/api/sessions/{session}/history", "The messages of a session")
async def show_history(call: Call, query: HistoryQuery) -> History:
    """Return the whole conversation with tool results, messages from before a compaction included."""
    session, query = call.path["session"], query
    messages = (await to_thread.run_sync(_history, call.gateway.host.store, session))[: query.before]
    first = max(0, len(messages) - query.limit)
    return History(session, tuple(messages[first:]), first > 0, first)


def _history(store: JsonlStore, session: str) -> list[HistoryMessage]:
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


@ROUTES.get("/api/sessions/{session}/tasks", "Tasks of a session")
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


def _folded(store: JsonlStore, session: str) -> SessionState:
    state = SessionState(session=session)
    for event in store.read(session):
        state.apply(event)
    return state
