"""Views: the display of a session, folded from its log and cached, so that the next look folds only new events."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

import anyio.to_thread
import msgspec

from lmagent.core import events as ev
from lmagent.core.view import Block, View, reduce
from lmagent.store.follow import LogTail
from lmagent.store.log import EVENTS

KEPT = 8
"""Sessions whose view is cached."""


class Folded:
    """The view of one session up to `seq`, the last event folded in.

    Blocks of ended turns are kept apart, so that the cost of folding an event does not grow with the session.
    """

    def __init__(self, log: Path) -> None:
        self.seq = 0
        self._tail = LogTail(log)
        self._view = View()
        self._over: list[Block] = []
        self._lock = threading.Lock()

    def look(self) -> tuple[int, View, tuple[Block, ...]]:
        """Return the last `seq` folded in, the view without its blocks, and all its blocks."""
        with self._lock:
            while events := self._tail.read():
                for event in events:
                    self._take(event)
            return self.seq, msgspec.structs.replace(self._view, blocks=()), (*self._over, *self._view.blocks)

    def _take(self, event: ev.DurableEvent) -> None:
        self.seq = event.seq
        if isinstance(event, ev.SessionCreated) and event.replaces:
            self._over.clear()
        self._view = reduce(self._view, event)
        if isinstance(event, ev.TurnFinished):
            self._over += self._view.blocks
            self._view = msgspec.structs.replace(self._view, blocks=())


class Views:
    """The views of the most recently viewed sessions."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._kept: OrderedDict[str, Folded] = OrderedDict()

    async def look(self, session: str) -> tuple[int, View, tuple[Block, ...]]:
        """See `Folded.look`; the session must exist."""
        folded = self._kept.setdefault(session, Folded(self._root / session / EVENTS))
        self._kept.move_to_end(session)
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return await anyio.to_thread.run_sync(folded.look)

    def forget(self, session: str) -> None:
        """Drop the view: another session may have this id from now on."""
        self._kept.pop(session, None)
