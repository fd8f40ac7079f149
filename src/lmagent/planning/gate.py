"""Gate: whether a task state's own condition for the end holds.

Understood are `processed == total` (any blanks, `=`, `>=`, the fields' full names, a number instead of a name),
`remaining == 0`, `remaining_queue is empty`, `empty queue`, and several of them joined by `and`. Any other text is kept
and shown, and cannot be checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from lmagent.core.work import TaskState

_SIDE = r"[a-z_]+|[0-9]{1,15}"
_COMPARE = re.compile(rf"(?P<left>{_SIDE})\s*(?P<sign>={{1,3}}|>=|<=|>|<|equals?|is)\s*(?P<right>{_SIDE})")
_EMPTY = re.compile(
    r"(?:(?:the )?(?:remaining[_ ]?)?queue|remaining(?:_queue)?) (?:is|=|==) empty"
    r"|(?:empty|no)[_ ](?:remaining[_ ])?queue|(?:remaining[_ ])?queue[_ ]empty|not (?:remaining_)?queue"
)
_LENGTH = re.compile(r"len\s*\(\s*([a-z_]+)\s*\)")
_THOUSANDS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")

_SIGNS: dict[str, Callable[[int, int], bool]] = {
    ">=": lambda left, right: left >= right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    "<": lambda left, right: left < right,
}

_PROCESSED = frozenset({"processed", "processed_count", "done", "completed", "completed_count"})
_TOTAL = frozenset({"total", "total_count", "all"})
_REMAINING = frozenset({"remaining", "remaining_queue", "remaining_count", "queue", "left"})


def unmet(state: TaskState) -> str:
    """Return why the gate is not met; empty if it is met, absent, or cannot be checked."""
    for condition in _conditions(state.completion_gate):
        verdict = _judge(condition, state)
        if verdict:
            return verdict
    return ""


def is_checkable(gate: str) -> bool:
    conditions = _conditions(gate)
    return bool(conditions) and all(map(_readable, conditions))


def standing(state: TaskState) -> str:
    total = "?" if state.total_count is None else state.total_count
    counted = f"{state.processed_count} of {total} processed, {len(state.remaining_queue)} in the queue."
    if not state.completion_gate.strip():
        return counted
    if not is_checkable(state.completion_gate):
        return f"{counted} The gate cannot be checked: write processed == total, or remaining == 0."
    return f"{counted} The gate is {'not met' if unmet(state) else 'met'}."


def _conditions(gate: str) -> list[str]:
    text = _LENGTH.sub(r"\1", " ".join(gate.lower().strip().strip("`'\".").split()))
    text = _THOUSANDS.sub("", text)
    return [part.strip(" ()") for part in re.split(r"\band\b|&&|,", text) if part.strip(" ()")]


def _readable(condition: str) -> bool:
    return bool(_EMPTY.fullmatch(condition)) or _compared(condition) is not None


def _compared(condition: str) -> tuple[str, str, str] | None:
    found = _COMPARE.fullmatch(condition)
    known = _PROCESSED | _TOTAL | _REMAINING
    if found is None or not all(side.isdigit() or side in known for side in (found["left"], found["right"])):
        return None
    return found["left"], found["sign"], found["right"]


def _judge(condition: str, state: TaskState) -> str:
    if _EMPTY.fullmatch(condition):
        return _queue(state)
    compared = _compared(condition)
    if compared is None:
        return ""
    left, sign, right = compared
    sides = [_value(name, state) for name in (left, right)]
    if sides[0] is None or sides[1] is None:
        return "total_count is not set, so completion cannot be checked"
    holds = _SIGNS.get(sign, lambda one, other: one == other)(sides[0], sides[1])
    if holds:
        return ""
    if {left, right} & _REMAINING and (queue := _queue(state)):
        return queue
    return f"{condition} does not hold: {sides[0]} against {sides[1]}"


def _value(name: str, state: TaskState) -> int | None:
    if name.isdigit():
        return int(name)
    if name in _PROCESSED:
        return state.processed_count
    return state.total_count if name in _TOTAL else len(state.remaining_queue)


def _queue(state: TaskState) -> str:
    left = state.remaining_queue
    if not left:
        return ""
    more = f" and {len(left) - 10} more" if len(left) > 10 else ""
    return f"{len(left)} left in the queue: {', '.join(left[:10])}{more}"
