"""Tally: the cost of a turn, in one line at its end."""

from __future__ import annotations

from lmagent.core import events as ev
from lmagent.core.model import Usage


class TurnTally:
    def __init__(self) -> None:
        self._forget()

    def add(self, event: ev.Event) -> None:
        match event:
            case ev.TurnStarted():
                self._forget()
                self._began = event.ts
            case ev.StepFinished(usage=usage) | ev.CompactionDone(usage=Usage() as usage):
                self._prompt += usage.prompt_tokens
                self._cached += usage.cached_tokens
                self._answer += usage.completion_tokens
            case _:
                pass

    def line(self, finished: ev.TurnFinished) -> str:
        """Return time, tokens of the prompts with the cached part, tokens of the answers; empty if none is known.

        The turn is forgotten then, so a turn that is only shown again has no line.
        """
        parts = list[str]()
        if self._began and finished.ts:
            parts.append(_duration(max(0.0, finished.ts - self._began)))
        if self._prompt:
            share = f" ({self._cached / self._prompt:.0%} cached)" if self._cached else ""
            parts.append(f"{self._prompt:,} tokens in{share}")
        if self._answer:
            parts.append(f"{self._answer:,} out")
        self._forget()
        return " · ".join(parts)

    def _forget(self) -> None:
        self._began = 0.0
        self._prompt = self._cached = self._answer = 0


def _duration(seconds: float) -> str:
    if seconds < 9.5:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"
