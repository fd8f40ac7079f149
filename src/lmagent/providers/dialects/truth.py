"""Truth: compares what was sent with what the server counted. A prompt that was cut in silence is noticed here.

A server that cuts a prompt answers 200 and counts what is left. Three signs:

- A conversation that has only grown has fewer tokens than before. That cannot be: it was cut.
- It has far fewer tokens than its bytes make: over the whole (`COARSEST` bytes a token, whatever the language), or in
  what was added since the last full count, by the conversation's own ratio. That is likely, not sure: a table drawn
  with blanks has few tokens too. Where the server counts tokens (`probe.count_tokens`), ask it.
- It fills the served window to the last token, where that is known: no prompt that was sent does.

A cut of a few tokens, with the window unknown, shows only with the next prompt.

A count of zero, or none, tells nothing: then only our own estimate is left (`verified` is False).
"""

from __future__ import annotations

from msgspec import Struct

from lmagent.core.model import Usage

COARSEST = 12.0
"""Bytes for each token, at most, over a whole prompt. English prose has 4 to 5, code 3, Hindi in UTF-8 up to 10."""
SLACK = 0.6
"""What was added may have so much fewer tokens a byte than what came before it."""
SMALLEST = 2000
"""Bytes below which nothing is concluded from a ratio."""
JITTER = 32
"""Tokens by which a count may fall: templates write the end of a prompt in different ways."""
USUAL = 4.0
"""Bytes a token before the conversation's own ratio is known."""


class Cut(Struct, frozen=True):
    """A prompt seems to have been cut.

    Attributes:
        counted: tokens that the server counted.
        expected: tokens that the prompt must have had, at the least.
        sure: it cannot be otherwise.
    """

    counted: int
    expected: int
    sure: bool


class TruthMeter:
    """Watches the counts of one conversation.

    Attributes:
        verified: the last prompt was counted in full, as far as can be told.
    """

    def __init__(self) -> None:
        self.verified = False
        self._first: tuple[int, int] | None = None
        self._last: tuple[int, int] | None = None

    def reset(self) -> None:
        """The conversation was shortened on purpose (a compaction): its count may fall."""
        self._first = self._last = None

    def check(self, message_bytes: int, usage: Usage, window: int | None = None) -> Cut | None:
        """What a reply's count says about the prompt it belongs to.

        Args:
            message_bytes: bytes of the system text and the messages as they were sent: without the data of images,
                which make few tokens, and without the tools, which not every template renders.
            usage: what the server counted.
            window: the window that is served, where that is known.
        """
        counted = 0 if usage.estimated else usage.prompt_tokens
        self.verified = False
        if counted <= 0:
            return None
        if self._last is not None and message_bytes >= self._last[0] and counted < self._last[1] - JITTER:
            return Cut(counted, self._last[1], sure=True)
        least = self._least(message_bytes)
        if window is not None and counted >= window - 1:
            least = max(least, counted + 1)
        if counted < least:
            return Cut(counted, least, sure=False)
        self.verified = True
        self._first = self._first or (message_bytes, counted)
        if self._last is None or self._makes_up_for(message_bytes - self._last[0], counted - self._last[1]):
            self._last = (message_bytes, counted)
        return None

    def _makes_up_for(self, grown: int, made: int) -> bool:
        """Whether the tokens that came on top are enough for the bytes; too little to tell may add up over steps."""
        return grown <= 0 or made >= grown / self._ratio() * SLACK

    def estimate(self, message_bytes: int) -> int:
        """Tokens that a prompt will have: the last full count and what was added since, by the known ratio."""
        if self._last is None:
            return int(message_bytes / USUAL)
        return max(0, self._last[1] + int((message_bytes - self._last[0]) / self._ratio()))

    def _ratio(self) -> float:
        """Bytes a token of what was added so far."""
        if self._first is None or self._last is None:
            return USUAL
        grown, made = self._last[0] - self._first[0], self._last[1] - self._first[1]
        return grown / made if grown >= SMALLEST and made > 0 else USUAL

    def _least(self, message_bytes: int) -> int:
        """Tokens that a prompt of that size should have, at the least."""
        least = message_bytes / COARSEST if message_bytes >= SMALLEST else 0.0
        if self._last is not None and (grown := message_bytes - self._last[0]) >= SMALLEST:
            least = max(least, self._last[1] + grown / self._ratio() * SLACK)
        return int(least)
