"""Endings: the meaning of a reply without a tool call.

A model that narrates ("I will now read the file…") has not finished; a model that asks is waiting for the user. The
patterns are phrases on which small models end; all other text is an answer.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from lmagent.core.patterns import late
from lmagent.engine.review import Again, End

Kind = Literal["done", "blocked", "waiting", "question", "narration"]

_BLOCKED = late(r"^[\s*_#>]*BLOCKED:[\s*_]*(?P<reason>.*)", re.MULTILINE | re.DOTALL)
_FENCE = late(r"^(```|~~~).*?^\1[^\n]*$", re.MULTILINE | re.DOTALL)
_WAIT = late(
    r"^[\s*_#>-]*WAIT:[\s*_`]*"
    r"(?P<when>(?:\d|\+|(?i:in|until|till|at|on|for|today|tonight|tomorrow|next|noon|midnight)\b).*)",
    re.MULTILINE,
)
"""The text after `WAIT:` is meant as a time; `waits.py` decides whether it is valid."""
_WAIT_INSIDE = late(r"[.!?…][*_]*[ \t]+[*_]*WAIT:[\s*_]*(?:\+\d|in \d|\d{4}-)")
"""A wait in the middle of a line, after a sentence: neither valid nor an answer."""
_COMPLETE = late(r"^\W*TASK_COMPLETE\b|\bTASK_COMPLETE\W*$")
_MARKER = late(r"\bTASK_COMPLETE\b:?")
_INTENT = late(
    r"\b(?:I(?:'|’)ll|I will|I(?:'|’)m going to|I am going to|"
    r"I (?:still |also |now |first )?(?:need to|should)(?! (?:also )?(?:note|mention|add|point|say|ask|know|warn))|"
    r"let me(?! know)|let(?:'|’)s|"
    r"I(?:'|’)m (?:now )?(?:about to|reading|checking|looking)|proceeding to|starting (?:by|with))\b",
    re.IGNORECASE,
)
_ACTION = late(
    r"\b(?:read|open|look|check|list|search|grep|find|creat|writ|edit|updat|fix|run|execut|examin|inspect|explor|"
    r"start|begin|proceed|continu|call|use|handl|add|implement|gather|review|scan|analy[sz]|summari[sz]|fetch|load|test|"
    r"do (?:it|that|this|so)\b)",
    re.IGNORECASE,
)
_ABROAD = late(
    r"^(?:[^\W\d_][\w'’ ]{0,20},? )?(?:(?:ich werde|lass mich)\b.*\wen\W*$|je vais \w+(?:er|ir|re)\b|"
    r"(?:voy a|vamos a|vou) \w+r\b|sto per \w+re\b)|^(?:接下来|现在|首先)?[,，]?我将(?!来)",
    re.IGNORECASE,
)
"""Announcements in other languages, at the beginning of the last sentence of a turn that has done nothing."""
_TO_DO = late(r"^\s*(?:[-*+]|\d+[.)]) \[ \] \S", re.MULTILINE)
_UNDER_WAY = late(
    r"(?:now )?(?:reading|opening|looking|checking|listing|searching|creating|writing|editing|updating|fixing|running|"
    r"examining|inspecting|scanning|analy[sz]ing|fetching|loading|testing)\b.{0,100}(?:\bnow\W*|…|\.\.\.|:)$",
    re.IGNORECASE,
)
_LATER = late(
    r"\b(?:if|once|when|after|unless|as soon as) you\b|\bremember\b|\b(?:happy|glad) to\b|\bin (?:the )?future\b",
    re.IGNORECASE,
)
_COURTESY = late(
    r"\b(?:anything else|would you like|do you want me|want me to|shall i|should i also|need (?:any|more|further)|"
    r"any (?:other )?questions|like me to|further assistance|help you with)\b",
    re.IGNORECASE,
)
_SENTENCE_END = late(r"(?<=[.!?…:])\s+|\n+")


if TYPE_CHECKING:
    from lmagent.engine.session import Session


class Ending(Struct, frozen=True):
    """The meaning of a reply: `reason` is the text of a block or question, `when` the time after `WAIT:`."""

    kind: Kind
    reason: str = ""
    when: str = ""


def classify(text: str, *, acted: bool, converses: bool = False) -> Ending:
    """Classify a reply. Before a tool has run (`acted`), an announcement is narration even in a long text.

    Of an agent that `converses`, a question is an answer like any other.
    """
    stripped = text.strip()
    if found := _WAIT.search(_last_paragraph(stripped)):
        return Ending("waiting", when=found["when"].strip())
    if _WAIT_INSIDE.search(_last_paragraph(stripped)):
        return Ending("waiting")
    if found := _BLOCKED.search(_last_paragraph(stripped)):
        return Ending("blocked", found["reason"].strip())
    if _COMPLETE.search(stripped.rpartition("\n")[2]):
        return Ending("done")
    last = _last_sentence(stripped)
    if last.endswith("?"):
        return Ending("done") if converses or (acted and _COURTESY.search(last)) else Ending("question", last)
    if _announces(last, stripped, acted=acted):
        return Ending("narration", last)
    return Ending("done")


def answer_of(text: str) -> str:
    """Return the final answer without the marker on which some models end."""
    return _MARKER.sub("", text).strip() if _COMPLETE.search(text.strip().rpartition("\n")[2]) else text.strip()


def _last_paragraph(text: str) -> str:
    """Return the last paragraph outside code fences: code says nothing about the task."""
    return re.split(r"\n\s*\n", _FENCE.sub("", text).strip())[-1]


def _announces(last: str, whole: str, *, acted: bool) -> bool:
    if "```" in whole[-8:] or _LATER.search(last):
        return False
    if (_INTENT.search(last) and _ACTION.search(last)) or _UNDER_WAY.match(last):
        return True
    if not acted and (whole.endswith((":", "：")) or _ABROAD.search(last) or _TO_DO.search(whole)):
        return True
    # Nothing has been done yet, and a short text opens with an announcement: "I'll check the files. One moment."
    opening = _SENTENCE_END.split(whole, maxsplit=1)[0]
    return not acted and len(whole) < 300 and bool(_INTENT.search(opening) and _ACTION.search(opening))


def _last_sentence(text: str) -> str:
    pieces = [piece.strip(" \t*_`>#-") for piece in _SENTENCE_END.split(text)]
    return next((piece for piece in reversed(pieces) if piece), "")


QUESTION = (
    "Every write and edit of this turn failed, and no file was changed. Look at the last error and try again; "
    "if it cannot be done, write BLOCKED: and the reason."
)


def doubt(session: Session, answer: str) -> Again | None:
    """Question a final answer after only failed writes; a second such answer ends the turn as incomplete."""
    state, tried = session.state, session.tried
    # Without undo the changes of commands are unknown.
    writing = ("write",) if session.wiring.snapshots is not None else ("write", "exec")
    worked = any((effect, True) in tried for effect in writing)
    changed = any(event.turn == state.turn and not event.by for event in state.changes)
    if ("write", False) not in tried or worked or changed or state.work.mode == "plan" or state.unattended_denials:
        return None  # nothing failed, something changed, or the end of the turn says why not
    reason = "incomplete: every write and edit of the turn failed, and no file was changed"
    typed = "see the errors above, and continue with --continue"
    return Again("unwritten", QUESTION, 1, End("error", "incomplete", reason, answer, terminal=typed))


# --- waits ---------------------------------------------------------------------------------------------------------
# The moment that a model means by `WAIT: <time>: <reason>`.
#
#     WAIT: 2026-03-01T09:00:00Z: the market opens            UTC; an offset (+02:00) likewise
#     WAIT: 2026-03-01T09:00: the market opens                this machine's time zone
#     WAIT: 2026-03-01T09:00[Europe/Berlin]: …                that time zone
#     WAIT: +30m: …     WAIT: in 2 hours: …                   from now
#
# A time that the clocks skip (the jump to summer time) moves forward by the jump; of a time that comes twice it is the
# first (PEP 495, fold 0).

FARTHEST = 366 * 86400
"""Cap on a session's wait, in seconds."""

