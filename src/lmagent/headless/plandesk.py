"""Plan desk: decides on plans in a run of one task, by asking the user at the terminal."""

from __future__ import annotations

from lmagent.core.commands import DecidePlan
from lmagent.core.errors import ConfigError
from lmagent.core.events import PlanProposed, TurnFinished
from lmagent.engine.lane import run_until_idle
from lmagent.engine.session import Session
from lmagent.headless.asker import forget_typed, read_line
from lmagent.headless.printer import Questions
from lmagent.terminal.question import PLAN
from lmagent.tools.sanitize import visible


async def settle_plans(session: Session, finished: TurnFinished | None, desk: PlanDesk) -> TurnFinished | None:
    """Have every plan decided on, and run the turns that follow; returns how the last turn ended."""
    refused = ""
    while (proposal := session.state.work.proposal) is not None:
        command = await desk.decide(proposal, refused)
        if command is None:
            break
        try:
            await session.send(command)
        except ConfigError as wrong:  # an edited plan that does not fit this session
            refused = str(wrong)
            continue
        refused = ""
        if command.decision == "rejected":
            break
        finished = await run_until_idle(session) or finished
    return finished


class PlanDesk:
    def __init__(self, session: Session, questions: Questions) -> None:
        self._session = session
        self._questions = questions

    async def decide(self, proposal: PlanProposed, refused: str = "") -> DecidePlan | None:
        """Ask until there is an answer; the end of the input leaves the plan waiting.

        `refused`: why the last decision was not accepted; empty the first time.
        """
        from lmagent.planning.editing import decision  # few runs have a plan
        from lmagent.planning.plans import plan_text

        details = visible(refused or plan_text(proposal.plan))
        while True:
            forget_typed()
            self._questions.ask(details, PLAN)
            line = await read_line()
            self._questions.answered(entered=line.endswith("\n"))
            if not line:
                return None
            try:
                command = await decision(line.strip(), self._session, by="cli")
            except ConfigError as wrong:
                details = visible(str(wrong))
                continue
            if command is not None:
                return command
            details = "Nothing is decided yet."
