"""Status: the line under the prompt, from the view."""

from __future__ import annotations

from datetime import datetime

from lmagent.core.view import View

NOTICEABLE, LONG = 2.0, 8.0
"""Seconds from which a person wants to know what a wait is for."""


def status_line(view: View, window: int, elapsed: float, running: str, sandbox: str) -> str:
    """State · context · cache · speed · mode · model: what changes stands where a narrow window still shows it.

    Args:
        view: what is known.
        window: tokens of the window.
        elapsed: seconds since the state began.
        running: what runs, in words; empty for nothing.
        sandbox: where commands run.
    """
    totals = view.totals
    parts = [_state(view, elapsed, running)]
    if totals.context:
        parts.append(f"{totals.context:,}/{window:,} tokens ({totals.context / window:.0%})")
    if totals.prompt and totals.cached:
        parts.append(f"cache {totals.cached / totals.prompt:.0%}")
    if view.pace.write_per_s:
        parts.append(f"{view.pace.write_per_s:g} tokens/s")
    if slow := view.pace.why_slow():
        parts.append(slow)
    if any(task.is_open for task in view.tasks):
        parts.append(f"tasks {sum(not task.is_open for task in view.tasks)}/{len(view.tasks)}")
    if view.work != "normal":
        parts.append(f"{view.work} work" if view.work != "plan" else "plan mode")
    parts += [f"mode {view.mode}", f"sandbox {sandbox}", view.model or "the server's model"]
    return " · ".join(parts)


def _state(view: View, elapsed: float, running: str) -> str:
    if view.approvals:
        return "waiting for you"
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
    return f"{view.state} {elapsed:.0f} s"


def _waiting(view: View, elapsed: float) -> str:
    """Nothing has come yet: what the server is probably at."""
    pace = view.pace
    if pace.reading_s >= NOTICEABLE:
        return f"reading {pace.fresh:,} tokens {elapsed:.0f} s{_left(max(0.0, pace.reading_s - elapsed))}"
    if elapsed >= LONG and not view.totals.steps:
        return f"waiting for the first word {elapsed:.0f} s (the model is loading, or reads the prompt)"
    return f"{view.state} {elapsed:.0f} s"


def _clock(moment: float) -> str:
    """A moment on this machine's clock; with the date, where that is another day."""
    there = datetime.fromtimestamp(moment)
    return f"{there:%H:%M:%S}" if there.date() == datetime.now().date() else f"{there:%Y-%m-%d %H:%M}"


def _left(seconds: float | None) -> str:
    return "" if seconds is None else f" (about {seconds:.0f} s left)"
