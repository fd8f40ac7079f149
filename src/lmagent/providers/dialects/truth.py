"""Truth: compares the size of a request with the server's count. A prompt that was cut in silence is noticed here.

A server that cuts a prompt answers 200 and counts the rest. Four signs:

- A conversation that has only grown has fewer tokens than before. That cannot be: it was cut.
- It has grown, and its count stays the same. That cannot be either: each message makes tokens of its own.
- It has far fewer tokens than its bytes make: over the whole or in the added part (`COARSEST` bytes a token in all
  languages), or, where more was added, by the conversation's own ratio. That is likely, not sure: a table drawn
  with blanks has few tokens too. Where the server counts tokens (`probe.count_tokens`), ask it.
- It fills the served window to the last token, where that is known: no prompt that was sent does. A count above that
  window says that the figure for it is too low, and nothing of a cut.

A cut of a few tokens, with the window unknown, shows only with the next prompt.

Some figures tell nothing, and only our own estimate is left then (`counted` is 0, `verified` False): zero, or none; one
that would be a cut to less than `PLAUSIBLE`; one that never changes and is no window's end: such a server does not
count; one that no text makes. Tokens from the cache that a server leaves out of its count, but reports, are added.
"""

from __future__ import annotations

from msgspec import Struct

from lmagent.core.model import Usage

COARSEST = 12.0
"""Bytes for each token, at most, over a whole prompt. English prose has 4 to 5, code 3, Hindi in UTF-8 up to 10."""
SLACK = 0.6
"""The added part may have so much fewer tokens a byte than what came before it."""
NEAR = 0.9
"""The same where the count besides is that of a usual window which is full."""
FAR = 2.5
"""The added part, if it is half of `SMALLEST`, may have so many times the usual bytes a token."""
SMALLEST = 2000
"""Bytes below which nothing is concluded from the conversation's own ratio, nor from a whole prompt's."""
LEAST = 400
"""Bytes below which nothing is concluded from the added part."""
JITTER = 32
"""Tokens by which a count may fall: templates write the end of a prompt in different ways."""
USUAL = 4.0
"""Bytes a token before the conversation's own ratio is known."""
USUAL_WINDOW = 4096
"""Most windows are multiples of it."""
PLAUSIBLE = 256
"""Tokens below which no server's window is."""
TOOLS, PICTURES = 100_000, 20_000
"""Tokens that a whole prompt, and the part added to one, may have beyond four a byte."""
DENSE = 1.5
"""Bytes for each token, at least, in usual additions to a conversation."""
MOSTLY = 0.8
"""Share of the last prompt that comes from the cache where the conversation only grew. After a cut, little fits."""
DENSEST = 0.25
"""Bytes for each token, at least, of anything, beside tools and pictures."""
ABSURD = 50_000_000
"""Tokens that no model reads."""


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


def ends_window(tokens: int, step: int = 512) -> bool:
    """Whether a count looks like a window that is full: windows are multiples of 512, the usual ones of 4,096."""
    return tokens > PLAUSIBLE and (tokens + 2) % step <= 2


