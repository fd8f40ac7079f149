"""Command: a request from a surface. Commands go in, events come out; nothing else crosses the line."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from lmagent.core.events import PermissionMode, PlanDecision
from lmagent.core.ids import InputOrigin
from lmagent.core.messages import Message
from lmagent.core.model import SessionOptions
from lmagent.core.work import Budget, Plan, Task, TaskState, Way, WorkMode


class _BaseCommand(Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of all commands; `by` names the surface, for the log."""

    by: str = ""


class Submit(_BaseCommand, frozen=True, tag="submit"):
    """Start a turn; while one runs, the input waits for its end.

    Attributes:
        message: the message to the model.
        origin: where it comes from; a repeated submission of the same origin is ignored.
        way: the session's mode of work from the beginning of that turn on; None leaves it. Earlier turns are
            unaffected.
    """

    message: Message
    origin: InputOrigin = InputOrigin()
    way: Way | None = None


class Steer(_BaseCommand, frozen=True, tag="steer"):
    """Deliver to the running turn with the next tool result; when idle, the same as Submit.

    Attributes:
        message: the message to the model.
        to: id of the sub-agent's session that should get it; empty for this one.
        origin: as in Submit.
    """

    message: Message
    to: str = ""
    origin: InputOrigin = InputOrigin()


class Withdraw(_BaseCommand, frozen=True, tag="withdraw"):
    """Take back an input that has not reached the model."""

    input: str


class Continue(_BaseCommand, frozen=True, tag="continue"):
    """Resume a turn that a crash or an interrupt left unfinished."""


class Interrupt(_BaseCommand, frozen=True, tag="interrupt"):
    """Stop the running turn now; `to` as in Steer: only that sub-agent stops, and its result says so."""

    to: str = ""


class Approve(_BaseCommand, frozen=True, tag="approve"):
    """Answer an approval; `scope` "session" adds the rule that the request named."""

    approval: str
    approved: bool
    scope: Literal["once", "session"] = "once"
    feedback: str = ""


class SetMode(_BaseCommand, frozen=True, tag="set_mode"):
    """Change the permission mode."""

    mode: PermissionMode


class SetModel(_BaseCommand, frozen=True, tag="set_model"):
    """Let another model answer from the next step on."""

    model: str


class SetOptions(_BaseCommand, frozen=True, tag="set_options"):
    """Replace the session's options, from the next model call on; see `OptionsChanged`."""

    options: SessionOptions


class SetWork(_BaseCommand, frozen=True, tag="set_work"):
    """Switch the mode of work; see `WorkChanged`."""

    mode: WorkMode
    budget: Budget = Budget()
    then: WorkMode = "normal"


class DecidePlan(_BaseCommand, frozen=True, tag="decide_plan"):
    """Decide on the proposed plan.

    Attributes:
        decision: `approved`, `revise` or `rejected`.
        plan: the user's edited plan; None to accept the proposal.
        feedback: text for the model.
    """

    decision: PlanDecision
    plan: Plan | None = None
    feedback: str = ""


class ChangeTasks(_BaseCommand, frozen=True, tag="change_tasks"):
    """Change the session's tasks for the user; the model gets a note about it.

    Attributes:
        items: tasks that are new or different, whole.
        removed: ids of tasks to remove.
        state: the task state; an empty one clears it, None leaves it.
    """

    items: tuple[Task, ...] = ()
    removed: tuple[str, ...] = ()
    state: TaskState | None = None


class Compact(_BaseCommand, frozen=True, tag="compact"):
    """Compact the conversation now; `focus` names facts that the summary must keep."""

    focus: str = ""


class Undo(_BaseCommand, frozen=True, tag="undo"):
    """Undo changes of calls in the workspace; refused while a turn runs.

    Attributes:
        count: how many changing calls, from the last one; 0 for all of the session.
        turn: all of the last turn that changed something, instead.
    """

    count: int = 1
    turn: bool = False


class Redo(_BaseCommand, frozen=True, tag="redo"):
    """Redo the last undone changes; `count` as in Undo."""

    count: int = 1


class Rename(_BaseCommand, frozen=True, tag="rename"):
    """Give the session a title."""

    title: str


class Mark(_BaseCommand, frozen=True, tag="mark"):
    """Pin or archive the session, or no longer; None leaves it."""

    pinned: bool | None = None
    archived: bool | None = None


class Close(_BaseCommand, frozen=True, tag="close"):
    """Stop what runs and release the session."""


Command: TypeAlias = (
    Submit
    | Steer
    | Withdraw
    | Continue
    | Interrupt
    | Approve
    | SetMode
    | SetModel
    | SetOptions
    | SetWork
    | DecidePlan
    | ChangeTasks
    | Compact
    | Undo
    | Redo
    | Rename
    | Mark
    | Close
)
