"""Window: how much the model server takes, whether the next prompt fits, and how large a reply's results may be."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from lmagent.core.agent import Window
from lmagent.core.errors import ContextOverflow
from lmagent.engine.session import Session
from lmagent.engine.state import SessionState

SMALLEST_WINDOW = 256
"""A smaller figure is taken for an error of the server: such a window is useless."""

NEAR = 0.75
"""Share of the stated window from which a refusal without a figure is attributed to the prompt's size."""

SURELY = 1.25
"""A prompt that is estimated at more than this multiple of the window is not sent; below that the server decides."""


RESULTS_SHARE = 0.4
"""Share of the room between the fixed block and the trigger that all results of one reply may take together."""

LARGEST = 50_000
"""Cap on one result in bytes, however large the window."""

SMALLEST_TOKENS, SMALLEST = 100, 500
"""Tokens and bytes that every result gets, whatever the others took: less would tell nothing."""


async def compact_if_needed(session: Session) -> None:
    """Compact at the user's request, or when the next prompt would pass the trigger."""
    await _ask_window(session)
    asked = session.wants_compaction is not None
    if asked or (session.state.estimate_tokens() > session.window.trigger and not _just_compacted(session.state)):
        from lmagent.engine.context.compaction import compact  # few sessions fill their window

        await compact(session, "command" if asked else "window")


def refuse_hopeless(session: Session) -> None:
    """Refuse a prompt that surely does not fit: the server would read it for minutes, or cut it.

    Raises ContextOverflow: the window that the server states is too small for it.
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
    """Take over the served window: it changes with the model, and may change when a model is loaded again."""
    source = session.wiring.served_window
    if source is None:
        return
    window = await source(session.state.model or session.agent.model, session.state.estimate_tokens())
    if window and window != session.stated_window:
        session.stated_window = window
        learn_window(session, window)


def learn_window(session: Session, window: int | None) -> None:
    """Take the window from the server's refusal, or make it smaller than the refused prompt."""
    refused, stated = session.state.estimate_tokens(), session.stated_window
    window = window if window and window >= SMALLEST_WINDOW else None
    if window is None and stated and refused < stated * NEAR:
        return  # by the server's own figure it would fit: the refusal has another cause
    learned = window or max(SMALLEST_WINDOW, min(session.window.tokens, refused) * 3 // 4)
    if learned < session.window.tokens or window is not None:
        reserve = min(session.window.reserve, max(256, learned // 8))
        session.window = replace(session.window, tokens=learned, reserve=reserve)


def _just_compacted(state: SessionState) -> bool:
    """Return whether a cut came last, so that another one would gain nothing."""
    return bool(state.compactions) and state.sealed == 0


class Room(Struct):
    """The bytes that are left for the results of a reply: in all, and the most and the least for each result.

    `waiting` is the number of results still to come.
    """

    left: int
    each: int
    least: int
    waiting: int

    def share(self) -> int:
        """Return the bytes that the next result may have, whatever the others need."""
        return max(self.least, min(self.each, self.left // max(1, self.waiting)))

    def take(self, need: int) -> int:
        """Reserve `need` bytes for the next result, its share at most."""
        given = min(need, self.share())
        self.left -= given
        self.waiting -= 1
        return given


def largest_prompt(window: Window) -> int:
    """Return the tokens of a prompt that leaves a reply half of its reserve: results fill no more than that."""
    return window.tokens - min(window.reserve, window.tokens // 8) // 2


def room_for(session: Session, results: int) -> Room:
    """Return the room for so many results: they arrive together, and must leave room for the next steps."""
    state, window = session.state, session.window
    share = int((window.trigger - state.tokens(state.fixed_bytes)) * RESULTS_SHARE)
    free = largest_prompt(window) - state.estimate_tokens()
    left = max(0, min(share, free))
    each = min(LARGEST, state.bytes(window.result_tokens))
    least = max(SMALLEST, state.bytes(SMALLEST_TOKENS))
    return Room(state.bytes(left), each, min(least, each), results)
