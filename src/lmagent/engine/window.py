"""Window: how much the model server really takes, whether the next prompt fits, and what a reply's results may take.

The cut itself is compaction's.
"""

from __future__ import annotations

from msgspec.structs import replace

from lmagent.core.agent import Window
from lmagent.core.errors import ContextOverflow
from lmagent.engine.session import Session
from lmagent.engine.state import SessionState

SMALLEST_WINDOW = 256
"""Tokens below which a figure is no window: nobody serves one, and nothing could be done in it."""

NEAR = 0.75
"""Share of the stated window from which a refusal without a figure is believed to be about the prompt's size."""

SURELY = 1.25
"""How much too large a prompt must be by estimate to be refused unsent; the server judges what is closer."""


RESULTS_SHARE = 0.4
"""Share of the room between the fixed block and the trigger that all results of one reply may take together."""

LARGEST = 50_000
"""Bytes of one result at most, however large the window."""

SMALLEST_TOKENS, SMALLEST = 100, 500
"""Tokens and bytes that every result may have, whatever the others took: an excerpt of less tells nothing."""


async def compact_if_needed(session: Session) -> None:
    """Compact when a person asked for it, or when the next prompt would pass the trigger."""
    await _ask_window(session)
    asked = session.wants_compaction is not None
    if asked or (session.state.estimate_tokens() > session.window.trigger and not _just_compacted(session.state)):
        from lmagent.engine.compaction import compact  # few sessions fill their window

        await compact(session, "command" if asked else "window")


def refuse_hopeless(session: Session) -> None:
    """Refuse a prompt that surely does not fit, instead of having it read for minutes, or cut.

    Raises:
        ContextOverflow: the window that the server states is too small for it.
    """
    window, tokens = session.stated_window, session.state.estimate_tokens()
    if window and tokens > window * SURELY:
        fixed = session.state.tokens(session.state.fixed_bytes)
        raise ContextOverflow(
            f"the prompt has about {tokens:,} tokens ({fixed:,} of them instructions and tools) and the model server's "
            f"window {window:,}: it was not sent",
            window=window,
            fix="load the model with a larger context, or give it less at once",
        )


async def _ask_window(session: Session) -> None:
    """Take over what the server serves now: another model has another window, and one that was loaded anew may."""
    source = session.wiring.served_window
    if source is None:
        return
    window = await source(session.state.model or session.agent.model, session.state.estimate_tokens())
    if window and window != session.stated_window:
        session.stated_window = window
        learn_window(session, window)


def learn_window(session: Session, window: int | None) -> None:
    """Take the window from what the server said when it refused, or make it smaller than what was refused."""
    refused, stated = session.state.estimate_tokens(), session.stated_window
    window = window if window and window >= SMALLEST_WINDOW else None
    if window is None and stated and refused < stated * NEAR:
        return  # the server states that it would fit: something else was the matter
    learned = window or max(SMALLEST_WINDOW, min(session.window.tokens, refused) * 3 // 4)
    if learned < session.window.tokens or window is not None:
        reserve = min(session.window.reserve, max(256, learned // 8))
        session.window = replace(session.window, tokens=learned, reserve=reserve)


def _just_compacted(state: SessionState) -> bool:
    """Right after a cut nothing can be gained by another one."""
    return bool(state.compactions) and state.sealed == 0


class Room:
    """The bytes that are left for the results of a reply.

    Args:
        left: bytes for all of them.
        each: bytes of one at most.
        least: bytes that one may have in any case.
        waiting: how many results there will be.
    """

    def __init__(self, left: int, each: int, least: int, waiting: int) -> None:
        self._left, self._each, self._least, self._waiting = left, each, least, waiting

    def share(self) -> int:
        """Bytes that the next result may have, whatever the others need."""
        return max(self._least, min(self._each, self._left // max(1, self._waiting)))

    def take(self, need: int) -> int:
        """Give the next result what it needs, its share at most."""
        given = min(need, self.share())
        self._left -= given
        self._waiting -= 1
        return given


def largest_prompt(window: Window) -> int:
    """Tokens of a prompt that leaves a reply half of its reserve: more is never filled by results."""
    return window.tokens - min(window.reserve, window.tokens // 8) // 2


def room_for(session: Session, results: int) -> Room:
    """The room for so many results: they arrive together, and must leave some for going on."""
    state, window = session.state, session.window
    share = int((window.trigger - state.tokens(state.fixed_bytes)) * RESULTS_SHARE)
    free = largest_prompt(window) - state.estimate_tokens()
    left = max(0, min(share, free))
    each = min(LARGEST, state.bytes(window.result_tokens))
    least = max(SMALLEST, state.bytes(SMALLEST_TOKENS))
    return Room(state.bytes(left), each, min(least, each), results)
