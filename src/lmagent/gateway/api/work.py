"""Work: the state of a session's long work, in addition to the tasks in its view."""

from __future__ import annotations

from msgspec import Struct

from lmagent.core.work import Plan, TaskState
from lmagent.gateway.compat.http import state_of
from lmagent.gateway.http.route import Call, Route


class Work(Struct, frozen=True):
    """The purpose of the tasks.

    Attributes:
        state: the state of a batch, as the model wrote it; may be None.
        plan: the last approved plan, whose steps are tasks; may be None.
    """

    state: TaskState | None
    plan: Plan | None


async def show_work(call: Call) -> Work:
    session = call.path["session"]
    call.gateway.runner.require(session)
    work = (await state_of(call.gateway, session)).work
    return Work(work.state if work.state != TaskState() else None, work.plan)


ROUTES = (
    Route("GET", "/api/sessions/{session}/work", show_work, "Where long work stands", answer=Work, errors=(404,)),
)
