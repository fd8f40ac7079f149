"""Pace: the model's speed of reading and writing in this session, and the reason for a slow call.

A part of the view's fold.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from lmagent.core.events import StepFinished

ENOUGH = 200
"""Tokens read in a call above which its speed is meaningful: below, the server's own overhead counts more."""

NEWS = 0.5
"""Weight of the newest call in the speed of reading."""

LOST = 2000
"""Tokens read again above which the user gets a notice."""


class Pace(Struct, frozen=True):
    """The measured speed.

    Attributes:
        read_per_s: prompt tokens a second; 0 before it is known.
        write_per_s: reply tokens a second of the last call; 0 before it is known.
        prompt: tokens of the last prompt, which the server may still have in its cache.
        fresh: tokens that the running call adds to it, by our count.
        reread: tokens of the last call's prompt that had been read before and were read again.
        reread_total: the same for all calls.
        reports_cache: the server reports how much it took from its cache.
    """

    read_per_s: float = 0.0
    write_per_s: float = 0.0
    prompt: int = 0
    fresh: int = 0
    reread: int = 0
    reread_total: int = 0
    reports_cache: bool = False

    @property
    def reading_s(self) -> float:
        """Estimate the seconds in which the running call's prompt is read; 0 if unknown."""
        return self.fresh / self.read_per_s if self.read_per_s else 0.0

    def started(self, prompt_tokens: int) -> Pace:
        """A call has been sent."""
        return replace(self, fresh=max(0, prompt_tokens - self.prompt))

    def finished(self, step: StepFinished) -> Pace:
        """A call has ended."""
        usage = step.usage
        reports = self.reports_cache or usage.cached_tokens > 0
        read = usage.prompt_tokens - usage.cached_tokens if reports else max(0, usage.prompt_tokens - self.prompt)
        speed = self.read_per_s
        if read >= ENOUGH and step.first_token_s >= 0.05:
            sample = read / step.first_token_s
            speed = sample * NEWS + speed * (1 - NEWS) if speed else sample
        writing = step.total_s - step.first_token_s
        again = max(0, min(self.prompt, usage.prompt_tokens) - usage.cached_tokens) if reports else 0
        return Pace(
            read_per_s=speed,
            write_per_s=round(usage.completion_tokens / writing, 1) if writing > 0.05 else self.write_per_s,
            prompt=usage.prompt_tokens,
            reread=again,
            reread_total=self.reread_total + again,
            reports_cache=reports,
        )

    def compacted(self) -> Pace:
        """Note that the conversation was compacted: the server's cache is useless now, and that counts as no loss."""
        return replace(self, prompt=0)

    def why_slow(self) -> str:
        """Return why the last call was slow, if the user can do something about it."""
        if self.reread >= LOST:
            return f"{self.reread:,} tokens were read again: the server had lost its cache"
        return ""
