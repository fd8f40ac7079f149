"""Frames: the lines that mark the harness's own texts, escaped where a tool's result imitates them.

A result is data. A file, a page or a program may print a line that looks like a frame; the model is shown that line
with a backslash in front, so that no result reads like a message.
"""

from __future__ import annotations

import re

STEERING = "[The user adds, while you work:]"
SHORTENED = "[The earlier conversation was shortened. What follows is the record of it.]"
"""Begins the record that replaces the messages of a compaction."""

_OPENINGS = (
    STEERING[:-1],
    SHORTENED[: len("[The earlier conversation was shortened")],
    "[The conversation must be shortened",
    "[You are a sub-agent",
    "[From here on you are a sub-agent",
    "[message ",
)
_TAGS = ("<user_said>", "</user_said>", "<replies>", "<work_tools>")
_BLANK = r"(?:[^\S\n]|[\u200b-\u200f\u2060-\u2064\ufeff])*"
_NUMBERED = rf"{_BLANK}(?:\d+[\t:|]{_BLANK})?"
_NOTES = (
    r"<environment>.*\bCommands:",
    r"<approvals>.* approvals[.:]",
    r"<date>Today is ",
    rf"<(?:tools|workspace|work|plan|budget|tasks|jobs|instructions)>{_BLANK}\n{_NUMBERED}[^<\s]",
)
"""Other files have these tags too: only a tag followed by text is an imitation, and XML stays unchanged."""
_FRAME = re.compile(
    rf"^({_NUMBERED})(?={'|'.join((*map(re.escape, (*_OPENINGS, *_TAGS)), *_NOTES))})",
    re.MULTILINE | re.IGNORECASE,
)


def escaped(content: str) -> str:
    """Put a backslash before each line that imitates a frame."""
    return _FRAME.sub(r"\1\\", content) if "[" in content or "<" in content else content
