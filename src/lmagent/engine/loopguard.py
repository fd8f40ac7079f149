"""Loop guard: notice that a model goes round in circles, and never stop one that works.

Each result has a sign, and a step brings news if one of its signs is new, a file has a new state, or a file was looked
at for the first time: eleven reads of eleven files are work. A step repeats if each of its signs comes for the third
time. Repetitions in a row get a hint, then their calls are withheld, then the turn ends.

Two calls are the same if they differ only in blanks, quotes, the spelling of a path or bare numbers. Two results are
the same if they differ only in durations and in noise that each run makes anew: the time, process ids, names of
temporary files, random ids. For calls that wait or watch, noise counts as a difference. The same long result counts as
the same whichever call it comes from, and so does the same failure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, field

from lmagent.core.agent import TurnLimits
from lmagent.core.changes import is_byproduct
from lmagent.core.events import FilesChanged
from lmagent.core.messages import ToolCall

SPELLED = 4000
"""Characters of arguments up to which paths, quotes and numbers are normalised, not only blanks and case."""

LONGEST = 100_000
"""Characters of a result up to which noise is removed."""

LONG = 40
"""Characters from which a result is distinctive; `(no output)` is not."""

# Patterns are kept as text: they are compiled with the first result, not before the first request.
_TOOK = r"\b(?:\d+m)?\d+\.\d+ ?(?:s|ms|secs?|seconds)\b|\bin \d+ ?(?:s|ms|seconds)\b|\b\d+ ?ms\b|\bduration_ms:? [\d.]+"
_NOISE = "|".join(
    (
        r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?\b",
        r"\b(?:[A-Z][a-z]{2},? +)?(?:\d{1,2} +)?[A-Z][a-z]{2} +(?:\d{4}|\d{1,2}) +(?=\d\d:\d\d)",
        r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\b",
        r"\b(?:1[6-9]\d{8}(?:\d{3})?|[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|0x[0-9a-fA-F]{5,16})\b",
        r"(?<![0-9a-f])(?=[a-f]{0,24}\d)[0-9a-f]{12,24}(?![0-9a-f])",
        r"/(?:private/)?(?:tmp|var/folders)/[\w./\-]+",
        r"(?i:\b(?:pid|process|seed)\b)[ =:#]{1,3}\d{3,}|(?<=\w)\[\d{3,7}\]",
    )
)
"""The time, process ids, names of temporary files and ids; longer hashes identify contents."""
_LOOKS = (
    r"\b(?:sleep|wait|watch|poll)\b|\bcommand ?: *(?:cd [^&;]{1,80}&& *)?(?:tail|head|sed|awk|cat|grep|less|date|docker"
    r"|kubectl|journalctl|ps|systemctl|ls|stat|wc|du)\b"
)
"""Commands that wait, or watch the output of others: for them the passing time is news."""
_RUNS = ("shell", "python", "use_tool")
_NUMBER = r"(?<![\w./\-])-?\d+(?:p\b|(?![\w./]))|(?<=\s-[a-z])\d+\b"
_PLACE = r"(?<![\w.])(?:/workspace/|(?:\./)+)(?=[\w.])"
_UP = r"[\w.\-]{1,80}/\.\./"
_TARGET = r"[\w.\-]{0,80}/[\w./\-]{1,200}|[\w\-]{1,80}\.[A-Za-z]\w{0,7}\b"
_EXIT = r"\[(?:exit code \d+|Found \d+.*)\]\s*\Z"


class Alarm(Struct, frozen=True):
    """The guard's verdict: `hint` the model, `block` the call, or `stop` the turn."""

    action: Literal["hint", "block", "stop"]
    cause: str
    text: str


