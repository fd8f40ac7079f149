"""Loop guard: notice a model that goes round in circles.

The guard compares tool, arguments and result, never the tool's name alone: eleven reads of eleven files are work. A new
result or a new content of a file is progress, and progress is not stopped. Repetitions are counted in three ways: the
same call with the same result; a cycle of several steps; the same result, whichever call it comes from. Each gets a
hint first and is stopped within six steps.

Two calls are the same if they differ only in blanks, quotes, the spelling of a path or bare numbers. Two results are
the same if they differ only in durations and in noise that each run makes anew: the time, process ids, names of
temporary files, random ids. For calls that wait or watch, noise counts as a difference.
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

LONGEST_CYCLE = 8
"""Steps of the longest cycle that the guard recognises."""

SPELLED = 4000
"""Characters of arguments up to which paths, quotes and numbers are normalised, not only blanks and case."""

LONGEST = 100_000
"""Characters of a result up to which noise is removed."""

LONG = 40
"""Characters from which a result is distinctive; `(no output)` is not."""

# Patterns are kept as text: they are compiled with the first result, not before the first request.
_TOOK = r"\b\d+\.\d+ ?(?:s|ms|sec|secs|seconds)\b|\bin \d+ ?(?:s|ms|seconds)\b"
_NOISE = "|".join(
    (
        r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?\b",
        r"\b(?:[A-Z][a-z]{2},? +)?(?:\d{1,2} +)?[A-Z][a-z]{2} +(?:\d{4}|\d{1,2}) +(?=\d\d:\d\d)",
        r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\b",
        r"\b1[6-9]\d{8}(?:\d{3})?\b",
        r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b",
        r"\b0x[0-9a-fA-F]{5,16}\b",
        r"(?<![0-9a-f])(?=[a-f]{0,24}\d)[0-9a-f]{12,24}(?![0-9a-f])",
        r"/(?:private/)?(?:tmp|var/folders)/[\w./\-]+",
        r"(?i:\b(?:pid|process|seed)\b)[ =:#]{1,3}\d{3,}",
        r"(?<=\w)\[\d{3,7}\]",
        r"\b\d+m\d+\.\d+s\b",
        r"\b\d+(?:\.\d+)? ?ms\b",
        r"\bduration_ms:? [\d.]+",
    )
)
"""The time, process ids, names of temporary files and ids, durations; longer hashes identify contents."""
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
        attempts: how often a call was made since it, or another call, brought something new.
        renewed: how often a result was news since a file changed; a compaction makes it news again.
        same: how often a result has come: a failure since a file changed, any other result in a row.
        echo: the latest result that is no failure.
        heard: the value of `news` when a call was last made.
        counted: results of this step in `same`; only repetitions that the model has seen count.
    """

    limits: TurnLimits
    seen: Counter[str] = field(default_factory=Counter[str])
    attempts: Counter[str] = field(default_factory=Counter[str])
    results: dict[str, str] = field(default_factory=dict[str, str])
    renewed: Counter[str] = field(default_factory=Counter[str])
    world: set[str] = field(default_factory=set[str])
    last: dict[str, str] = field(default_factory=dict[str, str])
    steps: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    now: list[str] = field(default_factory=list[str])
    cycling: int = 0
    same: Counter[str] = field(default_factory=Counter[str])
    echo: str = ""
    targets: set[str] = field(default_factory=set[str])
    news: int = 0
    heard: dict[str, int] = field(default_factory=dict[str, int])
    errors: int = 0
    outcomes: set[str] = field(default_factory=set[str])
    counted: set[str] = field(default_factory=set[str])
    stale_steps: int = 0
    fresh: bool = False

    def before(self, call: ToolCall) -> Alarm | None:
        """Return an alarm if a call must not run."""
        key = _call_key(call)
        repeats = self.attempts[key]
        in_this_reply = any(pair.startswith(f"{key}:") for pair in self.now)
        if repeats >= self.limits.repeats * 3 and not in_this_reply:
            return Alarm("stop", "loop", f"{call.name} was asked for {repeats} times with the same result")
        circle = self.cycling >= self.limits.repeats and key in self.last
        if repeats < self.limits.repeats * 2 and not circle:
            return None
        self.attempts[key] += 1
        self.now.append(f"{key}:{self.last.get(key, '')}")
        if circle:
            text = "you go round in a circle of the same calls with the same results"
        else:
            text = f"{call.name} was called {repeats + 1} times with these arguments, and each run gave the same result"
        return Alarm(
            "block",
            "loop",
            f"Withheld: {text}. It will not change. Do something else, or give your final answer.",
        )

    def after(
        self,
        call: ToolCall,
        status: str,
        content: str,
        data: Mapping[str, Any] | None = None,
        marks: Sequence[str] = (),
    ) -> Alarm | None:
        """Take in a call's result; `marks` are the states of files from `marks_of`."""
        key, digest = _call_key(call), _digest(_plain(call, content))
        moved = self._moved(marks)
        failed = status != "ok" or bool((data or {}).get("exit_code")) or (data or {}).get("status") == "error"
        new = digest not in self.results and status == "ok"
        self._count(key, digest, new=new, moved=moved)
        if status == "ok":
            self.results[digest] = call.id
        self.outcomes.add(status)
        if failed:
            same = None if moved else self._same_failure(content)
        else:
            same = self._same_answer(call, digest, len(content))
        repeated = None
        if self.attempts[key] == self.limits.repeats:
            repeated = _hint(f"You have made this same call {self.attempts[key]} times with the same result.")
        return repeated if repeated is not None and (same is None or same.action == "hint") else same

    def step_done(self) -> Alarm | None:
        self.counted.clear()
        if self.outcomes:
            self.errors = 0 if "ok" in self.outcomes else self.errors + 1
            self.outcomes.clear()
        self.stale_steps = 0 if self.fresh else self.stale_steps + 1
        circle = self._circle()
        self.fresh = False
        if self.errors >= self.limits.errors:
            return Alarm("stop", "errors", f"every call of {self.errors} replies in a row has failed")
        if circle is not None:
            return circle
        if self.stale_steps >= self.limits.no_progress:
            return Alarm("stop", "no_progress", f"{self.stale_steps} steps in a row brought nothing new")
        return None

    def cut(self, held: Collection[str]) -> None:
        """Take in a compaction: results of calls outside `held` are no longer in the prompt, and so are news again.

        A result becomes news only a limited number of times: a circle around a compaction is still a circle.
        """
        gone = [
            one for one, call in self.results.items() if call not in held and self.renewed[one] < self.limits.repeats
        ]
        for digest in gone:
            del self.results[digest]
        self.echo = ""

    # --- what counts ------------------------------------------------------------------------------------------

    def _moved(self, marks: Sequence[str]) -> bool:
        """Return whether a file is in a new state: calls that failed before may succeed now."""
        before = [mark.removeprefix("<") for mark in marks if mark.startswith("<")]
        after = [mark for mark in marks if not mark.startswith("<")]
        self.world.update(before)
        moved = not self.world.issuperset(after)
        self.world.update(after)
        if moved:
            self.attempts.clear()
            self.same.clear()
            self.renewed.clear()
        return moved

    def _count(self, key: str, digest: str, *, new: bool, moved: bool) -> None:
        pair = f"{key}:{digest}"
        if self.seen[pair] == 0 or new:
            self.attempts[key] = 0  # a new result of the same call, or one that a compaction removed: not a repetition
        self.seen[pair] += 1
        if new or moved:
            self.fresh = True
            self.news += 1
            self.renewed[digest] += 1
        # If other calls brought something new since, this call is no repetition: it may wait and watch.
        if self.heard.get(key, self.news) == self.news or not self.attempts[key]:
            self.attempts[key] += 1
        self.heard[key] = self.news
        self.last[key] = digest
        self.now.append(pair)

    def _same_failure(self, content: str) -> Alarm | None:
        body = re.sub(_EXIT, "", content).strip()
        sign = _digest(re.sub(r"\d+", "#", re.sub(_NOISE, "#", body[-LONGEST:])))
        return self._again(sign, "failure", body.splitlines()[-1][:200]) if body else None

    def _same_answer(self, call: ToolCall, digest: str, size: int) -> Alarm | None:
        """Count the same long result in a row, but not the same result of another file."""
        targets = set(re.findall(_TARGET, _spelled(call.arguments)))
        novel = bool(targets - self.targets)
        self.fresh = self.fresh or novel  # it is also news that another file is the same
        self.targets |= targets
        if size >= LONG and digest == self.echo and not (novel and self.same[digest] > 1):
            return self._again(digest, "result", f"the last time from {call.name}")
        self.same[self.echo] = 0
        self.echo, self.same[digest] = digest, 1
        return None

    def _again(self, sign: str, what: str, which: str) -> Alarm | None:
        """Count a result that came again, once a step."""
        if sign in self.counted:
            return None
        self.counted.add(sign)
        self.same[sign] += 1
        times = self.same[sign]
        if times >= self.limits.repeats * 3:
            return Alarm("stop", "loop", f"the same {what} came {times} times: {which}")
        in_a_row = " in a row" if what == "result" else ""
        return _hint(f"This same {what} has come {times} times{in_a_row}.") if times == self.limits.repeats else None

    def _circle(self) -> Alarm | None:
        """Recognise a cycle of several steps, each with its earlier results."""
        step, self.now = tuple(self.now), []
        if self.fresh:
            step = (f"new {self.news}",)
        self.steps = [*self.steps[-LONGEST_CYCLE * self.limits.repeats :], step]
        if not any(self._repeats(size) for size in range(2, LONGEST_CYCLE + 1)):
            self.cycling = 0
            return None
        self.cycling += 1
        if self.cycling == 1:
            return _hint("You go round in a circle: the same calls with the same results, again and again.")
        if self.cycling > self.limits.repeats * 2:
            return Alarm("stop", "loop", "the same calls came round and round with the same results")
        return None

    def _repeats(self, size: int) -> bool:
        """Return whether the last steps are a cycle of this size that was repeated often enough.

        The first round of a cycle brought something new, and so does not count.
        """
        length = size * (self.limits.repeats - 1)
        tail = self.steps[-length:]
        if (
            len(tail) < length
            or len(set(tail[:size])) == 1
            or any(step and step[0].startswith("new ") for step in tail)
        ):
            return False
        return all(tail[at] == tail[at - size] for at in range(size, length))


def marks_of(changes: Sequence[FilesChanged], call: str, data: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the states of files that a call found (marked with `<`) and left.

    Without recorded changes they come from the result's `data`.
    """
    marks = list[str]()
    for event in changes[-2:]:
        if event.call_id != call:
            continue
        if event.blob:
            marks.append(event.blob)
        for change in event.changes:
            if not is_byproduct(change.path) or change.path.startswith(".git/"):  # a commit is progress
                before, after = (
                    one.sha256 or one.target or one.kind if one else "" for one in (change.before, change.after)
                )
                marks += [f"<{change.path}:{before}", f"{change.path}:{after}"]
    if not marks and data.get("changed") and isinstance(data.get("sha256"), str):
        marks.append(f"{data.get('path')}:{data['sha256']}")
    return tuple(marks)


def _hint(text: str) -> Alarm:
    return Alarm("hint", "loop", f"[{text} Use what you have, or try another way.]")


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
