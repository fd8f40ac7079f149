"""Proposing: a turn in plan mode only reads; its last message is a plan, which then waits for the user's decision."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lmagent.core.events import Notice, PlanProposed
from lmagent.core.tool import Tool
from lmagent.engine.review import Again, End
from lmagent.engine.session import Session
from lmagent.engine.state import SessionState
from lmagent.planning.notes import ROUNDS

if TYPE_CHECKING:
    from lmagent.core.work import Plan
    from lmagent.engine.endings import Ending
    from lmagent.planning.plans import Unusable

TRIES = 2  # how often a model gets the faults of its plan to correct them
GRACE = 3  # rounds in which a model may learn that it has looked around enough

# How a turn ends in which the decision was made.
APPROVED = End("done", "plan", "the plan is approved; the work begins")


def fence(state: SessionState, tool: Tool) -> str:
    if state.work.mode != "plan":
        return ""
    if tool.effect != "read":
        return "this is plan mode, which only reads; what changes anything comes after the plan is approved."
    if state.step <= ROUNDS:
        return ""
    wanted = "answer with the plan as JSON now" if state.work.proposal is None else "answer now"
    return f"you have looked around for {ROUNDS} rounds; {wanted}."


def after_calls(session: Session) -> End | None:
    """End a turn that never stops looking around."""
    state = session.state
    if state.work.mode == "plan" and state.step >= ROUNDS + GRACE:
        wanted = "plan" if state.work.proposal is None else "answer"
        reason = f"the model looked around for {state.step} rounds and gave no {wanted}"
        return End("error", "plan", reason, fix="try again with a smaller task, or another model")
    return None


async def at_end(session: Session, ending: Ending, answer: str) -> End | Again | None:
    """Take the plan out of the answer; while a plan waits, an answer without a new one is an ordinary answer."""
    from lmagent.core.work import Plan
    from lmagent.planning.plans import SCHEMA

    state = session.state
    proposal = state.work.proposal
    if proposal is not None and proposal.turn == state.turn:
        return waits(session, answer)  # a crash came between the proposal and the end of its turn
    found = usable(session, answer)
    if not isinstance(found, Plan) and not found.json and proposal is None:
        listed = usable(session, answer, listed=True)
        found = listed if isinstance(listed, Plan) else found
    if isinstance(found, Plan):
        session.answer_schemas.clear()
        await session.record(PlanProposed(plan=found), sync=True)
        return waits(session, answer)
    if proposal is not None and not (found.json and '"steps"' in answer):
        text = "the plan still waits for your decision"
        typed = f"lmagent plan show {state.session}; in the conversation: /plan"
        session.emit(Notice(level="info", code="plan_waits", text=text, terminal=typed, turn=state.turn))
        return None
    if not found.json and ending.kind != "done":
        return None  # it asks, is blocked, or announces
    session.answer_schemas[state.turn] = SCHEMA
    text = (
        f"That is no plan that can be followed: {found.words}. Answer with the JSON object alone: title, goal, "
        "risk_areas, steps with id, description, verification, risk and dependencies."
    )
    reason = f"the model gave no usable plan: {found.words}"
    otherwise = End("error", "plan", reason, answer, fix="try again with a smaller task, or another model")
    return Again("plan", text, TRIES, otherwise)


def usable(session: Session, text: str, *, listed: bool = False) -> Plan | Unusable:
    """Read the plan in a text, if this session can follow it, next to its other tasks and within its window.

    `listed` accepts a numbered list as a plan.
    """
    from lmagent.core.work import Plan
    from lmagent.engine.work import WorkState
    from lmagent.planning.plans import Unusable, listed_plan, read_plan, steps_of
    from lmagent.planning.tasks import too_much

    work, said = session.state.work, session.state.user_texts
    others = {task.id: task for task in work.tasks.values() if task.kind != "step"}
    asked = said[-1] if said else session.state.title
    found = listed_plan(text, asked, others) if listed else read_plan(text, others)
    if isinstance(found, Plan):
        tasks = {**others, **{step.id: step for step in steps_of(found)}}
        if why := too_much(session, WorkState(tasks=tasks, state=work.state, plan=found)):
            return Unusable((f"{why} Take several steps together, and say title, goal and risks in fewer words",))
    return found


def begins_unread(state: SessionState) -> bool:
    """Return whether the plan of this turn is carried out without a decision: deep work in permission mode auto.

    A plan that waited before the user chose that mode keeps waiting; otherwise opening its session to reject it would
    start it.
    """
    proposal = state.work.proposal
    is_new = proposal is not None and state.turn_open and proposal.turn == state.turn
    return is_new and state.work.then == "deep" and state.mode == "auto"


def waits(session: Session, answer: str) -> End:
    """End a turn whose plan waits, and say what to do about it."""
    id = session.state.session
    typed = f"lmagent plan show {id}, then lmagent plan approve|revise|reject {id}; in the conversation: /plan"
    return End("question", "plan", "the plan waits for your decision", answer, terminal=typed)


_BEGINS = re.compile("[{`]")  # the beginning of a plan, or of the fence around it


class PlanWords:
    """The visible part of a reply: a possible plan is held back until the reply is whole, and shown as text.

    Without `planning` all text is shown as it comes.
    """

    def __init__(self) -> None:
        self.planning = False
        self._held = ""

    def feed(self, text: str) -> str:
        """Return the visible part of another piece."""
        begins = _BEGINS.search(text)
        if not self.planning or not (self._held or begins):
            return text
        at = begins.start() if begins and not self._held else 0
        self._held += text[at:]
        return text[:at]

    def finish(self, whole: str) -> tuple[str, str]:
        """Return the unshown rest at the end of a reply, and all of its visible text."""
        held, self._held = self._held, ""
        if not self.planning or '"steps"' not in whole:
            return held, whole
        from lmagent.planning.plans import Unusable, read_plan  # few replies are a plan

        found = read_plan(whole)
        words = f"(The plan cannot be followed: {found.words}.)" if isinstance(found, Unusable) else ""
        begins = _BEGINS.search(whole)
        return words, f"{whole[: begins.start()] if begins else ''}{words}"

    def drop(self) -> None:
        """Forget the held text: the reply broke off and comes again."""
        self._held = ""