class LoopGuard(Struct):
    """The memory of one turn.

    Attributes:
        seen: in how many steps a sign has come since a file changed.
        calls: the latest call with a sign.
        renewed: how often a compaction made a sign news again.
        world: states in which files were.
        targets: files that calls have named.
        recent: keys of the calls since the last news.
        step: the signs of the running step, with how often they have come.
        repeating: steps in a row that repeat.
        stale_steps: steps in a row without news.
        errors: steps in a row in which every call failed.
    """

    limits: TurnLimits
    seen: Counter[str] = field(default_factory=Counter[str])
    calls: dict[str, str] = field(default_factory=dict[str, str])
    renewed: Counter[str] = field(default_factory=Counter[str])
    world: set[str] = field(default_factory=set[str])
    targets: set[str] = field(default_factory=set[str])
    recent: set[str] = field(default_factory=set[str])
    step: dict[str, int] = field(default_factory=dict[str, int])
    statuses: set[str] = field(default_factory=set[str])
    fresh: bool = False
    repeating: int = 0
    stale_steps: int = 0
    errors: int = 0

    def before(self, call: ToolCall) -> Alarm | None:
        """Return an alarm if a call must not run."""
        key = _call_key(call)
        if self.repeating <= self.limits.repeats or key not in self.recent:
            return None
        self.step[key] = self.limits.repeats
        return Alarm(
            "block",
            "loop",
            f"Withheld: you go round in a circle, and {call.name} gave the same result again and again. "
            "It will not change. Do something else, or give your final answer.",
        )

    def after(
        self,
        call: ToolCall,
        status: str,
        content: str,
        data: Mapping[str, Any] | None = None,
        changes: Sequence[FilesChanged] = (),
    ) -> None:
        """Take in a call's result; `changes` are the latest of the session."""
        data, key = data or {}, _call_key(call)
        failed = status != "ok" or bool(data.get("exit_code")) or data.get("status") == "error"
        sign = _failure(content) if failed else ""
        if not sign:
            result = _digest(_plain(call, content))
            sign = result if len(content) >= LONG else f"{key}:{result}"
        targets = set[str]() if failed else set(re.findall(_TARGET, _spelled(call.arguments)))
        if self._moved(call.id, data, changes):
            self.seen.clear()  # calls may now succeed that failed before
            self.renewed.clear()
            self.fresh = True
        elif status == "ok" and (sign not in self.seen or not self.targets.issuperset(targets)):
            self.fresh = True
        if sign not in self.step:
            self.seen[sign] += 1
            self.step[sign] = self.seen[sign]
        self.targets |= targets
        self.calls[sign] = call.id
        self.recent.add(key)
        self.statuses.add(status)

    def step_done(self) -> Alarm | None:
        """Return the verdict on the step that has ended."""
        repeats, often = self.limits.repeats, min(self.step.values(), default=0)
        self.repeating = self.repeating + 1 if often >= repeats and not self.fresh else 0
        self.stale_steps = 0 if self.fresh else self.stale_steps + 1
        if self.statuses:
            self.errors = 0 if "ok" in self.statuses else self.errors + 1
        if self.fresh:
            self.recent.clear()
        self.step.clear()
        self.statuses.clear()
        self.fresh = False
        if self.errors >= self.limits.errors:
            return Alarm("stop", "errors", f"every call of {self.errors} replies in a row has failed")
        if self.repeating >= repeats * 3 - 1:
            return Alarm("stop", "loop", "the same calls came round and round with the same results")
        if self.stale_steps >= self.limits.no_progress:
            return Alarm("stop", "no_progress", f"{self.stale_steps} steps in a row brought nothing new")
        if min(self.repeating, self.stale_steps - repeats + 2) == 1:  # not for a look between two steps that bring news
            text = "You go round in a circle: the same calls with the same results, again and again."
            return Alarm("hint", "loop", f"[{text} Use what you have, or try another way.]")
        return None

    def cut(self, held: Collection[str]) -> None:
        """Take in a compaction: results of calls outside `held` are no longer in the prompt, and so are news again.

        A result becomes news only a limited number of times: a circle around a compaction is still a circle.
        """
        for sign, call in self.calls.items():
            if call not in held and sign in self.seen and self.renewed[sign] < self.limits.repeats:
                self.renewed[sign] += 1
                del self.seen[sign]

    def _moved(self, call: str, data: Mapping[str, Any], changes: Sequence[FilesChanged]) -> bool:
        """Return whether a call has left a file in a new state. Without recorded changes its `data` names the state."""
        found, left = set[str](), set[str]()
        for event in changes[-2:]:
            if event.call_id != call:
                continue
            left |= {event.blob} - {""}
            for change in event.changes:
                if not is_byproduct(change.path) or change.path.startswith(".git/"):  # a commit is progress
                    before, after = (
                        f"{change.path}:{one and (one.sha256 or one.target or one.kind)}"
                        for one in (change.before, change.after)
                    )
                    found.add(before)
                    left.add(after)
        if not left and data.get("changed") and isinstance(data.get("sha256"), str):
            left.add(f"{data.get('path')}:{data['sha256']}")
        self.world |= found
        moved = not self.world.issuperset(left)
        self.world |= left
        return moved


def _failure(content: str) -> str:
    """Return the sign of a failure without its numbers and noise; empty if it says nothing."""
    body = re.sub(_EXIT, "", content).strip()
    return f"failure:{_digest(re.sub(r'[0-9]+', '#', re.sub(_NOISE, '#', body[-LONGEST:])))}" if body else ""


def _call_key(call: ToolCall) -> str:
    if len(call.arguments) > SPELLED:
        return f"{call.name}:{_digest(''.join(call.arguments.lower().split()))}"
    text = re.sub(_NUMBER, "#", _spelled(call.arguments).replace(":", ": ").replace(",", ", "))
    return f"{call.name}:{''.join(text.lower().split())}"


def _spelled(arguments: str) -> str:
    r"""Return the arguments with one spelling for each path, and without quotes."""
    text = re.sub(r"\\[nt]", " ", arguments[:SPELLED]).replace("\\", "").replace('"', " ").replace("'", " ")
    return re.sub(_UP, "", re.sub(_PLACE, "", text))


def _plain(call: ToolCall, content: str) -> str:
    """Return the result without durations and noise, unless it is long enough to differ anyway."""
    if len(content) > LONGEST:
        return content
    if call.name in _RUNS and not re.search(_LOOKS, _spelled(call.arguments)):
        content = re.sub(_NOISE, "#", content)
    return re.sub(_TOOK, "#", content)


def _digest(content: str) -> str:
    import hashlib  # loads OpenSSL: not before the first request

    return hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
