"""Notifying: a command calls the user when the agent waits for them, or has ended, while they look elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from lmagent.core import events as ev

Kind = Literal["approval", "plan", "finished"]

LONGEST = 500  # characters of a text in the command's variables


class UserCall(Struct, frozen=True):
    """A reason to call the user."""

    kind: Kind
    text: str
    outcome: str = ""


class Attention(Struct):
    """Decides from a session's events when to call its user."""

    after: float  # seconds since the user's last input that must have passed: a user who has just typed is still there
    _since: float = 0.0

    def of(self, event: ev.Event) -> UserCall | None:
        """Return the call for an event; None if it needs none."""
        if isinstance(event, ev.InputReceived):
            self._since = event.ts
        found = ev.innermost(event)[1]
        return _call(found, of_child=found is not event) if found.ts - self._since >= self.after else None


def _call(event: ev.Event, *, of_child: bool) -> UserCall | None:
    match event:
        case ev.ApprovalRequested():
            return UserCall("approval", event.summary)
        case ev.PlanProposed() if not of_child:
            return UserCall("plan", event.plan.title)
        case ev.TurnFinished() if not of_child and event.cause != "plan":
            if event.outcome == "interrupted" or (event.outcome == "waiting" and event.until):
                return None  # the user did it, or the work continues by itself
            return UserCall("finished", event.answer or event.reason, event.outcome)
        case _:
            return None


class Notifier:
    """Runs the user's own command when their attention is needed.

    The command gets facts in variables, never in its text: a model's output cannot become part of it. It runs as the
    user, outside of the sandbox, and the program does not wait for it.
    """

    def __init__(self, command: str, after: float, session: Callable[[], tuple[str, str]], workspace: Path) -> None:
        self._command = command
        self._attention = Attention(after)
        self._session = session
        self._workspace = workspace

    def __call__(self, event: ev.Event) -> None:
        if (call := self._attention.of(event)) is None:
            return
        told = variables(call, *self._session(), self._workspace)
        options: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        options |= {"cwd": self._workspace, "env": {**os.environ, **told}, "start_new_session": sys.platform != "win32"}
        with suppress(OSError):  # no shell, or too many processes: the work itself continues
            process = subprocess.Popen(self._command, shell=True, **options)
            threading.Thread(target=process.wait, daemon=True).start()


def variables(call: UserCall, session: str, title: str, workspace: Path) -> dict[str, str]:
    said = {
        "LMAGENT_EVENT": call.kind,
        "LMAGENT_OUTCOME": call.outcome,
        "LMAGENT_SESSION": session,
        "LMAGENT_TITLE": title,
        "LMAGENT_TEXT": call.text,
        "LMAGENT_WORKSPACE": str(workspace),
    }
    return {name: _plain(value) for name, value in said.items()}


def _plain(text: str) -> str:
    """Return the text without control sequences, and without characters that a variable cannot hold."""
    return "".join(sign if sign.isprintable() else " " for sign in text[:LONGEST])
