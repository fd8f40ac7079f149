"""Status: the line under the prompt, from the view."""

from __future__ import annotations

from lmagent.core.view import View


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
    if totals.tokens_per_s:
        parts.append(f"{totals.tokens_per_s:g} tokens/s")
    parts += [f"mode {view.mode}", f"sandbox {sandbox}", view.model or "the server's model"]
    return " · ".join(parts)


def _state(view: View, elapsed: float, running: str) -> str:
    if view.approvals:
        return "waiting for you"
    if view.progress is not None:
        return f"reading the prompt {view.progress:.0%}"
    if running:
        return f"{running} {elapsed:.0f} s"
    if view.state == "idle":
        return "idle"
    return f"{view.state} {elapsed:.0f} s"
