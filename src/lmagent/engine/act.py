"""Act: carry out the calls of one reply.

Neighbouring reads run in parallel, all other calls in the model's order; the model gets the results in its order. A
call is on disk before it acts, and its result before the model sees it. A call that is malformed, denied or cut off is
not run, and its result says so.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import anyio
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from lmagent.core.errors import LmagentError, StoreError, ToolError, ungrouped
from lmagent.core.events import ApprovalRequested, MessageAdded, PermissionMode, ToolFinished, ToolStarted
from lmagent.core.events import ToolOutput as OutputEvent
from lmagent.core.messages import ToolCall, ToolStatus, user
from lmagent.core.outside import escaped
from lmagent.core.tool import Answer, KeptText, Question, Tool, ToolContext, ToolOutput
from lmagent.engine import constrain
from lmagent.engine.context import intake
from lmagent.engine.context.window import room_for
from lmagent.engine.loopguard import Alarm, LoopGuard
from lmagent.engine.session import Session, ask, share, top
from lmagent.engine.toolbox import Invocation, decode
from lmagent.engine.undo import keep_before, record_changes
from lmagent.policy import gate, paths

if TYPE_CHECKING:
    from lmagent.engine.hooks import CallRuling

CUT_OFF = (
    "Your reply ended inside this call, so it was not run: it was too long, or a closing bracket or tag is missing. "
    "Send the whole call again; write a long file in several parts, with mode=append from the second on."
)
CUT_SHOWN = 300
"""Characters shown of the beginning, and of the end, of a call that was cut off: the model sees it nowhere else."""

SEARCHES = ("grep", "git_diff")
"""Read tools whose output shows lines of files that their data does not name."""

BY_THE_USER = "by the user"
"""Why a call is denied that the user has denied."""

BY_A_HOOK = "by a hook"

HANDLE = 120
"""Bytes of the line that names the artifact of an output in a file."""


class Result(Struct, frozen=True):
    """The result of a call.

    Attributes:
        durable: it must be on disk before the next step.
        kept: a text for a blob.
        added: framed text of hooks, which follows the output whole.
    """

    tool: str
    status: ToolStatus
    output: ToolOutput
    duration: float = 0.0
    durable: bool = False
    kept: str | None = None
    added: str = ""


async def act(session: Session, calls: Sequence[ToolCall], truncated: frozenset[str], guard: LoopGuard) -> Alarm | None:
    """Carry out calls; return the alarm that ends the turn, if any.

    `truncated` are the ids of calls that the reply cut off.
    """
    room = room_for(session, len(calls))
    large: list[tuple[int, ToolCall, Result]] = []

    async def one(call: ToolCall) -> None:
        result = await _carry_out(session, call, truncated, guard)
        if (need := _need(result.output)) <= room.share():
            await _record(session, call, result, guard, room.take(need))
        else:
            large.append((need, call, result))

    async def record_large() -> None:
        """Record the results larger than their share, once the smaller ones show how much room remains."""
        for need, call, result in sorted(large, key=lambda item: item[0]):
            await _record(session, call, result, guard, room.take(need))
        large.clear()

    for parallel, group in itertools.groupby(calls, key=lambda call: _is_read(session, call)):
        if not parallel:
            for call in group:
                await one(call)
                await record_large()
            continue
        with ungrouped():
            async with anyio.create_task_group() as tasks:
                for call in group:
                    tasks.start_soon(one, call)
        await record_large()
    alarm = guard.step_done()
    if alarm is None or alarm.action != "hint":
        return alarm
    await session.record(MessageAdded(message=user(alarm.text), origin="nudge"))
    return None


def _is_read(session: Session, call: ToolCall) -> bool:
    tool = session.wiring.toolbox.get(call.name)
    return tool is not None and tool.effect == "read"


async def _carry_out(session: Session, call: ToolCall, truncated: frozenset[str], guard: LoopGuard) -> Result:
    if call.id in truncated:
        return Result(call.name, "error", ToolOutput(_cut_off(call.arguments), {"code": "cut_off"}))
    try:
        invocation = session.wiring.toolbox.resolve(call)
        request, _ = _request(session, invocation), invocation.summary  # both are the tool's code, and may fail
    except ToolError as refusal:
        return _refused(call.name, refusal)
    except Exception as bug:  # noqa: BLE001  the tool boundary: a model's arguments must not end the session
        return Result(call.name, "error", _crashed(call.name, bug))
    if (alarm := guard.before(call)) is not None:
        return Result(invocation.tool.name, "error", ToolOutput(alarm.text, {"code": "loop"}))
    return await _attempt(session, invocation, request)


def _refused(tool: str, refusal: ToolError, summary: str = "") -> Result:
    """Return the result of a call that did not start: surfaces have its summary from nowhere else."""
    data = {"summary": summary, **refusal.data} if summary else refusal.data
    return Result(tool, "error", ToolOutput(refusal.message, data), kept=refusal.kept)


def _cut_off(arguments: str) -> str:
    if not arguments.strip():
        return CUT_OFF
    short = len(arguments) <= 2 * CUT_SHOWN
    shown = arguments if short else f"{arguments[:CUT_SHOWN]} … {arguments[-CUT_SHOWN:]}"
    return f"{CUT_OFF}\nThis much of its arguments had come:\n{shown}"


def _request(session: Session, invocation: Invocation) -> gate.Request:
    tool, located = invocation.tool, paths.located(str(session.wiring.workspace), invocation.targets)
    return gate.Request(tool.name, tool.effect, located, invocation.command, invocation.outside, invocation.hosts)


async def perform(session: Session, invocation: Invocation, mode: PermissionMode | None) -> None:
    """Carry out a call that lmagent makes itself: its events are recorded, the conversation does not change.

    `mode` replaces the session's permission mode.
    """
    call = invocation.call
    result = await _attempt(session, invocation, _request(session, invocation), mode)
    # A denial because no user was there counts against the turn only where the model made the call.
    facts = {name: fact for name, fact in result.output.data.items() if name != "unattended"}
    result = replace(result, output=replace(result.output, data=facts))
    size = room_for(session, 1).take(_need(result.output))
    await _record(session, call, result, LoopGuard(session.agent.limits), size)


async def _attempt(
    session: Session, invocation: Invocation, request: gate.Request, mode: PermissionMode | None = None
) -> Result:
    """Run a call if that is allowed."""
    name = invocation.tool.name
    ruling: CallRuling | None = None
    try:
        if session.wiring.hooks is not None and not _is_denied(session, invocation, request, mode):
            ruling = await session.wiring.hooks.before_call(session, invocation)
            if ruling.arguments is not None:
                invocation = _changed(invocation, ruling)
                request = _request(session, invocation)
        denial = await _permit(session, invocation, request, mode, ruling)
        result = Result(name, "denied", denial) if denial is not None else await _run(session, invocation, request)
    except ToolError as refusal:
        result = _refused(name, refusal, invocation.summary)
    texts = (ruling.text if ruling is not None else "", result.added)
    return replace(result, added="\n".join(filter(None, texts)))


def _is_denied(session: Session, invocation: Invocation, request: gate.Request, mode: PermissionMode | None) -> bool:
    """Return whether the call is denied whatever hooks say, so that none needs to run."""
    if any(fence(session.state, invocation.tool) for fence in session.wiring.fences):
        return True
    verdict = gate.judge(request, mode or session.state.mode, session.wiring.rules, session.state.grants)
    return verdict.decision == "deny"


def _changed(invocation: Invocation, ruling: CallRuling) -> Invocation:
    """Return the call with the arguments of a hook. Raise ToolError if they do not fit the tool."""
    try:
        arguments = decode(invocation.tool, dict(ruling.arguments or {}))
    except ToolError as misfit:
        text = f"A hook changed the arguments of this call, and they do not fit. {misfit.message}"
        raise ToolError(text, data=misfit.data) from None
    call = replace(invocation.call, arguments=msgspec.json.encode(arguments).decode())
    return Invocation(call, invocation.tool, arguments)


async def _permit(
    session: Session,
    invocation: Invocation,
    request: gate.Request,
    mode: PermissionMode | None,
    ruling: CallRuling | None,
) -> ToolOutput | None:
    """Return the model's denial, or None. A ToolError means that the call would fail anyway: no question was asked."""
    tool = invocation.tool
    for fence in session.wiring.fences:
        if reason := fence(session.state, tool):
            return _denied(invocation.summary, f"Denied: {reason} It was not run.", reason)
    mode = mode or session.state.mode
    if ruling is not None and ruling.decision == "allow":
        mode = "auto"  # what the mode asks about is answered; rules that ask still do
    verdict = gate.judge(request, mode, session.wiring.rules, session.state.grants)
    if verdict.decision == "deny":
        return _denied(invocation.summary, f"Denied: {verdict.reason}. It was not run.", verdict.reason)
    if ruling is not None and ruling.decision == "deny":
        return _denied(invocation.summary, f"Denied by a hook. It was not run.\n{ruling.reason}", BY_A_HOOK)
    if ruling is not None and ruling.decision == "ask":
        reasons = (verdict.reason, ruling.reason) if verdict.decision == "ask" else (ruling.reason,)
        verdict = gate.Verdict("ask", "; ".join(reasons))  # without a grant: the hook is asked each time
    if verdict.decision == "allow":
        return None
    answer = await ask(
        session,
        ApprovalRequested(
            call_id=invocation.call.id,
            tool=tool.name,
            summary=invocation.summary,
            preview=_preview(session, invocation, request),
            reason=verdict.reason,
            grant=verdict.grant,
        ),
    )
    if answer.approved:
        return None
    if answer.by == "unattended":
        text = f"Denied: {verdict.reason}, and no user can answer. It was not run. Do what you can without it."
        return _denied(
            invocation.summary, text, f"{verdict.reason}, and no user was there to allow it", unattended=True
        )
    words = f' They say: "{answer.feedback}"' if answer.feedback else ""
    return _denied(invocation.summary, f"The user denied this call. It was not run.{words}", BY_THE_USER)


