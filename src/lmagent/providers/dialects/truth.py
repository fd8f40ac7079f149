"""Truth: compares the size of a request with the server's count, to notice a prompt that was cut silently.

A server that cuts a prompt answers 200 and counts the rest. Four signs:

- A conversation that has only grown has fewer tokens than before. That proves a cut.
- It has grown, and its count stays the same. That proves it too: each message makes tokens of its own.
- It has far fewer tokens than its bytes make: over the whole or in the added part (`COARSEST` bytes a token in all
languages), or, if more was added, by the conversation's own ratio. That is likely, not certain: a table drawn with
blanks has few tokens too. If the server counts tokens (`probe.count_tokens`), ask it.
- It fills the known served window to the last token: no prompt that was sent does. A count above that window shows that
the figure for it is too low, and no cut.

A cut of a few tokens, with the window unknown, shows only with the next prompt.

Some figures are useless, and only our own estimate is left then (`counted` is 0, `verified` False): zero or a missing
one; one that would mean a cut to less than `PLAUSIBLE`; one that never changes and is no window's end: such a server
does not count; one that no text makes. Tokens from the cache that a server reports, but leaves out of its count, are
added.
"""

from __future__ import annotations

from msgspec import Struct

from lmagent.core.model import Usage

COARSEST = 12.0
"""Most bytes a token over a whole prompt. English prose has 4 to 5, code 3, Hindi in UTF-8 up to 10."""
SLACK = 0.6
"""Least tokens a byte of the added part, as a share of the earlier parts' ratio."""
NEAR = 0.9
"""The same share if the count also equals a full usual window."""
FAR = 2.5
"""Factor by which the added part, if it is half of `SMALLEST`, may exceed the usual bytes a token."""
SMALLEST = 2000
"""Bytes below which neither the conversation's own ratio nor a whole prompt's is a sign."""
LEAST = 400
"""Bytes below which the added part is no sign."""
JITTER = 32
"""Tokens by which a count may fall: templates write the end of a prompt in different ways."""
USUAL = 4.0
"""Bytes a token before the conversation's own ratio is known."""
USUAL_WINDOW = 4096
"""Most windows are multiples of it."""
PLAUSIBLE = 256
"""Tokens of the smallest plausible window."""
TOOLS, PICTURES = 100_000, 20_000
"""Tokens that a whole prompt, and the part added to one, may have beyond one for every four bytes."""
DENSE = 1.5
"""Least bytes a token in usual additions to a conversation."""
MOSTLY = 0.8
"""Share of the last prompt that comes from the cache if the conversation only grew. After a cut, little matches."""
DENSEST = 0.25
"""Least bytes a token in any text, besides tools and pictures."""
ABSURD = 50_000_000
"""Tokens above which a count is absurd."""


class PromptCut(Struct, frozen=True):
    """A prompt seems to have been cut.

    Attributes:
        expected: tokens that the prompt must have had, at least.
        sure: the cut is proven.
    """

    counted: int
    expected: int
    sure: bool


def ends_window(tokens: int, step: int = 512) -> bool:
    """Return whether a count looks like a full window: windows are multiples of 512, the usual ones of 4,096."""
    return tokens > PLAUSIBLE and (tokens + 2) % step <= 2


class TruthMeter:
    """Watches the counts of one conversation.

    Attributes:
        verified: the last prompt was counted in full, as far as visible.
        counted: tokens of the last prompt, including cached ones; 0 if the server's figure has no meaning.
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
        """Note that the conversation was shortened on purpose (a compaction): its count may fall."""
        self._first = self._last = None

    def check(self, message_bytes: int, usage: Usage, window: int | None = None) -> PromptCut | None:
        """Return the cut that a reply's count shows; None if it shows none.

        Args:
            message_bytes: bytes of the system text and the messages as sent: without the data of images, which make few
                tokens, and without the tools, which some templates do not render.
            window: the served window, if known.
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

    def _judge(self, message_bytes: int, counted: int, window: int | None) -> PromptCut | None:
        if self._last is not None:
            grown, made = message_bytes - self._last[0], counted - self._last[1]
            if grown >= 0 and made < -JITTER:
                return PromptCut(counted, self._last[1], sure=True)
            if grown >= LEAST and made <= 0:
                return PromptCut(counted, max(self._last[1] + 1, self._least(message_bytes)), sure=True)
        least = self._least(message_bytes)
        if window is not None and window - 1 <= counted <= window:
            least = max(least, counted + 1)
        elif window is None and self._last is not None and ends_window(counted, USUAL_WINDOW):
            grown = message_bytes - self._last[0]
            if grown >= LEAST and counted < self._last[1] + grown / self._ratio() * NEAR:
                least = max(least, counted + 1)
        return PromptCut(counted, least, sure=False) if counted < least else None

    def _whole(self, message_bytes: int, usage: Usage) -> int:
        """Return the tokens of the whole prompt as the server counted them; 0 if the figure has no meaning."""
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
            return 0  # a single time; a figure that stays so high is valid
        return counted

    def _is_missing(self, message_bytes: int, counted: int, cached: int) -> bool:
        """Return whether a count lacks the cached tokens: they exceed it, or are as many as are missing."""
        if self._last is None:
            return cached > counted
        grown, made = message_bytes - self._last[0], counted + cached - self._last[1]
        if grown < 0 or counted >= self._last[1] - JITTER or cached < MOSTLY * self._last[1]:
            return False
        return -JITTER <= made <= grown / DENSE + 2 * JITTER

    def _makes_up_for(self, grown: int, made: int) -> bool:
        """Return whether the added tokens are enough for the bytes; small deficits may add up over steps."""
        return grown <= 0 or made >= grown / self._ratio() * SLACK

    def estimate(self, message_bytes: int) -> int:
        """Return the tokens that a prompt will have: the last full count, and the part added since by the known
        ratio."""
        if self._last is None:
            return int(message_bytes / USUAL)
        return max(0, self._last[1] + int((message_bytes - self._last[0]) / self._ratio()))

    def _ratio(self) -> float:
        if self._first is None or self._last is None:
            return USUAL
        grown, made = self._last[0] - self._first[0], self._last[1] - self._first[1]
        return grown / made if grown >= SMALLEST and made > 0 else USUAL

    def _least(self, message_bytes: int) -> int:
        """Return the least tokens that a prompt of that size should have."""
        least = message_bytes / COARSEST if message_bytes >= SMALLEST else 0.0
        if self._last is not None and (grown := message_bytes - self._last[0]) >= LEAST:
            far = min(COARSEST, self._ratio() * FAR) if grown >= SMALLEST / 2 else COARSEST
            least = max(least, self._last[1] + grown / far - (JITTER if grown < SMALLEST / 2 else JITTER / 4))
            if grown >= SMALLEST:
                least = max(least, self._last[1] + grown / self._ratio() * SLACK)
        return int(least)
