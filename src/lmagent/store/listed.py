"""Listed: a session in a list, and its place there."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class SessionRow(Struct, frozen=True):
    """A session in a list.

    Attributes:
        title: the first words of its first input, or the user's title for it.
        created: Unix seconds of its first event; of a copy, of the moment in which it was made.
        updated: Unix seconds of its last one.
        model: the model that answered last.
        status: running, interrupted, idle, or how its last turn ended (done, blocked, question …).
        turns: turns that ended.
        steps: model calls.
        prompt_tokens: tokens of all prompts.
        completion_tokens: tokens of all replies.
        cached_tokens: prompt tokens that came from the server's cache.
        parent: the session that it was forked from, or works for as a sub-agent; empty for none.
        branch_turn: of a fork, the first turn that it does not share with its parent; else 0.
        child: it is a sub-agent's.
        waiting_for: approval, plan, question or time; empty if it waits for nothing.
        pinned: it is listed before all others.
        archived: it is listed only among archived sessions.
    """

    id: str
    title: str
    created: float
    updated: float
    model: str
    status: str
    turns: int
    steps: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    parent: str
    child: bool = False
    waiting_for: str = ""
    pinned: bool = False
    archived: bool = False
    branch_turn: int = 0


Shelf = Literal["all", "open", "archived"]
"""Which sessions to list."""

ListPlace = tuple[bool, float, str]
"""The place of a session in the list: whether it is pinned, when it was written last, its id."""
