"""Commands to a session, by `type`, and slash commands. An accepted command is on disk before its answer."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from anyio import to_thread
from msgspec import Meta, Struct
from msgspec.structs import replace

from lmagent.app.runner import origin_of
from lmagent.app.slash import SlashContext, SlashResult, all_commands, dispatch, find_command
from lmagent.cluster import without_blocking
from lmagent.core import commands as core_commands
from lmagent.core.errors import ConfigError, LmagentError, ShuttingDown, StoreError
from lmagent.core.messages import Image, Message, Text, user
from lmagent.core.view import UserBlock, View, reduce
from lmagent.engine.session import holder
from lmagent.gateway.api.uploads import taken
from lmagent.gateway.gateway import SURFACE, Gateway
from lmagent.gateway.http.errors import Refusal
from lmagent.gateway.http.route import Call, Routes
from lmagent.store.branches import end_before

ROUTES = Routes()


# The sender's own name for an input: an input with the same name is accepted only once.
Id = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:-]{0,64}\Z")]


class SubmitBody(Struct, frozen=True, tag_field="type", tag="submit"):
    """Start a turn; while one runs, the input waits for its end."""

    message: Message
    id: Id = ""


class SteerBody(Struct, frozen=True, tag_field="type", tag="steer"):
    """Deliver to the running turn; `to`: to that of a sub-agent's session."""

    message: Message
    id: Id = ""
    to: str = ""


class AnswerBody(Struct, frozen=True, tag_field="type", tag="answer"):
    """Answer the question with which the last turn ended."""

    text: str
    id: Id = ""


class ForkBody(Struct, frozen=True, tag_field="type", tag="fork"):
    """Copy the session: all of it, up to and including an event, or up to a turn. The workspace is not changed."""

    through_seq: Annotated[int, Meta(ge=1)] | None = None  # the last event to copy
    # the first turn that is not copied; one more than the last turn for all that is finished
    before_turn: Annotated[int, Meta(ge=1)] | None = None


Plain = (
    core_commands.Withdraw
    | core_commands.Continue
    | core_commands.Interrupt
    | core_commands.Approve
    | core_commands.SetMode
    | core_commands.SetModel
    | core_commands.SetOptions
    | core_commands.SetWork
    | core_commands.DecidePlan
    | core_commands.ChangeTasks
    | core_commands.Compact
    | core_commands.Undo
    | core_commands.Redo
    | core_commands.Rename
    | core_commands.Mark
    | core_commands.Close
)
Body = SubmitBody | SteerBody | AnswerBody | ForkBody | Plain


class Accepted(Struct, frozen=True, omit_defaults=True):
    """An accepted command."""

    seq: int  # the event that records it, or the last event if no event does
    session: str  # the session of that event: for a fork, the copy
    withdrawn: tuple[UserBlock, ...] = ()  # the waiting messages that an `interrupt` has withdrawn


@ROUTES.post("/api/sessions/{session}/commands", "Carry out a command; accepted means on disk", status=202)
async def command(call: Call, body: Body) -> Accepted:
    gateway, session = call.gateway, call.path["session"]
    match body:
        case SubmitBody():
            event = await gateway.runner.submit(session, await _said(gateway, body.message), id=body.id)
            return Accepted(event.seq, session)
        case SteerBody():
            message = await _said(gateway, body.message)
            event = await gateway.runner.submit(session, message, id=body.id, steer=True, to=body.to)
            return Accepted(event.seq, body.to or session)
        case AnswerBody():
            return await _answer(gateway, session, body)
        case ForkBody():
            return await _fork(gateway, session, body)
        case _:
            return await _plain(gateway, session, body)


async def _said(gateway: Gateway, message: Message) -> Message:
    """Return the user's message with its uploads filled in."""
    if message.role != "user" or not all(isinstance(part, Text | Image) for part in message.parts):
        fix = '{"role": "user", "parts": [{"type": "text", "text": "…"}]}'
        raise Refusal(400, "invalid", "a user message needs the role user and parts of type text or image", fix=fix)
    if not message.text.strip() and not any(isinstance(part, Image) for part in message.parts):
        raise Refusal(400, "empty", "the message says nothing", fix="send a text or an image")
    return await taken(gateway.uploads, message)


async def _answer(gateway: Gateway, session: str, body: AnswerBody) -> Accepted:
    if not (body.id and await gateway.runner.sent(session, origin_of(body.id))):
        state = (await gateway.runner.open(session)).session.state
        if state.turn_open or state.inputs or state.last_outcome != "question":
            raise Refusal(409, "no_question", "no question waits in this session", fix='send it as "submit"')
    event = await gateway.runner.submit(session, await _said(gateway, user(body.text)), id=body.id)
    return Accepted(event.seq, session)


async def _fork(gateway: Gateway, session: str, body: ForkBody) -> Accepted:
    from lmagent.app.records import WorkspaceRecords  # rarely used, slow to import

    await without_blocking(gateway.host.settings, lambda: gateway.runner.require(session))
    last, through = await gateway.last_seq(session), body.through_seq
    if through is not None and body.before_turn is not None:
        raise Refusal(400, "invalid", "a copy ends at an event or before a turn, not both", fix="leave one of them out")
    if not last:
        raise Refusal(409, "empty", "the session has no event, so there is nothing to copy", fix="begin a new one")
    first = await to_thread.run_sync(lambda: next(iter(gateway.host.store.read(session))).seq)
    if through is not None and not first <= through <= last:  # the log of a cleared session does not begin at 1
        text = f"the session has no event {through}: its events are {first} to {last}"
        raise Refusal(400, "beyond", text, fix="leave it out")
    if body.before_turn is not None:
        through = await to_thread.run_sync(lambda: end_before(gateway.host.store.read(session), body.before_turn or 1))
        if not through:
            fix = "stop it, or wait for its end"
            raise Refusal(409, "conflict", "the turn before the place of the copy is still running", fix=fix)
    records = WorkspaceRecords(gateway.host.workspace, gateway.host.store, gateway.host.settings.agent_data_dir)
    copy = await to_thread.run_sync(partial(records.fork, session, through))
    return Accepted(await gateway.last_seq(copy), copy)