def _denied(summary: str, text: str, why: str, **more: object) -> ToolOutput:
    """Return a denial: `text` is for the model, the summary of the call and `why` for users."""
    return ToolOutput(text, {"code": "denied", "summary": summary, "why": why, **more})


def _preview(session: Session, invocation: Invocation, request: gate.Request) -> str:
    if invocation.tool.preview is None:
        return ""
    try:
        preview = invocation.tool.preview(invocation.arguments, _context(session, invocation.call, request))
    except ToolError:
        raise
    except Exception as trouble:  # noqa: BLE001  the call itself fails in the same way, if it is approved
        return f"(no preview: {trouble})"
    explained = gate.explain(request)
    preview = re.sub(r"^(\s*)→", r"\1\→", preview, flags=re.MULTILINE)  # it must not explain itself
    return f"{preview}\n→ {explained}" if explained else preview


async def _run(session: Session, invocation: Invocation, request: gate.Request) -> Result:
    tool, call = invocation.tool, invocation.call
    durable = tool.effect != "read"
    started = ToolStarted(
        call_id=call.id,
        tool=tool.name,
        effect=tool.effect,
        summary=invocation.summary,
        replay_safe=tool.replay_safe or not durable,
    )
    try:
        watch = await keep_before(session, invocation)
    except ToolError as refusal:
        return _refused(tool.name, refusal, invocation.summary)
    await session.record(started, sync=durable)
    clock = session.wiring.clock
    begun = clock.monotonic()
    status: ToolStatus = "error"
    kept: str | None = None
    added = ""
    try:
        output = await tool.run(invocation.arguments, _context(session, call, request))
        status = "ok"
        output = _with_shown(session, tool, call, output)
        if session.wiring.hooks is not None:  # before the changes are recorded, since a hook may format the file
            added = await session.wiring.hooks.after_call(session, invocation, output)
    except ToolError as refusal:
        output, kept = ToolOutput(refusal.message, refusal.data), refusal.kept
    except StoreError:
        raise
    except LmagentError as failure:
        output = ToolOutput(str(failure))
    except Exception as bug:  # noqa: BLE001  the tool boundary: a bug in a tool must not end the session
        output = _crashed(tool.name, bug)
    except anyio.get_cancelled_exc_class():
        if durable:
            with anyio.CancelScope(shield=True):  # an interrupted command can be undone too
                await record_changes(session, watch)
        raise
    duration = round(clock.monotonic() - begun, 4)
    if durable:
        await record_changes(session, watch)
    return Result(tool.name, status, output, duration, durable, kept, added)


