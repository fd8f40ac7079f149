"""Conversation: what a line means and what follows from it. Knows no terminal; both loops (screen, plain) use it."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import anyio.abc

from lmagent.app.host import Host
from lmagent.app.notifying import Attention
from lmagent.app.slash import SlashContext, dispatch, is_command
from lmagent.app.waking import wake_in_time
from lmagent.core import events as ev
from lmagent.core.commands import Approve, Interrupt, Steer, Submit, Withdraw
from lmagent.core.errors import LmagentError
from lmagent.core.messages import user
from lmagent.core.view import Pending, UserBlock, View, reduce
from lmagent.engine.lane import run_until_idle
from lmagent.engine.session import Session
from lmagent.repl.render import Renderer

BY = "repl"

MOST_OUTPUT = 8000
"""Characters of a person's own command that the model is told."""


class Conversation:
    """One person, one session at a time.

    Args:
        host: the sessions.
        renderer: shows what is finished.
        tasks: where the agent works while the person types.
        changed: called after every event, so that a live region can be drawn anew.
        ring: called when the person should look.
    """

    def __init__(
        self,
        host: Host,
        renderer: Renderer,
        tasks: anyio.abc.TaskGroup,
        changed: Callable[[], None],
        ring: Callable[[], None],
    ) -> None:
        self.host = host
        self.renderer = renderer
        self.session: Session | None = None
        self.view = View(mode=host.settings.permission_mode, model=host.agent.model)
        self.since = host.clock.monotonic()
        self._tasks = tasks
        self._changed = changed
        self._ring = ring
        self._attention = Attention(host.settings.notify_after)
        self._stop_listening: Callable[[], None] = lambda: None
        self._working = False
        self._ran: list[str] = []
        self._warming = anyio.CancelScope()
        self._news = anyio.Event()

    async def until(self, done: Callable[[], bool]) -> None:
        """Wait until `done`, looking again after everything that happens."""
        while not done():
            self._news = anyio.Event()
            await self._news.wait()

    # --- the session ------------------------------------------------------------------------------------------

    def attach(self, session: Session, *, show: int = 0) -> None:
        """Go on with a session; its view is folded from its log, and its last `show` messages are printed."""
        self._stop_listening()
        self.session = session
        view = View()
        recent: list[tuple[ev.DurableEvent, str]] = []
        for event in self.host.store.read(session.state.session):
            recent.append((event, view.work))
            view = reduce(view, event)
        self.view = view
        for event, work in recent[-show * 6 :] if show else ():
            self.renderer.words.planning = work == "plan"
            if isinstance(event, ev.InputReceived):
                self.renderer.say(f"> {event.message.text}", "user")
            elif isinstance(event, ev.MessageAdded):
                self.renderer(event)
        self.renderer.words.planning = view.work == "plan"
        if view.plan is not None:
            self.renderer.plan(view.plan)
        self._stop_listening = session.listen(self._listen)
        self._sleep(session)

    def _listen(self, event: ev.Event) -> None:
        before = self.view.state
        self.view = reduce(self.view, event)
        if self.view.state != before:
            self.since = self.host.clock.monotonic()
        self.renderer(event)
        if self._attention.of(event) is not None:
            self._ring()
        self._changed()
        self._news.set()

    async def _need_session(self) -> Session:
        if self.session is None:
            session = await self.host.new_session()
            self.attach(session)
        assert self.session is not None
        return self.session

    # --- what is typed ------------------------------------------------------------------------------------------

    async def line(self, text: str, *, queue: bool = False) -> bool:
        """Act on a line; False when the person wants to leave.

        Args:
            text: the line, or several.
            queue: while the agent works, keep it for the next turn instead of steering.
        """
        stripped = text.strip()
        if not stripped:
            return True
        try:
            if self.question is not None:
                await self.answer(stripped)
            elif stripped in ("quit", "exit"):
                return False
            elif stripped.startswith("!"):
                await self._command(stripped)
            elif is_command(text):
                return await self._slash(stripped)
            elif self.plan is not None:
                await self.decide(stripped)
            else:
                await self._say(text, queue=queue)
        except LmagentError as failure:
            self.renderer.say(str(failure), "fault")
        return True

    async def _command(self, line: str) -> None:
        """Run a command for the person: `!cmd` tells the model of it with the next input, `!!cmd` does not."""
        session = await self._need_session()
        silent = line.startswith("!!")
        command = line.lstrip("!").strip()
        if not command:
            self.renderer.say("!COMMAND runs it in the sandbox and tells the model; !!COMMAND does not tell.", "quiet")
            return
        output = await self.host.run_for_person(session.state.session, command)
        self.renderer.say(output or "(no output)")
        if not silent:
            self._ran.append(f"[The user ran `{command}`:]\n{output[-MOST_OUTPUT:]}")

    def prewarm(self) -> None:
        """Let the server read the fixed part of the prompt while the task is being typed."""
        self._tasks.start_soon(self._prewarm)

    async def _prewarm(self) -> None:
        with self._warming:
            await self.host.prewarm()

    async def _say(self, text: str, *, queue: bool) -> None:
        self._warming.cancel()  # what was read by then stays read, and the real request need not wait
        session = await self._need_session()
        message = user("\n\n".join((*self._ran, text)))
        self._ran.clear()
        await session.send(Submit(message=message, by=BY) if queue else Steer(message=message, by=BY))
        self.work()

    async def _slash(self, line: str) -> bool:
        result = await dispatch(line, SlashContext(self.host, self.session, self.view))
        if result.text:
            self.renderer.say(result.text)
        if result.fresh:
            self._stop_listening()
            self.session = None
            self.view = View(mode=self.host.settings.permission_mode, model=self.host.agent.model)
        if result.session is not None:
            self.attach(result.session, show=3)
        if result.submit:
            await self._say(result.submit, queue=False)
        if result.run:
            self.work()
        return not result.quit

    # --- approvals ------------------------------------------------------------------------------------------------

    @property
    def question(self) -> Pending | None:
        """The approval that waits for the person."""
        return self.view.approvals[0] if self.view.approvals else None

    async def answer(self, word: str) -> None:
        """Answer the question: y, n, a (always), or words, which deny and tell the model why."""
        pending, session = self.question, self.session
        if pending is None or session is None:
            return
        lowered = word.lower()
        always = lowered in ("a", "always") and bool(pending.grant)
        approved = lowered in ("y", "yes") or always
        silent = approved or lowered in ("n", "no", "a", "always")
        await session.send(
            Approve(
                approval=pending.id,
                approved=approved,
                scope="session" if always else "once",
                feedback="" if silent else word,
                by=BY,
            )
        )
        self.renderer.say("allowed for this session" if always else "allowed" if approved else "denied", "quiet")

    # --- plans ----------------------------------------------------------------------------------------------------

    @property
    def plan(self) -> ev.PlanProposed | None:
        """The plan that waits for the person; none while the agent works."""
        return None if self._working else self.view.plan

    async def decide(self, words: str) -> None:
        """Decide on the plan: y, n, e (the editor), or words for the model."""
        from lmagent.app.planedit import decision

        session = self.session
        if self.plan is None or session is None:
            return
        command = await decision(words, session, by=BY)
        if command is None:
            self.renderer.say("nothing was changed; the plan still waits", "quiet")
            return
        await session.send(command)
        told = {"approved": "approved; the work begins", "rejected": "rejected", "revise": "the model plans anew"}
        self.renderer.say(told[command.decision], "quiet")
        self.work()

    # --- working ----------------------------------------------------------------------------------------------------

    @property
    def working(self) -> bool:
        """Whether the agent is at work."""
        return self._working

    def work(self) -> None:
        """Let the agent do what was submitted, if it is not at it already."""
        if not self._working and self.session is not None:
            self._working = True
            self._tasks.start_soon(self._run, self.session)

    async def _run(self, session: Session) -> None:
        try:
            await self._lane(session)
        finally:
            self._working = False
            self._changed()
            self._news.set()
        if session.state.waiting("submit", "queue", "steer"):
            self.work()  # it arrived in the very moment in which the lane went idle

    async def _lane(self, session: Session) -> None:
        try:
            await run_until_idle(session)
        except LmagentError as failure:
            self.renderer.say(str(failure), "fault")
        self._sleep(session)

    def _sleep(self, session: Session) -> None:
        """See to it that a session that waits is woken at its time."""
        if session.state.wait is not None:
            self._tasks.start_soon(self._wake, session)

    async def _wake(self, session: Session) -> None:
        if await wake_in_time(session, self.host.clock):
            if session is self.session:
                self.work()
            else:
                self.renderer.say(f"session {session.state.session} wakes; /resume it to see it", "quiet")
                await self._lane(session)

    async def interrupt(self) -> None:
        """Stop the running turn."""
        if self.session is not None and self._working:
            await self.session.send(Interrupt(by=BY))

    async def take_back(self) -> str:
        """Withdraw the last input that has not reached the model, and return its text."""
        pending = [block for block in self.view.blocks if isinstance(block, UserBlock) and block.pending]
        if not pending or self.session is None:
            return ""
        await self.session.send(Withdraw(input=pending[-1].id, by=BY))
        return pending[-1].text
