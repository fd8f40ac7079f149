"""Lines: what surfaces say about events, in one line each."""

from __future__ import annotations

from lmagent.core.events import BY_USER, Notice, RetryScheduled, ToolFinished, TurnFinished


def grant_in_a_line(grant: str) -> str:
    """Return the rules of a grant on one line, for the user."""
    return ", ".join(grant.split("\n"))


def advice_line(event: TurnFinished | Notice) -> str:
    """Return the line by which a terminal says what to do next, with the break before it; empty for nothing."""
    return f"\n  → {event.terminal or event.fix}" if event.terminal or event.fix else ""


def stop_line(event: TurnFinished) -> str:
    """Return the notice of a stopped turn: the user knows that they stopped it, so only another reason is included."""
    return "Stopped" if event.reason in ("", BY_USER) else f"Stopped: {event.reason}"


def ending_line(event: TurnFinished) -> str:
    """Return the terminal's line about how a turn ended; empty if it is simply done."""
    if event.cause == "permission" and event.outcome == "done":
        return "denied: a call needed an approval, and no user was there to give it" + advice_line(event)
    if event.outcome == "done":
        return ""
    if event.outcome == "interrupted":
        return stop_line(event) + advice_line(event)
    if event.cause != "permission" and event.answer.startswith("BLOCKED:") and event.outcome == "blocked":
        return ""  # the answer, above this line, says so itself
    words = event.reason if event.reason.startswith(event.outcome) else f"{event.outcome}: {event.reason}"
    if not event.reason or event.reason in event.answer:
        words = event.outcome
    if event.cause == "permission":
        words += "; a call was denied because no user was there to approve it"
    return words + advice_line(event)


def retry_line(event: RetryScheduled) -> str:
    """Return why a call is made again, and when."""
    wait = f" in {event.delay:.0f} s" if event.delay >= 1 else ""
    return f"{event.reason}; trying again{wait}"


def failure_line(event: ToolFinished) -> str:
    """Return why a call did not work, for a user: a denial in a few words, else the result."""
    if event.status == "denied" and isinstance(why := event.data.get("why"), str):
        return f"denied: {why}" if why != "by the user" else "denied"
    return event.content


def proof_line(event: TurnFinished) -> str:
    """Say whether the turn's changes are verified, and by which check; empty if it changed nothing."""
    return f"{event.proof}: {event.proof_reason}" if event.proof else ""


def command_end(event: ToolFinished) -> str:
    """Say how a command ended, if it failed: the call itself is no failure, but the user wants to know."""
    reason, code = event.data.get("reason", "exit"), event.data.get("exit_code", 0)
    if reason != "exit":
        return {"timeout": "timed out", "memory": "out of memory"}.get(str(reason), str(reason))
    if event.data.get("status") == "error":
        return "the code raised an error"
    return f"exit {code}" if code else ""