def _with_shown(session: Session, tool: Tool, call: ToolCall, output: ToolOutput) -> ToolOutput:
    """Add the files that the output of a command or a search shows."""
    if tool.effect != "exec" and tool.name not in SEARCHES:
        return output
    from lmagent.engine import shown  # not before a command has run

    files = shown.files_in(session.wiring.workspace, call.arguments, output)
    return replace(output, data={**output.data, "shown": files}) if files else output


def _crashed(tool: str, bug: Exception) -> ToolOutput:
    return ToolOutput(f"{tool} failed: {type(bug).__name__}: {bug}", {"code": "crashed"})


async def _record(session: Session, call: ToolCall, result: Result, guard: LoopGuard, size: int) -> None:
    output = _fitted(result.output, size)
    content, artifact = await _take_in(session, output, size)
    content = "\n".join(filter(None, (escaped(content), result.added)))
    if output.data.get("code") not in ("loop", "denied"):
        guard.after(call, result.status, output.content, output.data, session.state.changes)
    tool = session.wiring.toolbox.get(result.tool)
    if tool is not None and output.data.get("why") != BY_THE_USER:  # a user who denied a call knows
        session.tried.add((tool.effect, result.status == "ok"))
    whole = output.content if output.full is None else output.full
    if result.kept is not None:
        whole, artifact = result.kept, await session.keep(result.kept)
    finished = ToolFinished(
        call_id=call.id,
        tool=result.tool,
        status=result.status,
        content=content,
        artifact=artifact,
        size=len(whole.encode("utf-8", "surrogatepass")),
        data=output.data,
        duration=result.duration,
    )
    await session.record(finished, sync=result.durable)
    if output.data.get("code") == "malformed_arguments":
        await constrain.failed(session, "its arguments were no valid JSON")
    else:
        await constrain.worked(session)


