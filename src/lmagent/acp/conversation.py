"""Conversation: one session in the editor: its events become updates, and the editor's prompts become inputs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import anyio.abc
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from msgspec.structs import replace

from lmagent.acp.asking import ONCE, Approval, plan_question
from lmagent.acp.content import Object, facts_of, quoted, text
from lmagent.acp.folders import SURFACE, Folder
from lmagent.acp.modes import commands_for, config_options, current_mode, models_of
from lmagent.acp.prompts import message_of, typed
from lmagent.acp.updates import MESSAGE, Updates
from lmagent.acp.wire import Closed, Editor, NotAnswered
from lmagent.app.open_session import OpenSession
from lmagent.app.slash import SlashContext, all_commands, dispatch, find_command, is_command
from lmagent.core import events as ev
from lmagent.core.commands import Command, DecidePlan, Submit
from lmagent.core.errors import ConfigError, LmagentError, SessionBusy, StoreError
from lmagent.core.messages import user
from lmagent.core.view import View
from lmagent.engine.session import Session, holder
from lmagent.tools.sanitize import printable

BATCH = 0.03  # seconds for which live events are gathered into one update

# Commands that lead to another session, are for a terminal, or for a running turn, which takes no other prompt.
NOT_HERE = frozenset({"quit", "copy", "theme", "new", "agent", "resume", "sessions", "fork", "steer", "stop"})

_STOPS = {"length": "max_tokens", "content_filter": "refusal"}


class Conversation:
    """A session that the editor has open."""

    def __init__(self, folder: Folder, known: OpenSession, editor: Editor, tasks: anyio.abc.TaskGroup) -> None:
        self.id = known.id
        self.folder = folder
        self._editor = editor
        self._tasks = tasks
        self._updates = Updates(folder.host.workspace, lambda call: facts_of(call, folder.host.toolbox))
        self._session = known.session
        self._send: MemoryObjectSendStream[ev.Event | anyio.Event]
        self._receive: MemoryObjectReceiveStream[ev.Event | anyio.Event]
        self._send, self._receive = anyio.create_memory_object_stream[ev.Event | anyio.Event](float("inf"))
        self._asked: dict[str, anyio.CancelScope] = {}
        self._scope: anyio.CancelScope | None = None  # of the prompt that is worked on
        self._is_cancelled = False
        self._ended: ev.TurnFinished | None = None  # of the prompt that is worked on
        self._failure: StoreError | None = None  # the log took no more events
        self._models: tuple[str, ...] = ()
        self._stop_listening = known.session.listen(self._send.send_nowait)

    # --- events out -------------------------------------------------------------------------------------------------

    def attach(self, session: Session) -> None:
        """Listen to the session; it is another object each time that it is opened."""
        if self._session is not session:
            self._session = session
            self._stop_listening = session.listen(self._send.send_nowait)

    def leave(self) -> None:
        """Show nothing more of the session."""
        self._stop_listening()
        self._send.close()

    async def replay(self, *, show: bool) -> None:
        """Fold the session's past, and let the editor show it if wanted."""
        events = [*self.folder.host.store.read(self.id)]
        updates = self._updates.of(events, replay=True)
        if show:
            for update in updates:
                await self._editor.update(self.id, update)

    async def pump(self) -> None:
        """Send updates for the session's events, in their order, until the editor is gone."""
        async for first in self._receive:
            await anyio.sleep(BATCH)
            batch = [first]
            while self._receive.statistics().current_buffer_used:
                batch.append(self._receive.receive_nowait())
            try:
                await self._show(batch)
            except Closed:
                return

    async def _show(self, batch: Sequence[ev.Event | anyio.Event]) -> None:
        events = [item for item in batch if not isinstance(item, anyio.Event)]
        for update in self._updates.of(events):
            await self._editor.update(self.id, update)
        for event in events:
            await self._follow(event)
        for mark in batch:
            if isinstance(mark, anyio.Event):
                mark.set()

    async def _follow(self, event: ev.Event) -> None:
        child, inner = ev.innermost(event)
        match inner:
            case ev.ApprovalRequested():
                self._ask(inner, child)
            case ev.ApprovalResolved(approval=id) if id in self._asked:
                self._asked.pop(id).cancel()
            case ev.TurnFinished() if not child:
                self._ended = inner
            case ev.ModeChanged() | ev.WorkChanged() | ev.ModelChanged() if not child:
                await self._update("current_mode_update", currentModeId=current_mode(self.view))
                await self._update("config_option_update", configOptions=self.options())
            case ev.StepFinished() if not child:
                await self._update("usage_update", used=self.view.totals.context, size=self._session.window.tokens)
            case _:
                pass

    async def _update(self, kind: str, **fields: Any) -> None:
        await self._editor.update(self.id, {"sessionUpdate": kind, **fields})

    async def say(self, words: str) -> None:
        """Show a text of ours as a message."""
        await self._update(MESSAGE, content=text(printable(words)))

    async def _close(self, call: str, *, is_allowed: bool) -> None:
        """Show that a question's own call has ended."""
        await self._update("tool_call_update", toolCallId=call, status="completed" if is_allowed else "failed")

    async def _all_shown(self) -> None:
        mark = anyio.Event()
        self._send.send_nowait(mark)
        await mark.wait()

    # --- choices ----------------------------------------------------------------------------------------------------

    async def look_up_models(self) -> None:
        self._models = await models_of(self.folder.host)

    @property
    def view(self) -> View:
        return self._updates.view

    def options(self) -> list[Object]:
        model = self._session.state.model or self.folder.host.agent.model
        return config_options(self.view, model, self._models)

    async def choose(self, option: str, value: str) -> None:
        for command in commands_for(self.view, option, value, self._models):
            await self.send(command)
        await self._all_shown()

    async def send(self, command: Command) -> ev.DurableEvent | None:
        return await self.folder.runner.send(self.id, replace(command, by=SURFACE))

    async def introduce(self, *notices: str) -> None:
        """Send what follows the response that opens a session: editors do not know the session before."""
        commands = [
            {"name": name, "description": command.help or name}
            | ({"input": {"hint": command.usage}} if command.usage else {})
            for name, command in all_commands(self.folder.host).items()
            if name not in NOT_HERE
        ]
        try:
            await self._update("available_commands_update", availableCommands=commands)
            for notice in filter(None, notices):
                await self.say(quoted(notice))
        except Closed:
            return

    # --- questions --------------------------------------------------------------------------------------------------

    def _ask(self, request: ev.ApprovalRequested, child: str) -> None:
        if request.id in self._asked or holder(self._session, request.id) is None:
            return
        facts = None if child else self._updates.calls.get(request.call_id)
        scope = self._asked[request.id] = anyio.CancelScope()
        question = Approval(request, facts, self.folder.host.workspace, child)
        self._tasks.start_soon(self._put, question, scope)

    async def _put(self, question: Approval, scope: anyio.CancelScope) -> None:
        """Put an approval to the user. It is withdrawn if it is answered elsewhere, or the turn ends."""
        chosen = ""
        with scope:
            try:
                chosen = await self._editor.ask(self.id, *question.question())
            except NotAnswered as why:
                self.folder.runner.say(f"the editor cannot ask a question, so the call is denied: {why}")
            except Closed:
                return  # the approval waits for the next process
        if not scope.cancelled_caught:
            self._asked.pop(question.id, None)
            try:
                await self.send(question.answer(chosen))
            except StoreError as failure:
                await self._give_up(failure)
            except LmagentError as failure:
                self.folder.runner.say(f"lmagent: {failure}")
        if question.call.startswith("approval-"):
            with suppress(Closed):
                await self._close(question.call, is_allowed=bool(chosen))

    # --- prompts ----------------------------------------------------------------------------------------------------

    async def prompt(self, blocks: Sequence[Any]) -> str:
        """Carry out a prompt; return why the turn stopped."""
        async with self._working():
            known = await self.folder.runner.open(self.id)
            if is_command(line := typed(blocks).strip()):
                ended = await self._slash(known, line)
            elif known.session.state.work.proposal is not None:
                if not (feedback := typed(blocks).strip()):
                    raise ConfigError("a plan waits for your decision", fix="type what should change, or /plan approve")
                await self.send(DecidePlan(decision="revise", feedback=feedback))
                ended = await self._until_idle(known)
            else:
                message = await message_of(blocks, self.folder.host, known.session)
                await self.send(Submit(message=message))
                ended = await self._until_idle(known)
            while ended is not None and (proposal := known.session.state.work.proposal) is not None:
                if not await self._approves(proposal):
                    break
                await self.send(DecidePlan(decision="approved"))
                ended = await self._until_idle(known)
            return self._stop_reason(ended)
        return "cancelled"

    def require_idle(self) -> None:
        """Raise SessionBusy if a prompt is worked on."""
        if self._scope is not None:
            raise SessionBusy("a turn is running in this session", fix="cancel it, or wait for its end")

    @asynccontextmanager
    async def _working(self) -> AsyncGenerator[None]:
        self.require_idle()
        self._is_cancelled, self._ended, self._failure = False, None, None
        with anyio.CancelScope() as self._scope:
            try:
                yield
            finally:
                self._scope = None

    async def _until_idle(self, known: OpenSession) -> ev.TurnFinished | None:
        """Wait for the end of the work, and until the editor has all updates."""
        if self._is_cancelled:
            await self.folder.runner.stop(self.id, SURFACE)
        await known.until_idle()
        await self._all_shown()
        if (failure := self._failure or known.failure) is not None:
            raise failure
        return self._ended

    async def _give_up(self, failure: StoreError) -> None:
        """Stop working: a turn that waits for an answer would wait for ever if its log takes none."""
        self._failure = failure
        if (known := self.folder.runner.usable(self.id)) is not None:
            await known.stop()

    async def _approves(self, proposal: ev.PlanProposed) -> bool:
        call, options = plan_question(proposal)
        try:
            chosen = await self._editor.ask(self.id, call, options)
        except NotAnswered:
            chosen = ""
        await self._close(call["toolCallId"], is_allowed=chosen == ONCE)
        return chosen == ONCE

    def _stop_reason(self, ended: ev.TurnFinished | None) -> str:
        """Return the protocol's name for the end of a turn. Raise LmagentError if it failed."""
        if self._is_cancelled or (ended is not None and ended.outcome == "interrupted"):
            return "cancelled"
        if ended is not None and ended.outcome == "limit":
            return "max_turn_requests"
        if ended is not None and ended.outcome == "error":
            if ended.cause in _STOPS:
                return _STOPS[ended.cause]
            raise LmagentError(ended.reason or "the turn failed", fix=ended.fix, terminal=ended.terminal)
        return "end_turn"

    async def cancel(self) -> None:
        """Stop the running turn, and withdraw its questions."""
        if self._scope is None:
            return
        self._is_cancelled = True
        known = self.folder.runner.usable(self.id)
        if known is not None and known.is_working:
            try:
                await self.folder.runner.stop(self.id, SURFACE)
            except StoreError as failure:
                await self._give_up(failure)
        elif known is None or not known.session.state.inputs:
            self._scope.cancel()  # a slash command, or a question about a plan

    # --- slash commands ---------------------------------------------------------------------------------------------

    async def _slash(self, known: OpenSession, line: str) -> ev.TurnFinished | None:
        """Carry out a slash command; its answer, or the reason for its refusal, is a message."""
        try:
            if (name := find_command(line, self.folder.host)[0].name) in NOT_HERE:
                raise ConfigError(f"/{name} is not for editors", fix="the editor has its own way, or a terminal has")
            context = SlashContext(self.folder.host, known.session, self.view)
            result = await dispatch(line, context)
        except LmagentError as refused:
            await self.say(str(refused))
            return None
        if result.text:
            await self.say(f"```diff\n{result.text}\n```" if result.diff else result.text)
        if result.choices:
            await self.say("\n".join(f"- `{choice.line}` {choice.label}" for choice in result.choices))
        if result.submit:
            await self.send(Submit(message=user(result.submit)))
        if result.run:
            known.work()
        if result.submit or result.run:
            return await self._until_idle(known)
        await self._all_shown()
        return None