FORMS = "write WAIT: 2026-03-01T09:00:00Z: reason, or WAIT: +30m: reason"

_MOMENT = late(
    r"(?P<day>\d{4}-\d\d-\d\d)[T ](?P<time>\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)"
    r"\s*(?P<offset>[Zz]\b|UTC\b|[+-]\d\d(?::?\d\d)?\b)?\s*(?:\[(?P<zone>[^\]\n]*)\]|(?P<name>[A-Z]\w+/[\w/+-]+))?"
)
_FROM_NOW = late(
    r"(?:\+|in\s|for\s)?\s*(?P<count>\d{1,9})\s*(?P<unit>s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?)\b",
    re.IGNORECASE,
)
_LEAD = late(r"(?:until|till|at|on)\s+", re.IGNORECASE)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_EDGES = " \t*_`"
_SPLIT = late(r"\s*(?:[:,;.](?:\s|$)|\s-\s|[–—(])")
"""Between a time and its reason. Other text there may belong to the time, so it is refused."""


class Moment(Struct, frozen=True):
    """When a session continues, in Unix seconds, and why it waits."""

    until: float
    reason: str


def read_wait(text: str, now: float) -> Moment | str:
    """Parse the text after `WAIT:`; return why it is refused, for the model. `now` is in Unix seconds."""
    if not text:
        return f"WAIT: has to begin its line; {FORMS}."
    time, *rest = _SPLIT.split(text.strip(_EDGES), maxsplit=1)
    time, moment = _LEAD.sub("", time.strip(_EDGES), count=1), None
    if found := _FROM_NOW.fullmatch(time):
        moment = now + int(found["count"]) * _UNITS[found["unit"][0].lower()]
    elif found := _MOMENT.fullmatch(time):
        moment = _moment(found)
    if moment is None:
        return f"{time[:60]!r} is no time that is known here; {FORMS}."
    if moment > now + FARTHEST:
        return f"{time!r} is more than a year from now, and nothing here waits that long."
    return Moment(moment, "".join(rest).strip(_EDGES) or "no reason given")


def local(moment: float) -> str:
    """Return a moment in this machine's time zone, to the second, as ISO 8601."""
    return datetime.fromtimestamp(moment).astimezone().isoformat(timespec="seconds")


def _moment(found: re.Match[str]) -> float | None:
    offset, zone = (found["offset"] or "").upper().replace("UTC", "Z"), found["zone"] or found["name"]
    try:
        time = datetime.fromisoformat(f"{found['day']}T{found['time'].replace(',', '.')}{offset}")
        if not offset and (zone is not None or found["zone"] is not None):
            from zoneinfo import ZoneInfo  # takes 3 ms: only for a wait with a zone

            time = time.replace(tzinfo=ZoneInfo((zone or "").strip()))
        return time.timestamp()
    except (KeyError, ValueError, OSError, OverflowError):  # OSError: a path that is no file of the time zones
        return None
