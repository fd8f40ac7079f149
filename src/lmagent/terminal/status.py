"""Status: the current activity, from the view: the line under the prompt, and the line of a single task."""

from __future__ import annotations

from datetime import datetime

from lmagent.core.view import View
from lmagent.tools.sanitize import one_line

MODEL = 30

NOTICEABLE = 2.0
"""Seconds after which the user wants to know the reason for a wait."""

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAME = 0.125


def status_line(view: View, window: int, elapsed: float, running: str, sandbox: str) -> str:
    """Return model · state · context · cache · speed · mode; a narrow window cuts off the parts that change least.

    `window` counts tokens, `elapsed` seconds since the state began; `running` describes the running call, if any.
    """
    totals = view.totals
    parts = [one_line(view.model, MODEL)] if view.model else []
    parts.append(activity(view, elapsed, running))
    if totals.context:
        parts.append(f"{totals.context:,}/{window:,} tokens ({totals.context / window:.0%})")
    if totals.prompt and totals.cached:
        parts.append(f"cache {totals.cached / totals.prompt:.0%}")
    if view.pace.write_per_s:
        parts.append(f"{round(view.pace.write_per_s, 1):g} tokens/s")
    if slow := view.pace.why_slow():
        parts.append(slow)
    if any(task.is_open for task in view.tasks):
        parts.append(f"tasks {sum(not task.is_open for task in view.tasks)}/{len(view.tasks)}")
    if view.work != "normal":
        parts.append(f"{view.work} work" if view.work != "plan" else "plan mode")
    parts += [f"mode {view.mode}", f"sandbox {sandbox}"]
    return " · ".join(parts)


def activity(view: View, elapsed: float, running: str) -> str:
    """Describe the current activity, its duration, and the reason for a wait, with a moving spinner."""
    if view.approvals:
        return "waiting for you"
    state = _state(view, elapsed, running)
    rests = view.state == "idle" and view.progress is None and not running
    return state if rests else f"{_FRAMES[int(elapsed / FRAME) % len(_FRAMES)]} {state}"


def _state(view: View, elapsed: float, running: str) -> str:
    if view.progress is not None:
        return f"reading the prompt {view.progress:.0%}{_left(view.seconds_left)}"
    if running:
        return f"{running} {elapsed:.0f} s"
    if view.state == "idle":
        return f"waiting until {_clock(view.until)}" if view.until else "idle"
    if view.state == "queued":
        return f"waiting for another session's turn {elapsed:.0f} s"
    if view.state == "thinking" and not view.thinking:
        return _waiting(view, elapsed)
    return f"{'writing' if view.draft else view.state} {elapsed:.0f} s"


def _waiting(view: View, elapsed: float) -> str:
    pace = view.pace
    if pace.reading_s >= NOTICEABLE and elapsed < 2 * pace.reading_s:
        return f"reading {pace.fresh:,} tokens {elapsed:.0f} s{_left(max(0.0, pace.reading_s - elapsed))}"
    if elapsed >= NOTICEABLE:
        return f"waiting for the first word {elapsed:.0f} s (the model loads or reads the prompt)"
    return f"{view.state} {elapsed:.0f} s"


def _clock(moment: float) -> str:
    """Format a moment on this machine's clock; with the date, if that is another day."""
    there = datetime.fromtimestamp(moment)
    return f"{there:%H:%M:%S}" if there.date() == datetime.now().date() else f"{there:%Y-%m-%d %H:%M}"


def _left(seconds: float | None) -> str:
    return "" if seconds is None else f" (about {seconds:.0f} s left)"
