"""The system text: fixed for the life of a session, the same bytes in every session, in every workspace, on every day.

What differs (the date, the workspace's name, project instructions) comes as notes at the tail. Every byte here is
read by a local model before it says its first word, so each sentence has to earn its place.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from lmagent.core.ports import Clock
from lmagent.tools.plain import NotPlain, read_plain

INSTRUCTIONS = ".lmagent.md"
"""The place that users of the older systems know for a project's own instructions."""

MAX_INSTRUCTIONS = 8000
"""Characters of project instructions that are sent: 2,000 tokens, read once a session."""

DATE_NOTE = r"<date>Today is [^<]*</date>"
WORKSPACE_NOTE = r"<workspace>The workspace is the folder '[^']*'"
"""What may differ between a recorded run and its replay on another day, in another folder."""


def system_text() -> str:
    """The system text, as it stands in `system.md` beside this file."""
    return Path(__file__).with_name("system.md").read_text(encoding="utf-8").strip()


def date_note(clock: Clock) -> Callable[[], str]:
    """A note source: today's date, which changes once a day; the time of day is asked for with get_time."""

    def note() -> str:
        now = datetime.fromtimestamp(clock.now()).astimezone()
        return f"<date>Today is {now:%A, %Y-%m-%d} ({now:%Z}).</date>"

    return note


def workspace_note(workspace: Path, say: Callable[[str], None]) -> Callable[[], str]:
    """A note source: the workspace's name and the project's own instructions, read once.

    Args:
        workspace: the workspace.
        say: shows the person why instructions that are there are not sent.
    """
    text = _instructions(workspace, say)

    def note() -> str:
        said = f"\nProject instructions ({INSTRUCTIONS}):\n{text}" if text else ""
        return f"<workspace>The workspace is the folder {workspace.name!r}.{said}</workspace>"

    return note


def _instructions(workspace: Path, say: Callable[[str], None]) -> str:
    try:
        found = read_plain(workspace, (INSTRUCTIONS,), MAX_INSTRUCTIONS)
    except NotPlain as what:
        say(
            f"lmagent: {INSTRUCTIONS} is {what}; the project's instructions are not sent\n"
            f"  → make it a regular file that you can read: ls -l {workspace / INSTRUCTIONS}"
        )
        return ""
    return "" if found is None else found.text.strip()