def _need(output: ToolOutput) -> int:
    """Return the bytes of an output, with the line that names its artifact."""
    return intake.size_of(output.content) + (HANDLE if output.file is not None else 0)


def _fitted(output: ToolOutput, size: int) -> ToolOutput:
    """Return the output as its tool itself shortens it, if the tool can."""
    if output.fit is None or _need(output) <= size:
        return output
    page = output.fit(size - (HANDLE if output.file is not None else 0))
    return replace(page, data={**output.data, **page.data})


async def _take_in(session: Session, output: ToolOutput, size: int) -> tuple[str, str | None]:
    """Return the model's text, and the blob of the whole output if that is longer."""
    content = output.content or "(no output)"
    if output.file is not None:
        artifact = await session.keep_file(output.file)
        return intake.cap(content, size, artifact[:12]), artifact
    whole = output.content if output.full is None else output.full
    if content.startswith(whole) and intake.fits(content, max(size, intake.NOTE)):  # shorter than a note about the rest
        return content, None
    artifact = await session.keep(whole)
    return intake.cap(content, size, artifact[:12]), artifact


def _context(session: Session, call: ToolCall, request: gate.Request) -> ToolContext:
    context = ToolContext(
        session=session.state.session,
        call=call.id,
        workspace=session.wiring.workspace,
        seen=session.state.files,
        emit=lambda text: session.emit_live(OutputEvent(call_id=call.id, text=text, turn=session.state.turn)),
        ask_host=partial(_ask_host, session, call, request),
        ask_packages=partial(_ask_packages, session, call, request),
        barred=partial(_is_barred, session, request),
        ask=partial(_ask, session, call),
        kept=partial(_kept, session),
    )
    hides = gate.sight(request, session.wiring.rules)
    return replace(context, hidden=paths.through_links(str(session.wiring.workspace), hides)) if hides else context