class TruthMeter:
    """Watches the counts of one conversation.

    Attributes:
        verified: the last prompt was counted in full, as far as can be seen.
        counted: tokens of the last prompt, those from the cache included; 0 where the server's figure has no meaning.
    """

    def __init__(self) -> None:
        self.verified = False
        self.counted = 0
        self._first: tuple[int, int] | None = None
        self._last: tuple[int, int] | None = None
        self._apart = False
        self._varied = False
        self._seen = 0
        self._doubted = 0

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
        counted = self.counted = self._whole(message_bytes, usage)
        self.verified = False
        if counted <= 0:
            return None
        self._varied = self._varied or self._seen not in (0, counted)
        self._seen = counted
        cut = self._judge(message_bytes, counted, window)
        if cut is not None and (counted < PLAUSIBLE or (cut.sure and not self._varied and not ends_window(counted))):
            self.counted = 0  # it does not count
            return None
        if cut is not None:
            return cut
        self.verified = True
        self._first = self._first or (message_bytes, counted)
        if self._last is None or self._makes_up_for(message_bytes - self._last[0], counted - self._last[1]):
            self._last = (message_bytes, counted)
        return None

    def _judge(self, message_bytes: int, counted: int, window: int | None) -> Cut | None:
        if self._last is not None:
            grown, made = message_bytes - self._last[0], counted - self._last[1]
            if grown >= 0 and made < -JITTER:
                return Cut(counted, self._last[1], sure=True)
            if grown >= LEAST and made <= 0:
                return Cut(counted, max(self._last[1] + 1, self._least(message_bytes)), sure=True)
        least = self._least(message_bytes)
        if window is not None and window - 1 <= counted <= window:
            least = max(least, counted + 1)
        elif window is None and self._last is not None and ends_window(counted, USUAL_WINDOW):
            grown = message_bytes - self._last[0]
            if grown >= LEAST and counted < self._last[1] + grown / self._ratio() * NEAR:
                least = max(least, counted + 1)
        return Cut(counted, least, sure=False) if counted < least else None

    def _whole(self, message_bytes: int, usage: Usage) -> int:
        """Tokens of the whole prompt as the server counted them; 0 where the figure has no meaning."""
        counted, cached = 0 if usage.estimated else usage.prompt_tokens, usage.cached_tokens
        if counted > 0 and cached > 0 and not self._apart:
            # A part cannot be more than the whole; nor does a count fall by exactly the cached tokens.
            self._apart = self._is_missing(message_bytes, counted, cached)
        if self._apart:
            counted += cached
        most = message_bytes / DENSEST + TOOLS
        if self._last is not None and (grown := message_bytes - self._last[0]) >= 0:
            most = min(most, self._last[1] + grown / DENSEST + PICTURES)
        doubted, self._doubted = self._doubted, counted if counted > most else 0
        if counted > ABSURD or (counted > most and not 0 < doubted <= counted):
            return 0  # once; a figure that stays so high is one
        return counted

    def _is_missing(self, message_bytes: int, counted: int, cached: int) -> bool:
        """Whether the cached tokens are not in a count: it is more than the whole, or as much as is missing."""
        if self._last is None:
            return cached > counted
        grown, made = message_bytes - self._last[0], counted + cached - self._last[1]
        if grown < 0 or counted >= self._last[1] - JITTER or cached < MOSTLY * self._last[1]:
            return False
        return -JITTER <= made <= grown / DENSE + 2 * JITTER

    def _makes_up_for(self, grown: int, made: int) -> bool:
        """Whether the tokens that came on top are enough for the bytes; too little to tell may add up over steps."""
        return grown <= 0 or made >= grown / self._ratio() * SLACK

    def estimate(self, message_bytes: int) -> int:
        """Tokens that a prompt will have: the last full count and the part added since, by the known ratio."""
        if self._last is None:
            return int(message_bytes / USUAL)
        return max(0, self._last[1] + int((message_bytes - self._last[0]) / self._ratio()))

    def _ratio(self) -> float:
        """Bytes a token in the parts added so far."""
        if self._first is None or self._last is None:
            return USUAL
        grown, made = self._last[0] - self._first[0], self._last[1] - self._first[1]
        return grown / made if grown >= SMALLEST and made > 0 else USUAL

    def _least(self, message_bytes: int) -> int:
        """Tokens that a prompt of that size should have, at the least."""
        least = message_bytes / COARSEST if message_bytes >= SMALLEST else 0.0
        if self._last is not None and (grown := message_bytes - self._last[0]) >= LEAST:
            far = min(COARSEST, self._ratio() * FAR) if grown >= SMALLEST / 2 else COARSEST
            least = max(least, self._last[1] + grown / far - (JITTER if grown < SMALLEST / 2 else JITTER / 4))
            if grown >= SMALLEST:
                least = max(least, self._last[1] + grown / self._ratio() * SLACK)
        return int(least)
