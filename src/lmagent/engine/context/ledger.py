"""Ledger: the record that a compaction keeps without the model's help. Each line of it is a fact of the log."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct

from lmagent.core.changes import is_byproduct
from lmagent.core.messages import NO_WORDS, Message
from lmagent.core.outside import SHORTENED
from lmagent.engine import worktext
from lmagent.engine.context.intake import shorten, size_of
from lmagent.engine.state import SessionState

RULES_SHARE = 4
"""One part in so many of the room for the user's texts goes to their demands, if not all texts can stay."""

LONGEST_NOTE = 500
"""Cap on each of the model's own texts, in bytes."""

LONGEST_RULE = 400
"""Cap on a sentence that is kept as a rule, in bytes; a longer one is rarely a rule."""

_RULE = (
    r"\b(?:must|never|always|only|do not|don['’]t|does not|should(?: not|n['’]t)?|may not|mustn['’]t|cannot|can['’]t|"
    r"avoid|without|at (?:most|least)|no (?:more|less|later|other)|make sure|ensure|exactly|required?|forbidden|"
    r"instead of|constraint|important|limit|deadline|except|unless|keep)\b"
)
"""Phrases that mark a demand."""


class CutSizes(Struct, frozen=True):
    """Caps on the parts of a cut, in bytes.

    Attributes:
        user: the user's texts.
        recent: the latest messages, kept whole; `unread`: those that the model has not read.
        lists: each of the lists (files, artifacts).
        notes: the model's own texts.
        summary: its summary.
        turns: how many turns are kept at most; None if only `recent` counts.
    """

    user: int
    recent: int
    unread: int
    lists: int
    notes: int
    summary: int
    turns: int | None = None


class Gone(Struct, frozen=True):
    """The cut part of the conversation; `still` are texts of the first message that stay before the block."""

    user_texts: Sequence[str]
    messages: Sequence[Message]
    still: Collection[str]


def block(state: SessionState, gone: Gone, summary: str, sizes: CutSizes, *, goes_on: bool) -> str:
    """Return the text that replaces the cut part.

    Args:
        sizes: bytes to keep; of the user's texts, the first (the task) and the latest ones stay longest.
        goes_on: whether no message follows, so that the text must ask the model to continue.
    """
    parts = [SHORTENED]
    user_texts = gone.user_texts
    if user_texts:
        rules = sizes.user // RULES_SHARE if sum(map(size_of, user_texts)) > sizes.user else 0
        said = "\n".join(f"<user_said>\n{text}\n</user_said>" for text in _within(user_texts, sizes.user - rules))
        parts.append(f"What {'else ' if gone.still else ''}the user said, in order:\n{said}")
        parts.append(_rules(user_texts, said, rules) if rules else "")
    parts.append(worktext.record(state.work, sizes.lists))
    parts += [_files(state, sizes.lists), _artifacts(state, sizes.lists), _notes(state, gone.still), _error(state)]
    own = sizes.notes if summary else sizes.notes + sizes.summary  # they take the place of a missing summary
    parts.append(_own_notes(gone.messages, own))
    parts = [part for part in parts if part]
    if summary:
        parts.append(f"Your own summary:\n{summary}")
    elif state.summary:
        parts.append(f"Your summary of the earlier conversation:\n{shorten(state.summary, own)}")
    parts.append("The full conversation is kept: recall searches it. Files on disk are the truth.")
    if goes_on:
        parts.append("Go on with the task.")
    return "\n\n".join(parts)


def _within(texts: Sequence[str], budget: int) -> list[str]:
    """Return the first and the latest texts within the budget, in order, with a line for the gap."""
    if sum(map(size_of, texts)) <= budget:
        return list(texts)
    first = shorten(texts[0], budget // 2 if len(texts) > 1 else budget)
    left, latest = budget - size_of(first), list[str]()
    for text in reversed(texts[1:]):
        if size_of(text) > left:
            latest += [] if latest else [shorten(text, left)]
            break
        latest.append(text)
        left -= size_of(text)
    gap = len(texts) - 1 - len(latest)
    return [first, *([f"[{gap} earlier messages left out]"] if gap else []), *reversed(latest)]


def _rules(texts: Sequence[str], kept: str, budget: int) -> str:
    """Return sentences with demands from texts that are not kept whole; the clearest ones come first."""
    import re  # only a cut needs it

    found: dict[str, None] = {}
    for text in texts:
        if text in kept:
            continue
        for sentence in re.split(r"(?<=[.!?])\s+|\n+", text):
            line = sentence.strip(" \t-*•")
            if 0 < size_of(line) <= LONGEST_RULE and line not in kept and re.search(_RULE, line, re.IGNORECASE):
                found[line] = None
    chosen: set[str] = set()
    for line in sorted(found, key=lambda line: -len(re.findall(_RULE, line, re.IGNORECASE)) / len(line)):
        size = size_of(line) + 3
        if size <= budget:
            budget -= size
            chosen.add(line)
    rows = [f"- {line}" for line in found if line in chosen]
    return "\n".join(["These rules from the omitted text must hold:", *rows]) if rows else ""


def _own_notes(messages: Sequence[Message], size: int) -> str:
    """Return the model's own texts of the cut part, each once."""
    texts = (message.text.strip() for message in messages if message.role == "assistant")
    said = dict.fromkeys(shorten(text, LONGEST_NOTE) for text in texts if text and text != NO_WORDS)
    return _latest("What you said on the way:", [f"- {text}" for text in said], size)


def _files(state: SessionState, size: int) -> str:
    """Return the lists of changed and read files; commands count too."""
    changed = dict.fromkeys([*(path for path, mark in state.files.items() if mark.changed), *_by_commands(state)])
    read = [path for path in state.files if path not in changed]
    lists = ("Files that you changed:", changed), ("Files that you read, all or in part:", read)
    return "\n\n".join(filter(None, (_latest(title, [f"- {path}" for path in paths], size) for title, paths in lists)))


def _by_commands(state: SessionState) -> list[str]:
    paths = dict.fromkeys(
        change.path
        for event in state.changes
        for change in event.changes
        if change.after is not None and change.after.kind == "file" and not is_byproduct(change.path)
    )
    return list(paths)


def _artifacts(state: SessionState, size: int) -> str:
    rows = [f"- {handle}: {what}" for handle, what in state.artifacts.items()]
    return _latest("Long results, by their id for read_artifact:", rows, size)


def _latest(title: str, rows: Sequence[str], size: int) -> str:
    """Return the latest rows that fit, and the number of earlier ones."""
    kept: list[str] = []
    for row in reversed(rows):
        size -= len(row.encode("utf-8", "replace")) + 1
        if size < 0:
            break
        kept.append(row)
    if not rows:
        return ""
    more = [f"- and {len(rows) - len(kept)} earlier ones"] if len(kept) < len(rows) else []
    return "\n".join([title, *more, *reversed(kept)])


def _notes(state: SessionState, still: Collection[str]) -> str:
    """Return the notes whose current text is not in the first message; the tasks are elsewhere in the block."""
    return "\n".join(text for name, text in state.notes.items() if name != "tasks" and text not in still)


def _error(state: SessionState) -> str:
    return f"The latest error, which may be mended since:\n{state.last_error}" if state.last_error else ""
