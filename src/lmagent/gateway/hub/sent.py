"""Sent: an input under the name that its sender gave it, so that it can be sent again safely."""

from __future__ import annotations

import re

from lmagent.core.events import InputReceived
from lmagent.gateway.http.errors import Refusal
from lmagent.store.jsonl import JsonlStore
from lmagent.store.tally import PAGE

BY = "web"
"""The surface, in the log."""

_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")


def job_of(id: str) -> str:
    """The job under which an input is recorded.

    Raises:
        Refusal: the id cannot be one.
    """
    if not _ID.fullmatch(id):
        raise Refusal(400, "invalid", f"{id[:80]!r} cannot be an id", fix="1 to 64 letters, digits and . _ : -")
    return PAGE + id


def find_sent(store: JsonlStore, session: str, job: str) -> InputReceived | None:
    """The input that a session's log has under a job's id.

    Raises:
        SessionNotFound: there is no such session.
    """
    events = store.read(session)
    return next((event for event in events if isinstance(event, InputReceived) and event.job == job), None)


def not_at_work(child: str) -> Refusal:
    """The refusal of an input for a sub-agent that could not take it."""
    return Refusal(409, "not_at_work", f"no sub-agent {child[:80]} is at work here", fix="leave `to` out")
