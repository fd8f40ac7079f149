"""Pages: those of a session, kept for a while, so that reading on does not fetch again. The same call does."""

from __future__ import annotations

from msgspec import Struct, field

from lmagent.core.ports import Clock
from lmagent.web.links import WebLink

AGE = 900.0
"""Seconds for which a page is kept."""

ROOM = 16 << 20
"""Bytes of all pages that are kept in this process."""


class Fetched(Struct, frozen=True):
    """A page as it came: its last address, its bytes and their kind; `cut` if more would have come.

    `shown` are the calls (selector and characters) that have read it.
    """

    link: WebLink
    content_type: str
    body: bytes
    cut: bool
    at: float
    shown: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])


class Pages:
    """Keeps pages by session and first address; the oldest make room."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[tuple[str, str], Fetched] = {}

    def get(self, session: str, link: WebLink, call: tuple[str, int]) -> Fetched | None:
        """Return the kept page, unless it is old or the same call has read it: that wants it anew."""
        found = self._kept.get((session, str(link)))
        if found is None or call in found.shown or self._clock.monotonic() - found.at >= AGE:
            return None
        return found

    def keep(self, session: str, link: WebLink, page: Fetched) -> None:
        self._kept.pop((session, str(link)), None)
        self._kept[session, str(link)] = page
        room = ROOM
        for key, kept in reversed(list(self._kept.items())):
            room -= len(kept.body)
            if room < 0:
                del self._kept[key]

    def forget(self, session: str) -> None:
        for key in [key for key in self._kept if key[0] == session]:
            del self._kept[key]
