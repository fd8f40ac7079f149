"""Loop guard: notices a model that goes round in circles.

It looks at (tool, arguments, result), never at the tool's name alone: eleven reads of eleven files are work.
Arguments are compared after folding case, blanks and digits' padding away, so near-duplicates count; a call whose
result is new is progress.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal

from msgspec import Struct, field

from lmagent.core.agent import Limits
from lmagent.core.messages import ToolCall


class Alarm(Struct, frozen=True):
    """What the guard wants done: `hint` the model, `block` the call, `stop` the turn."""

    action: Literal["hint", "block", "stop"]
    cause: str
    text: str


class LoopGuard(Struct):
    """The memory of one turn."""

    limits: Limits
    seen: Counter[str] = field(default_factory=Counter[str])
    attempts: Counter[str] = field(default_factory=Counter[str])
    results: set[str] = field(default_factory=set[str])
    errors: int = 0
    empties: int = 0
    stale_steps: int = 0
    fresh: bool = False

    def before(self, call: ToolCall) -> Alarm | None:
        """Ask before a call runs."""
        key = _call_key(call)
        repeats = self.attempts[key]
        if repeats >= self.limits.repeats * 3:
            return Alarm("stop", "loop", f"{call.name} was asked for {repeats} times with the same result")
        if repeats >= self.limits.repeats * 2:
            self.attempts[key] += 1
            return Alarm(
                "block",
                "loop",
                f"Withheld: {call.name} with these arguments has given the same result {repeats} times. "
                "It will not change. Do something else, or give your final answer.",
            )
        return None

    def after(self, call: ToolCall, status: str, content: str) -> Alarm | None:
        """Tell what came of a call."""
        key, digest = _call_key(call), _digest(content)
        pair = f"{key}:{digest}"
        if self.seen[pair] == 0 and self.seen.total():
            # Another result for the same call means that the world has changed: start counting anew.
            self.attempts[key] = 0
        self.seen[pair] += 1
        self.attempts[key] += 1
        self.errors = 0 if status == "ok" else self.errors + 1
        if digest not in self.results and status == "ok":
            self.fresh = True
            self.results.add(digest)
        if self.errors >= self.limits.errors:
            return Alarm("stop", "errors", f"{self.errors} calls in a row have failed")
        if self.attempts[key] == self.limits.repeats:
            return Alarm(
                "hint",
                "loop",
                f"[You have made this same call {self.attempts[key]} times with the same result. "
                "Use what you have, or try another way.]",
            )
        return None

    def step_done(self) -> Alarm | None:
        """Tell that a step with calls is over."""
        self.empties = 0
        self.stale_steps = 0 if self.fresh else self.stale_steps + 1
        self.fresh = False
        if self.stale_steps >= self.limits.no_progress:
            return Alarm("stop", "no_progress", f"{self.stale_steps} steps in a row brought nothing new")
        return None

    def empty_reply(self) -> Alarm | None:
        """Tell that a reply had neither text nor calls."""
        self.empties += 1
        if self.empties >= self.limits.empties:
            return Alarm("stop", "empty", f"the model gave {self.empties} empty replies in a row")
        return None


def _call_key(call: ToolCall) -> str:
    return f"{call.name}:{''.join(call.arguments.lower().split())}"


def _digest(content: str) -> str:
    import hashlib  # it loads OpenSSL: not before the first request

    return hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
