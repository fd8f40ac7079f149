"""Names of sessions, as a user gives them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lmagent.core.errors import SessionNotFound

CANDIDATES = 5
"""Sessions that an error names when a name fits none or several."""

NEWEST = ("last", "latest")
"""Names for the session that was written last."""


def resolve_name(prefix: str, known: Sequence[str], latest: Callable[[], str | None], place: object) -> str:
    """Return the session that `prefix` names: the unique beginning of an id, or "last".

    Args:
        known: the ids of all sessions, in order.
        place: where they are, for the message.

    Raises SessionNotFound: it names none or several; the message lists candidates.
    """
    if prefix.lower() in NEWEST and (newest := latest()):
        return newest
    fitting = [session for session in known if prefix and session.startswith(prefix)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise SessionNotFound(
            f"{len(fitting)} sessions begin with {prefix}: {_some(fitting)}", fix="give more of the id"
        )
    which = f"; the newest are {_some(known)}" if known else f": {place} has no sessions"
    raise SessionNotFound(f"there is no session {prefix}{which}", terminal="lmagent sessions list")


def _some(sessions: Sequence[str]) -> str:
    newest = ", ".join(reversed(sessions[-CANDIDATES:]))
    return f"{newest} …" if len(sessions) > CANDIDATES else newest
