"""Text flow: the text of a reply as it grows, cut where one of the stop texts begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class Cutter:
    """Lets text through up to the first stop text. What may be the beginning of one is held back.

    Args:
        stops: the stop texts; empty ones are ignored.

    Attributes:
        stopped: one of them has come; nothing is let through any more.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.stopped = False

    def feed(self, text: str) -> str:
        """The text that can be shown now."""
        if self.stopped:
            return ""
        self._held += text
        places = [place for stop in self._stops if (place := self._held.find(stop)) >= 0]
        if places:
            self.stopped = True
            shown, self._held = self._held[: min(places)], ""
            return shown
        keep = self._beginning()
        shown, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return shown

    def rest(self) -> str:
        """What was held back, at the end."""
        shown, self._held = self._held, ""
        return shown

    def _beginning(self) -> int:
        """Characters at the end that may be the beginning of a stop text."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for length in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-length:]) for stop in self._stops):
                return length
        return 0


class Detokenizer:
    """Turns tokens into text piece by piece, in time that does not grow with the text.

    A token may be a part of a character, and how it is written may depend on the one before it: so each piece is the
    difference between what a short window of tokens says with and without its newest ones.

    Args:
        decode: text of tokens.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._tokens: list[int] = []
        self._shown = 0

    def feed(self, token: int) -> str:
        """The text that this token completes."""
        self._tokens.append(token)
        before = self._decode(self._tokens[: self._shown])
        text = self._decode(self._tokens)
        if text.endswith("\ufffd") or len(text) <= len(before):
            return ""
        self._tokens = self._tokens[self._shown :]
        self._shown = len(self._tokens)
        return text[len(before) :]

    def rest(self) -> str:
        """What no later token completed."""
        return self._decode(self._tokens)[len(self._decode(self._tokens[: self._shown])) :]
