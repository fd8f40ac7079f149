"""Truth: compares the size of a request with the server's count, to notice a prompt that was cut silently.

A server that cuts a prompt answers 200 and counts the rest. The signs:

- A conversation that has only grown has fewer tokens than before, or as many as before. That proves a cut: each
message makes tokens of its own.
- It has far fewer tokens than its bytes make: over the whole (`COARSEST` bytes a token in all languages) or in the
added part, by the conversation's own ratio. That is likely, not certain: a table drawn with blanks has few tokens too.
If the server counts tokens (`probe.count_tokens`), ask it.
- It fills the known served window to the last token: no prompt that was sent does. A count above that window shows that
the figure for it is too low, and no cut.

A cut of a few tokens, with the window unknown, shows only with the next prompt.

Some figures are useless, and only our own estimate is left then (`counted` is 0): zero or a missing one; one that would
mean a cut to less than `PLAUSIBLE`; one that never changes and is no window's end: such a server does not count; one
that no text makes. Tokens from the cache that a server reports, but leaves out of its count, are added.
"""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.structs import replace

from lmagent.core.messages import Message, Text, Thinking, ToolCall, ToolResult
from lmagent.core.model import ModelRequest, Usage

COARSEST = 12.0
"""Most bytes a token over a whole prompt. English prose has 4 to 5, code 3, Hindi in UTF-8 up to 10."""
FAR = 1.7
"""Factor by which the added part may exceed the conversation's own bytes a token."""
SMALLEST = 2000
"""Bytes below which neither the conversation's own ratio nor a whole prompt's is a sign."""
LEAST = 400
"""Bytes below which the added part is no sign."""
JITTER = 32
"""Tokens by which a count may fall: templates write the end of a prompt in different ways."""
USUAL = 4.0
"""Bytes a token before the conversation's own ratio is known."""
PLAUSIBLE = 256
"""Tokens of the smallest plausible window."""
MOST = 100_000
"""Tokens, of tools and pictures, that a prompt may have beyond four for every byte."""

_KEPT = 8
"""Conversations whose counts are watched."""


class PromptCut(Struct, frozen=True):
    """A prompt seems to have been cut to `counted` of at least `expected` tokens; `sure`: that is proven."""

    counted: int
    expected: int
    sure: bool


def ends_window(tokens: int) -> bool:
    """Return whether a count looks like a full window: windows are multiples of 512."""
    return tokens > PLAUSIBLE and (tokens + 2) % 512 <= 2


class TruthMeter:
    """Watches the counts of one conversation.

    Attributes:
        counted: tokens of the last prompt, including cached ones; 0 if the server's figure has no meaning.
    """

    def __init__(self) -> None:
        self.counted = 0
        self._first: tuple[int, int] | None = None
        self._last: tuple[int, int] | None = None
        self._apart = False
        self._varied = False
        self._seen = 0

    def check(self, message_bytes: int, usage: Usage, window: int | None = None) -> PromptCut | None:
        """Return the cut that a reply's count shows; None if it shows none.

        Args:
            message_bytes: bytes of the system text and the messages as sent: without the data of images, which make few
                tokens, and without the tools, which some templates do not render.
            window: the served window, if known.
        """
        counted = self.counted = self._whole(message_bytes, usage)
        if counted <= 0:
            return None
        self._varied = self._varied or self._seen not in (0, counted)
        self._seen = counted
        cut = self._judge(message_bytes, counted, window)
        if cut is None:
            self._first = self._first or (message_bytes, counted)
            if self._last is None or counted != self._last[1]:  # additions without tokens add up
                self._last = (message_bytes, counted)
        elif counted < PLAUSIBLE or (cut.sure and not self._varied and not ends_window(counted)):
            self.counted = 0  # it does not count
            return None
        return cut

    def estimate(self, message_bytes: int) -> int:
        """Return the tokens of a prompt: the last full count, and the part added since by the known ratio."""
        if self._last is None:
            return int(message_bytes / USUAL)
        return max(0, self._last[1] + int((message_bytes - self._last[0]) / self._ratio()))

    def _judge(self, message_bytes: int, counted: int, window: int | None) -> PromptCut | None:
        least = int(message_bytes / COARSEST) if message_bytes >= SMALLEST else 0
        if self._last is not None:
            grown, made = message_bytes - self._last[0], counted - self._last[1]
            if grown >= LEAST:
                dense = min(COARSEST, self._ratio() * FAR) if grown >= SMALLEST / 2 else COARSEST
                least = max(least, self._last[1] + int(grown / dense) - JITTER // 4)
            if (grown >= 0 and made < -JITTER) or (grown >= LEAST and made <= 0):
                return PromptCut(counted, max(self._last[1] + 1, least), sure=True)
        if window is not None and window - 1 <= counted <= window:
            least = max(least, counted + 1)
        return PromptCut(counted, least, sure=False) if counted < least else None

    def _whole(self, message_bytes: int, usage: Usage) -> int:
        """Return the tokens of the whole prompt as the server counted them; 0 if the figure has no meaning."""
        counted, cached = 0 if usage.estimated else usage.prompt_tokens, usage.cached_tokens
        self._apart = self._apart or 0 < counted < cached  # a part cannot be more than the whole
        counted += cached if self._apart else 0
        return counted if counted <= 4 * message_bytes + MOST else 0

    def _ratio(self) -> float:
        if self._first is None or self._last is None:
            return USUAL
        grown, made = self._last[0] - self._first[0], self._last[1] - self._first[1]
        return grown / made if grown >= SMALLEST and made > 0 else USUAL


class ModelWatch(Struct):
    """The counts of one conversation.

    Attributes:
        kind: all that changes the token count of the same messages, for a model or a template.
        suspected: a cut was suspected once, without proof.
    """

    first: Message | None
    kind: tuple[object, ...]
    meter: TruthMeter = field(default_factory=TruthMeter)
    suspected: bool = False

    def size(self, request: ModelRequest) -> int:
        """Return the bytes of system text and messages.

        Of the thoughts, only those after the user's last message count: templates leave out the others.
        """
        size, thoughts = _length(request.system), 0
        for message in request.messages:
            size += _size(message, Text, ToolCall, ToolResult)
            thoughts = 0 if message.role == "user" else thoughts + _size(message, Thinking)
        return size + (thoughts if request.keep_thinking else 0)

    def corrected(self, usage: Usage, size: int) -> Usage:
        """Return the counts with the corrected size of the prompt, or our estimate if the server's figure has no
        meaning."""
        counted = self.meter.counted
        if usage.estimated or counted == usage.prompt_tokens:
            return usage
        if counted > 0:
            return replace(usage, prompt_tokens=counted)
        return replace(usage, prompt_tokens=max(1, self.meter.estimate(size)), estimated=True)


class Watches:
    def __init__(self) -> None:
        self._known: list[ModelWatch] = []

    def of(self, request: ModelRequest) -> ModelWatch:
        first = request.messages[0] if request.messages else None
        kind = (request.system, request.model, request.tool_choice, request.constrain)
        same = (known for known in self._known if known.first is first and known.kind == kind)
        found = next(same, None) or ModelWatch(first, kind)
        self._known = [*(known for known in self._known if known is not found), found][-_KEPT:]
        return found


def _size(message: Message, *kinds: type) -> int:
    texts: list[str] = []
    for part in message.parts:
        if isinstance(part, kinds):
            match part:
                case ToolCall():
                    texts += [part.name, part.arguments]
                case ToolResult():
                    texts.append(part.content)
                case Text() | Thinking():
                    texts.append(part.text)
                case _:
                    pass
    return sum(map(_length, texts))


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
