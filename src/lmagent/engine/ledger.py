"""Ledger: what a compaction keeps without asking any model. Every line of it is a fact of the log."""

from __future__ import annotations

from collections.abc import Sequence

from lmagent.engine.state import SessionState

MAX_FILES = 60
MAX_ARTIFACTS = 40


def block(state: SessionState, user_texts: Sequence[str], summary: str, user_budget: int, *, goes_on: bool) -> str:
    """The text that takes the place of what was cut.

    Args:
        state: the session.
        user_texts: what the user said in the part that was cut, oldest first.
        summary: the model's summary, if there is one.
        user_budget: bytes of user text to keep; the first text (the task) and the latest ones stay longest.
        goes_on: whether nothing follows, so that the model must be told to go on.
    """
    parts = ["[The earlier conversation was shortened. What follows is the record of it.]"]
    if user_texts:
        said = "\n".join(f"<user_said>\n{text}\n</user_said>" for text in _within(user_texts, user_budget))
        parts.append(f"What the user said, in order:\n{said}")
    parts += [section for section in (_files(state), _artifacts(state), _notes(state), _error(state)) if section]
    if summary:
        parts.append(f"Your own summary:\n{summary}")
    parts.append(
        "The whole conversation is on record; look up what is missing with recall. Files on disk are the truth."
    )
    if goes_on:
        parts.append("Go on with the task.")
    return "\n\n".join(parts)


def _within(texts: Sequence[str], budget: int) -> list[str]:
    """The first text and the latest ones within the budget, in order, with a line where something is missing."""
    kept: dict[int, str] = {0: _shorten(texts[0], budget // 2 if len(texts) > 1 else budget)}
    left = budget - len(kept[0].encode())
    for position in range(len(texts) - 1, 0, -1):
        text = texts[position]
        size = len(text.encode())
        if size > left:
            if not any(index > position for index in kept):
                kept[position] = _shorten(text, left)
            break
        kept[position] = text
        left -= size
    lines: list[str] = []
    previous = -1
    for position in sorted(kept):
        if position != previous + 1:
            lines.append(f"[{position - previous - 1} earlier messages left out]")
        lines.append(kept[position])
        previous = position
    return lines


def _shorten(text: str, budget: int) -> str:
    raw = text.encode()
    if len(raw) <= budget:
        return text
    half = max(budget // 2, 100)
    head, tail = raw[:half].decode(errors="ignore"), raw[-half:].decode(errors="ignore")
    return f"{head}\n[… {len(raw) - 2 * half} bytes left out …]\n{tail}"


def _files(state: SessionState) -> str:
    if not state.files:
        return ""
    latest = list(state.files.items())[-MAX_FILES:]
    rows = [
        f"- {path} ({'changed by you' if mark.changed else 'read'}, sha256 {mark.sha256[:8]})" for path, mark in latest
    ]
    more = f"\n- and {len(state.files) - MAX_FILES} more" if len(state.files) > MAX_FILES else ""
    return "Files so far:\n" + "\n".join(rows) + more


def _artifacts(state: SessionState) -> str:
    if not state.artifacts:
        return ""
    rows = [f"- artifact:{handle}: {what}" for handle, what in list(state.artifacts.items())[-MAX_ARTIFACTS:]]
    return "Long outputs on record (read_artifact):\n" + "\n".join(rows)


def _notes(state: SessionState) -> str:
    return "\n".join(state.notes.values())


def _error(state: SessionState) -> str:
    return f"Last error:\n{state.last_error}" if state.last_error else ""
