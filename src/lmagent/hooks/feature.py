"""Feature: runs the user's and the workspace's hooks at the points of a session's work that `EVENTS` names.

The loop calls it through `lmagent.engine.hooks`; the end of a turn comes through a review, the rest through a listener
and the registry. Text of a hook for the model is framed as outside data. It follows the result of its call, in the
same event, so that no crash comes between; text about an input or an end goes to the tail of the conversation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import anyio
from msgspec import Struct, field
from msgspec.json import encode

from lmagent.config.files import read_small
from lmagent.core.errors import ConfigError, StoreError, ungrouped
from lmagent.core.events import ApprovalRequested, Event, InputReceived, MessageAdded, TurnFinished
from lmagent.core.messages import user
from lmagent.core.outside import framed
from lmagent.core.tool import ToolOutput
from lmagent.engine.context import intake
from lmagent.engine.context.window import room_for
from lmagent.engine.hooks import CallRuling
from lmagent.engine.review import Again, End, Review
from lmagent.engine.session import Session
from lmagent.engine.toolbox import Invocation
from lmagent.hooks.answers import HookAnswer, HookRun, answer_of, label
from lmagent.hooks.config import LONGEST, Hook, HookFile, matches
from lmagent.hooks.payload import changes, given, names_of, shown_call, shown_result
from lmagent.hooks.run import HookPlace, run_hook
from lmagent.tools.sanitize import one_line, printable

if TYPE_CHECKING:
    from lmagent.engine.endings import Ending

TIMES = 3
"""Times that Stop hooks send a turn back, and SubagentStop hooks a report."""

MOST = 10_000
"""Bytes of one text of a hook for the model."""

ENDING = 10.0
"""Seconds that the end of a session waits for hooks."""

REPORT = "report_result"
"""The call that ends a sub-agent."""


class _Heard(Struct):
    """What a session has heard of hooks.

    Attributes:
        stop: why the turn must end; empty if it may continue.
        sent_back: the turn that Stop hooks sent back last, and how often.
        late: failures of hooks that ran beside the turn.
    """

    stop: str = ""
    sent_back: tuple[int, int] = (0, 0)
    late: list[HookAnswer] = field(default_factory=list[HookAnswer])


class HookFeature(Review):
    """See `lmagent.engine.hooks.Hooks`."""

    def __init__(self, files: Sequence[HookFile], place: HookPlace, say: Callable[[str], None]) -> None:
        self.files = tuple(files)
        self.place = place
        self._hooks = [hook for file in files if file.state == "used" for hook in file.hooks]
        self._say = say
        self._heard: WeakKeyDictionary[Session, _Heard] = WeakKeyDictionary()
        self._begun: dict[str, Session] = {}  # SessionStart has run, and SessionEnd has not
        self._beside: set[asyncio.Task[None]] = set()

    # --- calls ------------------------------------------------------------------------------------------------------

    async def before_call(self, session: Session, invocation: Invocation) -> CallRuling:
        if invocation.tool.name == REPORT and session.state.work.parent is not None:
            return await self._before_report(session)
        call = partial(shown_call, invocation, str(self.place.workspace))
        answers = await self._fire(session, "PreToolUse", names_of(invocation.tool), call)
        heard = self._of(session)
        texts = self._contexts(session, [answer for answer in answers if answer.decision != "deny"])
        arguments: dict[str, Any] | None = None
        for answer in answers:
            if answer.updated is not None:
                shown = call(str(self.place.workspace))["tool_input"]
                changed = changes(invocation, shown, answer.updated)
                arguments = {**(arguments or given(invocation)), **changed}
                texts.append(self._framed(session, answer.hook, _changed_text(invocation, changed)))
        text = "\n".join(texts)
        if heard.stop or any(answer.decision == "deny" for answer in answers):
            objections = [answer for answer in answers if answer.decision == "deny" and answer.reason]
            reasons = (self._framed(session, answer.hook, answer.reason) for answer in objections)
            return CallRuling("deny", "\n".join(reasons) or "A hook ends the turn.", text=text)
        asking = [answer for answer in answers if answer.decision == "ask" or answer.silent]
        if asking:
            return CallRuling("ask", "; ".join(map(_question, asking)), arguments, text)
        allowed = any(answer.decision == "allow" and answer.hook.scope == "user" for answer in answers)
        return CallRuling("allow" if allowed else "", "", arguments, text)

    async def after_call(self, session: Session, invocation: Invocation, output: ToolOutput) -> str:
        def facts(root: str) -> dict[str, Any]:
            call = shown_call(invocation, str(self.place.workspace), root)
            return {**call, "tool_response": shown_result(invocation, output, call["tool_input"])}

        answers = await self._fire(session, "PostToolUse", names_of(invocation.tool), facts)
        texts = self._contexts(session, answers)
        for answer in answers:
            if answer.decision == "deny" and answer.reason:
                texts.append(self._framed(session, answer.hook, answer.reason))
        if answers and (path := self._changed_since(output)):
            texts.append(f"[A hook changed {path} after your call: read it before you edit it again.]")
        return "\n".join(texts)

    async def after_calls(self, session: Session) -> End | None:
        """End the turn if a hook stopped it."""
        return self._stopped(self._of(session))

    def _changed_since(self, output: ToolOutput) -> str:
        """Return the path that the call wrote, if its content is another now."""
        from hashlib import sha256

        path, written = output.data.get("path"), output.data.get("sha256")
        if not (output.data.get("changed") and isinstance(path, str) and isinstance(written, str)):
            return ""
        try:
            content = read_small(self.place.workspace / path)
        except ConfigError:
            return ""
        return path if content is None or sha256(content).hexdigest() != written else ""

    # --- inputs and ends --------------------------------------------------------------------------------------------

    async def on_input(self, session: Session, received: InputReceived) -> str:
        heard = self._of(session)
        heard.stop = ""
        if session.state.work.parent is not None or received.origin.kind == "wait":
            return ""  # a brief, or a text that only wakes the session: not the user's
        if session.state.session not in self._begun:
            self._begun[session.state.session] = session
            await self._start(session, "resume" if session.state.steps_total else "startup")
        prompt = received.message.text
        answers = await self._fire(session, "UserPromptSubmit", (), lambda _: {"prompt": prompt})
        objections = [answer.reason for answer in answers if answer.decision == "deny"]
        if objections or heard.stop:
            return one_line(printable("; ".join((*objections, *filter(None, (heard.stop,))))), 500)
        await self._tell(session, self._contexts(session, answers))
        return ""

    async def at_end(self, session: Session, ending: Ending, answer: str) -> End | Again | None:
        """Let Stop hooks send the model back to work."""
        if ending.kind not in ("done", "blocked", "question") or session.state.work.parent is not None:
            return None
        heard = self._of(session)
        turn, count = heard.sent_back
        count = count if turn == session.state.turn else 0
        facts = {"stop_hook_active": count > 0, "last_assistant_message": answer}
        answers = await self._fire(session, "Stop", (), lambda _: facts)
        objections = [each for each in answers if each.decision == "deny"]
        if not objections or heard.stop:
            return None
        from lmagent.engine.endings import answer_of as final_text

        heard.sent_back = session.state.turn, count + 1
        text = "\n".join(self._framed(session, each.hook, each.reason) for each in objections)
        if count >= TIMES:
            warning = f"the {label(objections[0].hook)} still objects to the end of the turn, after {TIMES} more tries"
            await session.notify("warning", "hook", warning)
        end = End("done", answer=final_text(answer))
        if ending.kind != "done":
            end = End("blocked" if ending.kind == "blocked" else "question", ending.kind, ending.reason, answer)
        return Again("hook", f"You are not done, a hook says:\n{text}", TIMES, end)

    async def _before_report(self, session: Session) -> CallRuling:
        """Let SubagentStop hooks send a sub-agent back to work before it reports."""
        heard = self._of(session)
        turn, count = heard.sent_back
        count = count if turn == session.state.turn else 0
        answers = await self._fire(session, "SubagentStop", (), lambda _: {"stop_hook_active": count > 0})
        objections = [answer for answer in answers if answer.decision == "deny"]
        if not objections or count >= TIMES or heard.stop:
            return CallRuling()
        heard.sent_back = session.state.turn, count + 1
        texts = (self._framed(session, answer.hook, answer.reason) for answer in objections)
        return CallRuling("deny", "\n".join(texts))

    async def before_compaction(self, session: Session, trigger: str, focus: str) -> None:
        kind = "manual" if trigger == "command" else "auto"
        await self._fire(session, "PreCompact", (kind,), lambda _: {"trigger": kind, "custom_instructions": focus})

    async def after_compaction(self, session: Session) -> None:
        if session.state.work.parent is None:
            await self._start(session, "compact")

    async def _start(self, session: Session, source: str) -> None:
        answers = await self._fire(session, "SessionStart", (source,), lambda _: {"source": source})
        await self._tell(session, self._contexts(session, answers))

    # --- beside the turn --------------------------------------------------------------------------------------------

    def _listen(self, session: Session, event: Event) -> None:
        if isinstance(event, ApprovalRequested):
            tool = session.wiring.toolbox.get(event.tool)
            name = names_of(tool)[0] if tool is not None else event.tool
            text = f"lmagent needs your permission to use {name}: {one_line(event.summary, 200)}"
            self._notify(session, "permission_prompt", text)
        elif isinstance(event, TurnFinished) and session.state.work.parent is None:
            self._notify(session, "idle_prompt", "lmagent is waiting for your input")

    def _notify(self, session: Session, kind: str, text: str) -> None:
        """Run Notification hooks; the turn does not wait for them."""
        chosen = self._chosen("Notification", (kind,))
        if not chosen:
            return
        facts = {"message": text, "title": "lmagent", "notification_type": kind}
        payload = self._payload(session, "Notification", lambda _: facts)
        heard = self._of(session)

        async def run() -> None:
            answers = map(answer_of, await self._run(chosen, payload, LONGEST))
            heard.late += [answer for answer in answers if answer.warning]

        task = asyncio.get_running_loop().create_task(run())
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def aclose(self) -> None:
        """Wait for hooks that run beside, and end the sessions that are still open."""
        with anyio.move_on_after(ENDING, shield=True):
            while self._beside:
                await asyncio.wait(self._beside)
        for task in list(self._beside):
            task.cancel()
        with ungrouped():
            async with anyio.create_task_group() as tasks:
                for session in list(self._begun):
                    tasks.start_soon(self.end, session)

    async def end(self, id: str) -> None:
        """Run SessionEnd hooks of a session that is released, if it has begun."""
        session = self._begun.pop(id, None)
        if session is None:
            return
        heard = self._of(session)
        chosen = self._chosen("SessionEnd", ("other",))
        payload = self._payload(session, "SessionEnd", lambda _: {"reason": "other"})
        answers = list[HookAnswer]()
        with anyio.CancelScope(shield=True):
            answers += map(answer_of, await self._run(chosen, payload, ENDING))
        for warning in dict.fromkeys(answer.warning for answer in (*heard.late, *answers)):
            if warning:
                self._say(f"lmagent: {warning}")
        heard.late = []

    # --- running ----------------------------------------------------------------------------------------------------

    async def _fire(
        self, session: Session, event: str, names: Sequence[str], facts: Callable[[str], dict[str, Any]]
    ) -> list[HookAnswer]:
        """Run the hooks of an event side by side; show their messages and failures to the user."""
        heard = self._of(session)
        chosen = self._chosen(event, names)
        if not chosen and not heard.late:
            return []
        runs = await self._run(chosen, self._payload(session, event, facts), LONGEST)
        answers = [answer_of(run) for run in runs]
        late, heard.late = heard.late, []
        for answer in (*late, *answers):
            known = f"hook {answer.hook.event} {answer.hook.command}"
            if answer.warning and known not in session.warned:  # a hook that fails at every call is reported once
                session.warned.add(known)
                await session.notify("warning", "hook", answer.warning, "/hooks lists the hooks")
        for answer in answers:
            if answer.message:
                text = one_line(printable(answer.message), 500)
                await session.notify("info", "hook", f"the {label(answer.hook)} says: {text}")
            if answer.stop is not None:
                heard.stop = one_line(printable(answer.stop), 500)
        return answers

    def _chosen(self, event: str, names: Sequence[str]) -> list[Hook]:
        """Return the hooks of an event; the same command runs once."""
        fitting = (hook for hook in self._hooks if hook.event == event)
        found = [hook for hook in fitting if not names or matches(hook.matcher, names)]
        return list({(hook.command, hook.scope, hook.sandbox): hook for hook in reversed(found)}.values())[::-1]

    async def _run(self, hooks: Sequence[Hook], payload: Callable[[str], bytes], longest: float) -> list[HookRun]:
        runs: dict[int, HookRun] = {}

        async def one(at: int, hook: Hook) -> None:
            try:
                runs[at] = await run_hook(hook, self.place, payload, longest)
            except StoreError:
                raise
            except Exception as defect:  # noqa: BLE001  a hook must not end the turn
                runs[at] = HookRun(hook, failure=f"{type(defect).__name__}: {defect}")

        with ungrouped():
            async with anyio.create_task_group() as tasks:
                for at, hook in enumerate(hooks):
                    tasks.start_soon(one, at, hook)
        return [runs[at] for at in range(len(hooks))]

    def _payload(self, session: Session, event: str, facts: Callable[[str], dict[str, Any]]) -> Callable[[str], bytes]:
        """Return the function that makes a hook's input, for the workspace's path as that hook sees it."""
        state = session.state
        mode = "plan" if state.work.mode == "plan" else "bypassPermissions" if state.mode == "auto" else "default"

        def make(root: str) -> bytes:
            common = {
                "session_id": state.session,
                "transcript_path": f"{root}/.lmagent/sessions/{state.session}/events.jsonl",
                "cwd": root,
                "permission_mode": mode,
                "hook_event_name": event,
            }
            return encode({**common, **facts(root)})

        return make

    def _of(self, session: Session) -> _Heard:
        if session not in self._heard:
            self._heard[session] = _Heard()
            session.listen(partial(self._listen, session))
        return self._heard[session]

    # --- texts for the model ----------------------------------------------------------------------------------------

    def _framed(self, session: Session, hook: Hook, text: str) -> str:
        size = room_for(session, 1).take(min(MOST, intake.size_of(text)))
        return framed(f"hook {hook.event} in {hook.file.name}", intake.shorten(printable(text), size))

    def _contexts(self, session: Session, answers: Sequence[HookAnswer]) -> list[str]:
        return [self._framed(session, answer.hook, answer.context) for answer in answers if answer.context]

    @staticmethod
    async def _tell(session: Session, texts: Sequence[str]) -> None:
        if texts:
            await session.record(MessageAdded(message=user("\n".join(texts)), origin="note"))

    @staticmethod
    def _stopped(heard: _Heard) -> End | None:
        if not heard.stop:
            return None
        reason, heard.stop = heard.stop, ""
        return End("blocked", "hook", f"a hook stopped the turn: {reason}")


def _question(answer: HookAnswer) -> str:
    """Return why the user is asked; the hook's own text is on one line, with its source."""
    if answer.silent:
        return answer.warning
    return f"the {label(answer.hook)} asks: {one_line(answer.reason, 300)}" if answer.reason else "a hook asks"


def _changed_text(invocation: Invocation, changed: dict[str, Any]) -> str:
    return f"{invocation.tool.name} ran with arguments that a hook changed: {encode(changed).decode()}"