def _kept(session: Session, path: str) -> KeptText | None:
    """Return the text that a refused write to a path left, if the log has one."""
    if (kept := session.state.marks.kept.get(path)) is None:
        return None
    try:
        text = session.log.get_blob(kept[0])
    except StoreError:
        return None
    return KeptText(text.decode("utf-8", "surrogatepass"), kept[1])


async def _ask_host(session: Session, call: ToolCall, request: gate.Request, host: str, port: int) -> bool:
    """Return whether a running call may connect to another host: rules, the mode or the user say so.

    A redirect of a tool that connects is judged like a call of it. What a command connects to, no mode allows.
    """
    from lmagent.policy.hosts import plain  # few calls connect

    wanted = _target(host, port)
    rules, grants = session.wiring.rules, session.state.grants
    if request.effect == "net":
        verdict = gate.judge(replace(request, hosts=(wanted,)), session.state.mode, rules, grants)
        tool, summary, reason = request.tool, f"follow the page's redirect to {plain(wanted)}", verdict.reason
    else:
        verdict = gate.judge_host(wanted, rules, grants)
        tool, summary, reason = "net", f"connect to {wanted}", f"{host} is not among the hosts that commands may reach"
    if verdict.decision != "ask":
        return verdict.decision == "allow"
    question = ApprovalRequested(
        call_id=f"{call.id}/{wanted}", tool=tool, summary=summary, reason=reason, grant=verdict.grant
    )
    return (await ask(session, question)).approved


async def _ask_packages(session: Session, call: ToolCall, request: gate.Request, host: str, port: int) -> bool:
    """Return whether commands of the session may reach package registries; rules that name the host answer for it."""
    rules, grants = session.wiring.rules, session.state.grants
    if not gate.judge_host(f"{host}:{port}", rules, grants).grant:
        return await _ask_host(session, call, request, host, port)
    verdict = gate.judge_host("packages", rules, grants)
    if verdict.decision != "ask":
        return verdict.decision == "allow"
    question = ApprovalRequested(
        call_id=f"{call.id}/packages",
        tool="net",
        summary="install packages: allow PyPI, npm and Debian's package index for this session?",
        reason=f"a command connects to {host}, and commands reach package registries only if you allow them",
    )
    answer = await ask(session, question)
    if answer.approved and verdict.grant:  # a rule that asks allows nothing for longer
        await share(top(session), verdict.grant, answer.by)
    return answer.approved


def _is_barred(session: Session, request: gate.Request, host: str, port: int) -> bool:
    return gate.is_barred(request, _target(host, port), session.wiring.rules)


def _target(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _ask(session: Session, call: ToolCall, question: Question) -> Answer:
    answer = await ask(
        session,
        ApprovalRequested(
            call_id=f"{call.id}/{question.id}",
            tool=question.tool,
            summary=question.summary,
            preview=question.preview,
            reason=question.reason,
        ),
    )
    return Answer(answer.approved, answer.feedback, answer.by != "unattended")
