"""Exit codes: the result of a run, for scripts."""

from __future__ import annotations

from lmagent.core.events import TurnFinished

DONE, ERROR, LIMIT, BLOCKED, DENIED, INTERRUPTED = 0, 1, 2, 3, 4, 130

_BY_OUTCOME = {
    "done": DONE,
    "blocked": BLOCKED,
    "waiting": BLOCKED,
    "question": BLOCKED,
    "limit": LIMIT,
    "interrupted": INTERRUPTED,
    "error": ERROR,
}


def exit_code(finished: TurnFinished | None) -> int:
    """0 done, 1 error, 2 limit, 3 blocked or waiting for the user, 4 permission denied, 130 interrupted.

    A turn in which a call was denied because no user could be asked, and which did not make up for it, is 4 whatever
    the
    model says about it.
    """
    if finished is None:
        return ERROR
    if finished.ending == "denied":
        return DENIED
    return _BY_OUTCOME[finished.outcome]
