"""Redaction at the event boundary: keep known secrets out of the log, artifacts, events and the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from lmagent.core.decoding import convert
from lmagent.core.events import DurableEvent, Event, SessionCreated

MASK = "[redacted]"
MIN_LENGTH = 8
"""Shorter values are placeholders ("x") and would mask ordinary words."""

PLACEHOLDERS = frozenset({"lm-studio", "not-needed", "no-key-required", "EMPTY"})
LONGEST_WORD = 20
"""Alphabetic values up to this length are words ("assistant"), typed because a server requires some key."""

E = TypeVar("E", bound=Event)


class Redactor:
    """Replaces known secrets, except placeholders that local servers accept as a key.

    `secrets` may change later: a login is renewed while a session is open.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = secrets
        self._known: tuple[str, ...] = ()
        self._found: list[str] = []
        self._held: dict[str, str] = {}

    @property
    def _needles(self) -> list[str]:
        if (now := tuple(self._secrets)) != self._known:
            self._known, self._found = now, _needles_of(now)
        return self._found

    def text(self, text: str) -> str:
        for needle in self._needles:
            if needle in text:
                text = text.replace(needle, MASK)
        return text

    def file(self, path: Path) -> None:
        """Mask the secrets in a file, in place: the mask is as long as the secret.

        Raises OSError: it cannot be read or written.
        """
        if not self._needles:
            return
        import mmap

        needles = [needle.encode("utf-8", "surrogatepass") for needle in self._needles]
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
            for needle in needles:
                mask = (MASK.encode() + b"*" * len(needle))[: len(needle)]
                at = content.find(needle)
                while at >= 0:
                    content[at : at + len(needle)] = mask
                    at = content.find(needle, at + len(needle))

    def event(self, event: DurableEvent) -> DurableEvent:
        """Return the event without secrets. The fixed block of a session is ours and holds none."""
        if not self._needles or isinstance(event, SessionCreated):
            return event
        plain = msgspec.to_builtins(event)
        clean = self.value(plain)
        return event if clean == plain else convert(clean, type(event))

    def stream(self, name: str, piece: str) -> str:
        """Return a piece of the live stream `name` without secrets.

        A possible beginning of a secret is held back for the next piece.
        """
        if not self._needles:
            return piece
        text = self.text(self._held.pop(name, "") + piece)
        hold = max((_overlap(text, needle) for needle in self._needles), default=0)
        if hold:
            self._held[name] = text[-hold:]
        return text[: len(text) - hold]

    def rest(self, name: str) -> str:
        """Return the text held back of a stream that has ended: no text follows it, so it is no secret."""
        return self._held.pop(name, "")

    def value(self, value: Any) -> Any:
        """Return a value of JSON without secrets; the keys of objects stay."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]  # type: ignore[reportUnknownVariableType]
        if isinstance(value, dict):
            return {key: self.value(item) for key, item in value.items()}  # type: ignore[reportUnknownVariableType]
        return value


def _needles_of(secrets: Sequence[str]) -> list[str]:
    real = {value for value in secrets if len(value) >= MIN_LENGTH and value not in PLACEHOLDERS}
    words = {value for value in real if value.isalpha() and len(value) <= LONGEST_WORD}
    # Also in their JSON form, for a call's arguments. The longest first, since one may contain another.
    escaped = {msgspec.json.encode(value)[1:-1].decode() for value in real - words}
    return sorted((real - words) | escaped, key=len, reverse=True)


def _overlap(text: str, needle: str) -> int:
    """Return how many characters at the end of the text are the beginning of the needle."""
    at = text.find(needle[0], max(0, len(text) - len(needle) + 1))
    while at >= 0 and not needle.startswith(text[at:]):
        at = text.find(needle[0], at + 1)
    return len(text) - at if at >= 0 else 0
