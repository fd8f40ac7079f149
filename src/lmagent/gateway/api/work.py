"""Work: where a session's long work stands, beyond the tasks that its view has."""

from __future__ import annotations

from msgspec import Struct

from lmagent.core.work import Plan, TaskState
from lmagent.gateway.http.route import Call, Route
from lmagent.gateway.seed.http import state_of


class Work(Struct, frozen=True):
    """What the tasks are for.

    Attributes:
        state: where a batch stands, in the model's words; None for nothing.
        plan: the plan that was approved last, whose steps are tasks; None for none.
    """

    state: TaskState | None
    plan: Plan | None


async def show_work(call: Call) -> Work:
    """The task state, and the plan that was approved."""
    session = call.path["session"]
    call.gateway.runner.require(session)
    work = (await state_of(call.gateway, session)).work
    return Work(work.state if work.state != TaskState() else None, work.plan)


ROUTES = (
    Route("GET", "/api/sessions/{session}/work", show_work, "Where long work stands", answer=Work, errors=(404,)),
)
