"""Approvals: a call waits for the user, and the user's answer settles it.

A grant for a session holds for its sub-agents too, and a grant to a sub-agent for the whole tree of sessions: to the
user, the tree is one session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from lmagent.core.commands import Approve
from lmagent.core.events import ApprovalRequested, ApprovalResolved, DurableEvent

if TYPE_CHECKING:
    from lmagent.engine.session import Session


def holder(session: Session, approval: str) -> Session | None:
    """Return the session, or its sub-agent at work, in which an approval waits."""
    if approval in session.state.approvals:
        return session
    return session.descendant(lambda child: approval in child.state.approvals)


def is_attended(session: Session) -> bool:
    """Return whether a user can answer questions of the turn: in a job only if the user has continued it."""
    if not session.wiring.attended or (session.above is not None and not is_attended(session.above)):
        return False
    return session.state.origin.is_attended or session.state.origin in session.adopted


async def answer(session: Session, command: Approve) -> DurableEvent | None:
    """Record the user's answer; return None if another client answered first."""
    owner = holder(session, command.approval)
    if owner is None:
        return None
    request = owner.state.approvals[command.approval]
    resolved = ApprovalResolved(
        approval=request.id,
        call_id=request.call_id,
        approved=command.approved,
        scope=command.scope if request.grant else "once",
        by=command.by,
        grant=request.grant if command.scope == "session" and command.approved else "",
        feedback=command.feedback,
    )
    stored = await _settle(owner, resolved)
    if resolved.grant:
        await share(_top(owner), resolved.grant, command.by)
    return stored


async def share(session: Session, grant: str, by: str) -> None:
    """Extend a grant to a session and its sub-agents at work, and approve the calls that wait for the same grant."""
    for other in [item for item in session.state.approvals.values() if item.grant == grant]:
        await _settle(session, _granted(grant, by, other.id, other.call_id))
    if grant not in session.state.grants:
        await session.record(_granted(grant, by), sync=True)
    for child in list(session.children.values()):
        await share(child, grant, by)


async def ask(session: Session, request: ApprovalRequested) -> ApprovalResolved:
    """Ask the user about a call and wait for the answer; unattended, the call is denied."""
    if answered := session.resolved.pop(request.call_id, None):
        return answered  # answered since an earlier process ended while it waited
    pending = next((item for item in session.state.approvals.values() if item.call_id == request.call_id), None)
    if pending is None:
        stored = await session.record(request)
    else:
        stored = pending
        session.emit(pending)  # the current watchers have not seen the first request
    if not is_attended(session):
        denial = ApprovalResolved(approval=stored.id, call_id=request.call_id, approved=False, by="unattended")
        resolved = await session.record(denial)
        assert isinstance(resolved, ApprovalResolved)
        return resolved
    waiter = session.answers[request.call_id] = anyio.Event()
    try:
        await waiter.wait()
        return session.resolved.pop(request.call_id)
    finally:
        session.answers.pop(request.call_id, None)


async def _settle(session: Session, resolved: ApprovalResolved) -> ApprovalResolved:
    stored = await session.record(resolved, sync=True)
    assert isinstance(stored, ApprovalResolved)
    session.resolved[resolved.call_id] = stored
    if waiter := session.answers.get(resolved.call_id):
        waiter.set()
    return stored


def _granted(grant: str, by: str, approval: str = "", call_id: str = "") -> ApprovalResolved:
    return ApprovalResolved(approval=approval, call_id=call_id, approved=True, scope="session", by=by, grant=grant)


def _top(session: Session) -> Session:
    while session.above is not None:
        session = session.above
    return session
