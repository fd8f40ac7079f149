"""Conversation: the meaning of a line and its consequences. Knows no terminal; both loops (screen, plain) use it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.abc

from lmagent.app.attaching import with_attachments, without_attachments
from lmagent.app.host import Host
from lmagent.app.logs import unexpected
from lmagent.app.notifying import Attention
from lmagent.app.open_session import OpenSession
from lmagent.app.registry import SlashCommand
from lmagent.app.slash import Choice, SlashContext, SlashResult, find_command, is_command
from lmagent.core import events as ev
from lmagent.core.commands import Interrupt, Steer, Submit, Withdraw
from lmagent.core.errors import LmagentError
from lmagent.core.view import Pending, UserBlock, View, is_filler, reduce
from lmagent.engine.session import Session
from lmagent.planning import editing
from lmagent.repl.clipboard import copy
from lmagent.repl.owncommands import OUTSIDE, OwnCommands, run_in_terminal
from lmagent.terminal.question import PLAN, approval, decision
from lmagent.terminal.render import Renderer
from lmagent.tools.sanitize import one_line

if TYPE_CHECKING:
    from lmagent.repl.plain import PlainSurface
    from lmagent.repl.screen import Screen

BY = "repl"

QUIT_WITHIN = 2.0
"""Seconds within which a second Ctrl+C leaves."""

LOOK = 0.05
"""Seconds between two looks whether the work has ended."""

TICK = 0.5
"""Seconds between two looks whether a session's time has come."""

MOST_SHOWN = 40
"""Messages, calls and results of a resumed session's last exchange that are printed, besides the question."""


