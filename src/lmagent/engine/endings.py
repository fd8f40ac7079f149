"""Endings: the meaning of a reply without a tool call.

A model that narrates ("I will now read the file…") has not finished; a model that asks is waiting for the user. The
patterns are phrases on which small models end; all other text is an answer.
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

Kind = Literal["done", "blocked", "waiting", "question", "narration"]

_BLOCKED = re.compile(r"^[\s*_#>]*BLOCKED:[\s*_]*(?P<reason>.*)", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.MULTILINE | re.DOTALL)
_WAIT = re.compile(
    r"^[\s*_#>-]*WAIT:[\s*_`]*"
    r"(?P<when>(?:\d|\+|(?i:in|until|till|at|on|for|today|tonight|tomorrow|next|noon|midnight)\b).*)",
    re.MULTILINE,
)
"""The text after `WAIT:` is meant as a time; `waits.py` decides whether it is valid."""
_WAIT_INSIDE = re.compile(r"[.!?…][*_]*[ \t]+[*_]*WAIT:[\s*_]*(?:\+\d|in \d|\d{4}-)")
"""A wait in the middle of a line, after a sentence: neither valid nor an answer."""
_COMPLETE = re.compile(r"^\W*TASK_COMPLETE\b|\bTASK_COMPLETE\W*$")
_MARKER = re.compile(r"\bTASK_COMPLETE\b:?")
_INTENT = re.compile(
    r"\b(?:I(?:'|’)ll|I will|I(?:'|’)m going to|I am going to|"
    r"I (?:still |also |now |first )?(?:need to|should)(?! (?:also )?(?:note|mention|add|point|say|ask|know|warn))|"
    r"let me(?! know)|let(?:'|’)s|"
    r"I(?:'|’)m (?:now )?(?:about to|reading|checking|looking)|proceeding to|starting (?:by|with))\b",
    re.IGNORECASE,
)
_ACTION = re.compile(
    r"\b(?:read|open|look|check|list|search|grep|find|creat|writ|edit|updat|fix|run|execut|examin|inspect|explor|"
    r"start|begin|proceed|continu|call|use|handl|add|implement|gather|review|scan|analy[sz]|summari[sz]|fetch|load|test|"
    r"do (?:it|that|this|so)\b)",
    re.IGNORECASE,
)
_ABROAD = re.compile(
    r"^(?:[^\W\d_][\w'’ ]{0,20},? )?(?:(?:ich werde|lass mich)\b.*\wen\W*$|je vais \w+(?:er|ir|re)\b|"
    r"(?:voy a|vamos a|vou) \w+r\b|sto per \w+re\b)|^(?:接下来|现在|首先)?[,，]?我将(?!来)",
    re.IGNORECASE,
)
"""Announcements in other languages, at the beginning of the last sentence of a turn that has done nothing."""
_TO_DO = re.compile(r"^\s*(?:[-*+]|\d+[.)]) \[ \] \S", re.MULTILINE)
_UNDER_WAY = re.compile(
    r"(?:now )?(?:reading|opening|looking|checking|listing|searching|creating|writing|editing|updating|fixing|running|"
    r"examining|inspecting|scanning|analy[sz]ing|fetching|loading|testing)\b.{0,100}(?:\bnow\W*|…|\.\.\.|:)$",
    re.IGNORECASE,
)
_LATER = re.compile(
    r"\b(?:if|once|when|after|unless|as soon as) you\b|\bremember\b|\b(?:happy|glad) to\b|\bin (?:the )?future\b",
    re.IGNORECASE,
)
_COURTESY = re.compile(
    r"\b(?:anything else|would you like|do you want me|want me to|shall i|should i also|need (?:any|more|further)|"
    r"any (?:other )?questions|like me to|further assistance|help you with)\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[.!?…:])\s+|\n+")


class Ending(Struct, frozen=True):
    """The meaning of a reply: `reason` is the text of a block or question, `when` the time after `WAIT:`."""

    kind: Kind
    reason: str = ""
    when: str = ""


def classify(text: str, *, acted: bool) -> Ending:
    """Classify a reply. Before a tool has run (`acted`), an announcement is narration even in a long text."""
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
        return Ending("done") if acted and _COURTESY.search(last) else Ending("question", last)
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