async def _plain(gateway: Gateway, session: str, command: Plain) -> Accepted:
    where = session
    if isinstance(command, core_commands.Interrupt) and not command.to:
        return await _stop(gateway, session)
    if isinstance(command, core_commands.Approve):
        where = _asker(gateway, session, command.approval)
    known = await gateway.runner.open(session) if isinstance(command, core_commands.DecidePlan) else None
    if known is not None and known.session.state.work.proposal is None:
        raise Refusal(409, "no_plan", "no plan waits in this session", fix="look at its events")
    try:
        event = await gateway.runner.send(session, replace(command, by=SURFACE))
    except (Refusal, StoreError, ConfigError, ShuttingDown):
        raise
    except LmagentError as unfit:  # such as nothing to undo, or a running turn
        raise Refusal(409, "conflict", unfit.message, fix=unfit.fix) from unfit
    if event is None and isinstance(command, core_commands.Approve | core_commands.Withdraw):
        what = "approval" if isinstance(command, core_commands.Approve) else "input"
        raise Refusal(409, "resolved", f"that {what} does not wait any more", fix="look at the events of the session")
    return Accepted(event.seq if event is not None else await gateway.last_seq(session), where)


async def _stop(gateway: Gateway, session: str) -> Accepted:
    stopped = await gateway.runner.stop(session, SURFACE)
    seq = stopped.ended.seq if stopped.ended is not None else await gateway.last_seq(session)
    waited = [reduce(View(), event).waiting for event in stopped.withdrawn]
    return Accepted(seq, session, tuple(block for (block,) in waited))


def _asker(gateway: Gateway, session: str, approval: str) -> str:
    """Return the session whose log has the approval: a sub-agent's is in its own."""
    here = gateway.host.sessions.get(session)
    owner = holder(here, approval) if here is not None else None
    return owner.state.session if owner is not None else session


# --- slash commands ---------------------------------------------------------------------------------------------------

NOT_HERE = frozenset({"quit", "copy", "theme"})  # commands for the terminal only


class SlashLine(Struct, frozen=True):
    """The typed line, from the slash on."""

    line: Annotated[str, Meta(min_length=1, max_length=60_000)]


class SlashAnswer(Struct, frozen=True):
    """The result of a command: Markdown for the user, and the session to continue with; empty for the current one."""

    text: str
    session: str
    fresh: bool


class SlashRow(Struct, frozen=True):
    name: str
    usage: str
    help: str


class SlashList(Struct, frozen=True):
    commands: tuple[SlashRow, ...]


@ROUTES.get("/api/slash", "The slash commands")
async def list_slash(call: Call) -> SlashList:
    """Return the commands, including the workspace's own."""
    host = call.gateway.host
    rows = (command for name, command in all_commands(host).items() if name not in NOT_HERE)
    return SlashList(tuple(SlashRow(row.name, row.usage, row.help) for row in rows))


@ROUTES.post("/api/slash", "Carry out a slash command where there is no session yet")
@ROUTES.post("/api/sessions/{session}/slash", "Carry out a slash command")
async def run_slash(call: Call, body: SlashLine) -> SlashAnswer:
    """Run a slash command in a session, or without one."""
    gateway, session, line = call.gateway, call.path.get("session", ""), body.line.strip()
    if not line.startswith("/"):
        raise Refusal(400, "invalid", "a slash command begins with a slash", fix="GET /api/slash lists them")
    command, _ = find_command(line, gateway.host)
    if command.name in NOT_HERE:
        name = line.partition(" ")[0]
        raise Refusal(409, "conflict", f"{name} is for the terminal; the page has its own way", fix="GET /api/slash")
    if command.asks and not session:
        return SlashAnswer("", await _begun(gateway, line), False)
    known = await gateway.runner.open(session) if session else None
    seen = (await gateway.views.look(session))[1] if session else View()
    result = await dispatch(line, SlashContext(gateway.host, known.session if known is not None else None, seen))
    told = await _gone_on(gateway, session, result)
    if known is not None and result.run:
        known.work()
    return SlashAnswer(result.text, told, result.fresh)


async def _begun(gateway: Gateway, line: str) -> str:
    """Carry out a command that may ask in a new session; return it at once, so that the client sees the question."""
    known = await gateway.runner.begin()

    async def run() -> None:
        try:
            await _gone_on(gateway, known.id, await dispatch(line, SlashContext(gateway.host, known.session, View())))
        except LmagentError as failure:
            await known.session.notify("warning", "slash_command", failure.message, failure)
        except Exception as defect:  # noqa: BLE001 - no caller waits for this task, which has to show its error
            trouble = gateway.runner.unexpected(defect)
            await known.session.notify("warning", "slash_command", trouble.message, trouble)

    (await gateway.runner.ready()).start_soon(run)
    return known.id


async def _gone_on(gateway: Gateway, session: str, result: SlashResult) -> str:
    """Open the command's session and submit its message; return the session to continue with."""
    target = ""
    if result.session is not None:
        target = (await gateway.runner.open(result.session.state.session)).id
    if result.submit:
        if not (target or session):
            target = (await gateway.runner.begin()).id
        await gateway.runner.submit(target or session, user(result.submit), steer=True)
    return target