class ReplConversation:
    """One user, one session at a time. `tasks`: the group in which the agent works while the user types."""

    def __init__(
        self, host: Host, renderer: Renderer, tasks: anyio.abc.TaskGroup, surface: PlainSurface | Screen
    ) -> None:
        self.host = host
        self.renderer = renderer
        self.session: Session | None = None
        self.unconfined = ""
        self.begun_here = False
        self.view = View(mode=host.settings.permission_mode, model=host.agent.model)
        self.since = host.clock.monotonic()
        self._tasks = tasks
        self._surface = surface
        self._changed = surface.changed
        self._attention = Attention(host.settings.notify_after)
        self._stop_listening: Callable[[], None] = lambda: None
        self._opened: dict[str, OpenSession] = {}
        self._asking: list[anyio.CancelScope] = []
        self._own = OwnCommands(host, renderer, surface.changed)
        self._may_run_unconfined = host.settings.own_shell
        self._choices: tuple[Choice, ...] = ()
        self._pressed = float("-inf")
        self._warming = anyio.CancelScope()
        self._hidden: dict[str, str] = {}

    async def until(self, done: Callable[[], bool]) -> None:
        while not done():  # noqa: ASYNC110 - the work ends in several ways
            await anyio.sleep(LOOK)

    # --- the session ------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """Return the id of the session; empty without one."""
        return self.session.state.session if self.session is not None else ""

    def attach(self, session: Session, *, show: bool = False) -> None:
        """Continue a session; its view is folded from its log, and its last exchange is printed if wanted."""
        self._detach()
        self.session = session
        events = list(self.host.store.read(session.state.session))
        self.view = View()
        for event in events:
            self.view = reduce(self.view, event)
        if show:
            self._show_last(events)
            for block in self.view.waiting:
                self._show_sent(without_attachments(block.text))
        self.renderer.words.planning = self.view.work == "plan"
        if self.view.plan is not None:
            self.renderer.plan(self.view.plan)
        for event in session.opening if show else ():  # recorded before any listener
            self.renderer(event)
        self._stop_listening = session.listen(self._listen)
        self._open_session(session)  # it may wait for a time

    def _show_last(self, events: Sequence[ev.DurableEvent]) -> None:
        """Print the last question and its answer."""
        asked = [number for number, event in enumerate(events) if _is_question(event)]
        if not asked:
            return
        turn = events[asked[-1]].turn  # 0: it was imported
        first = next(number for number in asked if events[number].turn == turn) if turn else asked[-1]
        steps = [number for number in range(first + 1, len(events)) if number in asked or _is_shown(events[number])]
        shown = {first, *steps[-MOST_SHOWN:]}
        sent = {event.id: event.message.text for event in events if isinstance(event, ev.InputReceived)}
        for number, event in enumerate(events):
            if isinstance(event, ev.MessageAdded) and number in asked and number in shown:
                self._show_sent(without_attachments(sent.get(event.input or "", event.message.text)))
            elif number in shown or isinstance(event, ev.WorkChanged):
                self.renderer(event)
            if number == first and len(steps) > MOST_SHOWN:
                self.renderer.say(f"… {len(steps) - MOST_SHOWN} earlier steps", "quiet")
        self.renderer.running.clear()

    def _detach(self) -> None:
        self._stop_listening()
        self._stop_listening = lambda: None
        self.session = None

    def _listen(self, event: ev.Event) -> None:
        before = self.view.state
        self.view = reduce(self.view, event)
        if self.view.state != before:
            self.since = self.host.clock.monotonic()
        if isinstance(event, ev.MessageAdded) and (text := self._hidden.pop(event.input or "", "")):
            self._show_sent(text)
        self.renderer(event)
        if self._attention.of(event) is not None:
            self._surface.ring()
        self._changed()

    async def _need_session(self) -> Session:
        if self.session is None:
            self.attach(await self.host.new_session())
            self.begun_here = True
        assert self.session is not None
        return self.session

    # --- lines ------------------------------------------------------------------------------------------------

    def defers(self, text: str) -> bool:
        """Whether a line is a message that takes effect later, and is shown then."""
        stripped = text.strip()
        command = stripped.startswith("!") or is_command(text) or stripped in ("", "quit", "exit")
        return self.working and not self.asks and not command

    async def line(self, text: str, *, queue: bool = False, hidden: bool = False) -> bool:
        """Act on a line; False when the user wants to leave.

        Args:
            queue: while the agent works, keep it for the next turn instead of steering.
            hidden: the screen removed the line when it was sent.
        """
        if not (stripped := text.strip()):
            return True
        deferred = hidden and self.defers(text)
        if hidden and not deferred:
            self._show_sent(text)
        choices, self._choices = self._choices, ()
        with self._failures_shown():
            if self.unconfined:
                await self._run_unconfined(stripped)
            elif stripped in ("quit", "exit"):
                return False
            elif stripped.startswith("!"):
                await self._command(stripped)
            elif is_command(text):
                return await self._slash(stripped)
            elif stripped.isdecimal() and 0 < int(stripped) <= len(choices):
                return await self._slash(choices[int(stripped) - 1].line)
            elif self.question is not None:
                await self.answer(stripped)
            elif self.plan is not None:
                await self.decide(stripped)
            else:
                await self._say(text, queue=queue, deferred=deferred)
        return True

    @contextmanager
    def _failures_shown(self) -> Generator[None]:
        """Print every error of the block."""
        try:
            yield
        except LmagentError as failure:
            self._say_fault(str(failure))
        except Exception as defect:  # noqa: BLE001 - a defect of ours must not take the conversation down
            self._say_fault(str(unexpected(defect, self.host.workspace, self.host.settings, "continue here")))

    async def _command(self, line: str) -> None:
        """Run a command for the user: `!cmd` in the sandbox, for the model to see; `!!cmd` in the user's own shell."""
        command = line.lstrip("!").strip()
        if not command:
            self.renderer.say("!COMMAND runs it in the sandbox and shows the model; !!COMMAND in your shell.", "quiet")
        elif line.startswith("!!"):
            self.unconfined = command
            if self._may_run_unconfined:
                await self._run_unconfined("y")
        else:
            session = await self._need_session()
            self._tasks.start_soon(self._beside, partial(self._own.run, session, command))

    async def _run_unconfined(self, answer: str) -> None:
        command, self.unconfined = self.unconfined, ""
        if answer.lower() not in ("y", "yes"):
            self.renderer.say("not run", "quiet")
            return
        self._may_run_unconfined = True
        with self._surface.lend():
            code = await run_in_terminal(command, self.host.workspace)
        if code:
            self.renderer.say(f"[exit code {code}]", "warning")

    async def _beside(self, act: Callable[[], Awaitable[None]]) -> None:
        """Act while the user can continue to type."""
        with self._failures_shown():
            await act()

    def prewarm(self) -> None:
        """Let the server read the fixed part of the prompt while the user types the task."""
        self._tasks.start_soon(self._prewarm)

    async def _prewarm(self) -> None:
        with self._warming:
            await self.host.prewarm()

    async def _say(self, text: str, *, queue: bool = False, deferred: bool = False, typed: str | None = None) -> None:
        self._warming.cancel()  # the server keeps the part that it has read, and the real request need not wait
        session = await self._need_session()
        told = f"{text}{self._own.take_told()}"
        message = await with_attachments(told, text if typed is None else typed, self.host, session, self.renderer.say)
        sent = await session.send(Submit(message=message, by=BY) if queue else Steer(message=message, by=BY))
        if deferred and sent is not None:
            self._hidden[sent.id] = text
        self.work()

    def waiting_lines(self) -> list[str]:
        """Return a line for each message that has not taken effect."""
        return [
            f"{'queued' if block.delivery == 'queue' else 'steering'}: {one_line(without_attachments(block.text))}"
            for block in self.view.waiting
            if block.id in self._hidden
        ]

    def _show_sent(self, text: str) -> None:
        self.renderer.say("> " + text.rstrip().replace("\n", "\n  "), "user")

    # --- slash commands ---------------------------------------------------------------------------------------

    async def _slash(self, line: str) -> bool:
        command, argument = find_command(line, self.host)
        if command.beside:
            self._tasks.start_soon(self._beside, partial(self._ask_beside, command, argument))
            return True
        if command.asks:
            await self._need_session()
            self._asking.append(scope := anyio.CancelScope())
            self._tasks.start_soon(self._beside, partial(self._ask_first, command, argument, scope))
            return True
        return await self._carry_out(await command.run(self.context, argument))

    async def _ask_first(self, command: SlashCommand, argument: str, scope: anyio.CancelScope) -> None:
        """Run a command that may ask: the next line answers it."""
        try:
            with scope:
                await self._carry_out(await command.run(self.context, argument))
        finally:
            self._asking.remove(scope)
            self._changed()

    @property
    def context(self) -> SlashContext:
        return SlashContext(self.host, self.session, self.view)

    async def _ask_beside(self, command: SlashCommand, argument: str) -> None:
        """Run a command that only prints, and print its answer when it is there."""
        line = f"/{command.name} {one_line(argument, 60)}".rstrip()
        self.renderer.running[line] = line
        self._changed()
        try:
            result = await command.run(self.context, argument)
        finally:
            self.renderer.running.pop(line, None)
            self._changed()
        self.renderer.say(f"{line}\n{result.text}")

    async def _carry_out(self, result: SlashResult) -> bool:
        """Do the part of a command that its surface does; False when the user wants to leave."""
        if result.choices:
            self._choices = result.choices
            line = await self._surface.choose(result.choices)
            return await self._slash(line) if line else True
        if result.copy:
            self.renderer.say(await copy(result.copy, self._surface.clip), "quiet")
        if result.theme:
            self._surface.use_theme(result.theme)
        self._print(result)
        if result.fresh:
            self._detach()
            self.view = View(mode=self.host.settings.permission_mode, model=self.host.agent.model)
        if result.session is not None:
            self.begun_here = False
            self.attach(result.session, show=True)
        if result.submit:
            await self._say(result.submit, typed=result.typed)
        if result.run:
            self.work()
        return not result.quit

    def _print(self, result: SlashResult) -> None:
        if result.diff:
            self.renderer.diff(result.text)
        elif result.headed:
            for line in result.text.splitlines():
                self.renderer.say(line, "user" if line.endswith(":") else "plain")
        elif result.text:
            self.renderer.say(result.text)

    # --- approvals and plans ------------------------------------------------------------------------------------

    @property
    def question(self) -> Pending | None:
        return self.view.approvals[0] if self.view.approvals else None

    @property
    def asks(self) -> str:
        """Return what the next line answers; empty if it is a message."""
        if self.unconfined:
            return f"{OUTSIDE} y yes · n no: "
        if (pending := self.question) is not None:
            return approval(pending.tool, pending.grant)
        return PLAN if self.plan is not None else ""

    async def answer(self, word: str) -> None:
        """Answer the question: y, n, a (always), or other text, which denies and tells the model why."""
        if (pending := self.question) is None or self.session is None:
            return
        command = decision(pending.id, pending.grant, word, BY)
        await self.session.send(command)
        if command.approved:  # the line of a denied call says so itself
            self.renderer.say("allowed for this session" if command.scope == "session" else "allowed", "quiet")

    @property
    def plan(self) -> ev.PlanProposed | None:
        """Return the plan that waits for the user; None while the agent works."""
        return None if self.working else self.view.plan

    async def decide(self, words: str) -> None:
        """Decide on the plan: y, n, e (the editor), or text for the model."""
        if self.plan is None or self.session is None:
            return
        command = await editing.decision(words, self.session, by=BY)
        if command is None:
            self.renderer.say(editing.UNDECIDED, "quiet")
            return
        await self.session.send(command)
        self.renderer.say(editing.DECIDED[command.decision], "quiet")
        self.work()

    # --- working ----------------------------------------------------------------------------------------------------

    @property
    def working(self) -> bool:
        return self.session is not None and self._open_session(self.session).is_working

    @property
    def busy(self) -> bool:
        """Whether Esc or Ctrl+C would stop anything: the agent at work, or the user's command."""
        return self.working or self._own.running or bool(self._asking)

    def work(self) -> None:
        """Let the agent work on the submitted messages, unless it works already."""
        if self.session is not None:
            self._open_session(self.session).work()

    def _open_session(self, session: Session) -> OpenSession:
        """Return what runs the turns of a session; a session that the user has left works on."""
        known = self._opened.get(session.state.session)
        if known is None or known.session is not session:
            known = OpenSession(session, self.host, self._tasks, self._say_fault, resumable=False)
            self._opened[session.state.session] = known
        return known

    async def wake_in_time(self) -> None:
        """Continue the conversation's sessions at the times that they wait for."""
        while True:
            await anyio.sleep(TICK)
            for name, known in list(self._opened.items()):
                try:
                    await known.wake_if_due()
                except LmagentError as failure:
                    del self._opened[name]
                    self._say_fault(f"session {name}: {failure}")

    def _say_fault(self, text: str) -> None:
        self.renderer.say(text, "fault")

    async def interrupt(self) -> str:
        """Stop the user's command, or else the running turn; returns the text of the messages that waited for it."""
        if self._own.running:
            self._own.stop()
        elif self._asking:
            for scope in self._asking:
                scope.cancel()
        elif self.session is not None and self.working:
            texts = [await self._withdraw(item) for item in self.view.waiting]
            await self.session.send(Interrupt(by=BY))
            return "\n".join(filter(None, texts))
        return ""

    async def pressed_ctrl_c(self, *, empty: bool) -> bool:
        """Stop the running work; True on a second press in a short time with an empty prompt, which leaves."""
        now = self.host.clock.monotonic()
        again, self._pressed = now - self._pressed < QUIT_WITHIN, now
        if again and empty:
            return True
        self.unconfined = ""
        stopping = "stopping; " if self.busy else ""
        if text := await self.interrupt():
            self.renderer.say(f"not sent:\n{text}", "quiet")
        self.renderer.say(f"{stopping}Ctrl+C again leaves", "quiet")
        return False

    @property
    def has_questions(self) -> bool:
        return any(isinstance(block, UserBlock) for block in (*self.view.blocks, *self.view.waiting))

    async def take_back(self) -> str:
        """Withdraw the last input that has not reached the model, and return its text."""
        return await self._withdraw(self.view.waiting[-1]) if self.view.waiting else ""

    async def _withdraw(self, item: UserBlock) -> str:
        """Take an input back and return its text; empty if the model has it by now."""
        assert self.session is not None
        withdrawn = await self.session.send(Withdraw(input=item.id, by=BY))
        return without_attachments(item.text) if withdrawn is not None else ""


def _is_question(event: ev.DurableEvent) -> bool:
    return isinstance(event, ev.MessageAdded) and event.origin in ("input", "steer")


def _is_shown(event: ev.DurableEvent) -> bool:
    if isinstance(event, ev.MessageAdded):
        return event.message.role == "assistant" and not is_filler(event)
    return isinstance(event, ev.ToolStarted | ev.ToolFinished | ev.TurnFinished)
