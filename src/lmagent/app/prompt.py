"""The prompt: its fixed part by the size of the window, and the notes at its tail: the date, the instructions.

A local model reads every byte before its first word, so each sentence has to earn its place. A session keeps its first
profile, since the fixed part never changes; `use_tool` calls the tools that a small profile leaves out.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from lmagent.core.agent import Window
from lmagent.core.commands import SetOptions
from lmagent.core.events import DurableEvent, OptionsChanged
from lmagent.core.ports import Clock
from lmagent.tools.plain import NotPlain, read_plain

if TYPE_CHECKING:
    from lmagent.app.registry import Registry
    from lmagent.engine.session import Session

_CORE = ("read", "write", "edit", "grep", "ls", "shell")
# Tools that do the same as a well-known command. Only `git_commit` does more: it has an author.
_IN_SHELL = frozenset({"mkdir", "get_time", "git_status", "git_diff", "git_add", "git_branch"})
_RARE = _IN_SHELL | {"git_commit", "delegate", "decompose"}


class Profile(Struct, frozen=True):
    """The contents of the fixed part.

    Attributes:
        below: tokens of the window up to which it is chosen; 0 for all.
        block: tools whose schemas are always sent; None for all that are not deferred.
        hidden: tools that the catalogue leaves out; they can still be called.
    """

    name: str
    below: int
    system: str = "system.md"
    block: tuple[str, ...] | None = None
    hidden: frozenset[str] = _IN_SHELL
    instructions: int = 8000


# The smallest windows in use are 4,096 tokens; from 32k on there is room for everything.
PROFILES = (
    Profile("4k", 6_000, "system-small.md", _CORE, _RARE, instructions=1000),
    Profile("8k", 12_000, "system-small.md", _CORE, _RARE, instructions=2000),
    Profile("16k", 24_000, instructions=4000),
    Profile("32k", 0),
)


def profile_for(window: Window) -> Profile:
    return next(profile for profile in PROFILES if not profile.below or window.tokens < profile.below)


def system_text(profile: Profile = PROFILES[-1]) -> str:
    return Path(__file__).with_name(profile.system).read_text(encoding="utf-8").strip()


# --- notes ------------------------------------------------------------------------------------------------------------

# Files of a project's own instructions; the first existing one counts. `/init` writes the second.
INSTRUCTIONS = (".lmagent.md", "AGENTS.md")

MOST = max(profile.instructions for profile in PROFILES)

DATE_NOTE = r"<date>Today is [^<]*</date>"  # the note differs between days: a replay of a recorded run ignores it

SESSION_NOTE = "instructions"

WITHDRAWN = "The user has withdrawn the instructions for this session."


def date_note(clock: Clock) -> Callable[[], str]:
    """Return a note source of today's date; the tool get_time gives the time of day."""

    def note() -> str:
        now = datetime.fromtimestamp(clock.now()).astimezone()
        return f"<date>Today is {now:%A, %Y-%m-%d} ({now:%Z}).</date>"

    return note


def workspace_note(workspace: Path, say: Callable[[str], None], limit: Callable[[], int]) -> Callable[[], str]:
    """Return a note source of the project's own instructions, read once; empty if the workspace has none."""
    name, text, more = _instructions(workspace, say)

    def note() -> str:
        sent = text[: limit()]
        cut = f"\n[… read {name} for the rest]" if more or len(sent) < len(text) else ""
        return f"<workspace>\nProject instructions ({name}):\n{sent}{cut}\n</workspace>" if text else ""

    return note


def _instructions(workspace: Path, say: Callable[[str], None]) -> tuple[str, str, bool]:
    """Return the name of the instructions' file, their beginning, and whether there are more."""
    for name in INSTRUCTIONS:
        try:
            found = read_plain(workspace, (name,), MOST)
        except NotPlain as what:
            say(
                f"lmagent: {name} is {what}; the project's instructions are not sent\n"
                f"  → make it a regular file that you can read: ls -l {workspace / name}"
            )
            return name, "", False
        if found is not None:
            return name, found.text.strip(), found.more
    return "", "", False


async def set_options(session: Session, command: SetOptions) -> DurableEvent | None:
    """Record the options; return None if they hold already."""
    if command.options == session.state.work.options:
        return None
    return await session.record(OptionsChanged(options=command.options, by=command.by), sync=True)


def instructions_note(registry: Registry, id: str) -> str:
    """Return the note with a session's instructions; a sub-agent has those of the session that it works for.

    It comes at the tail when it changes: the system text stays as it was sent, so nothing is read again.
    """
    session = top = registry.session(id)
    while top.above is not None:
        top = top.above
    text = top.state.work.options.instructions.strip()
    if text:
        text = f"What the user wants in this session, besides the task:\n{text}"
    elif SESSION_NOTE in session.state.notes:
        text = WITHDRAWN
    return f"<{SESSION_NOTE}>\n{text}\n</{SESSION_NOTE}>" if text else ""
