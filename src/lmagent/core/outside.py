"""Outside: marks text that is not the user's and not ours as data for the model.

Results of the built-in tools are data by a rule of the system prompt, and only need `escaped`. Text of MCP servers, web
pages and hooks, which is written for a model, also says where it comes from: `framed`. Both break imitations with a
backslash and leave all other text alone.
"""

from __future__ import annotations

import re
from functools import cache

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

_SOURCE = 80  # characters of a source that are shown
# Tags of the frame and control tokens of chat templates, up to the place of the backslash.
_TOKENS = (
    r"<(?=\s*/?\s*outside)"
    r"|<(?=[|｜])"
    r"|<(?=/?(?:s|bos|eos|pad|unk|think|tool_?calls?|tool_?response|start_of_turn|end_of_turn|start_of_image)>)"
    r"|<(?=/?(?:sop|eop|seed:\w+|minimax:\w+|special_\d+|start_of_audio)>)"
    r"|\[(?=/?(?:INST|SYS|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|ARGS|CALL_ID|THINK)\])"
    r"|\[(?=gMASK\]|\|\w+\|\])"
    r"|<(?=</?SYS>>)"
)


def framed(source: str, text: str) -> str:
    """Return a text from outside as data for the model, with its source: `<outside 1f3a… from="web example.org">`.

    The first and the last line hold eight digits of the text's own SHA-256, so that no text can be written that ends
    its frame. The text is `defused`. Callers cap the text, and make it `printable`.
    """
    import hashlib  # loads OpenSSL, and few sessions read from outside

    name = re.sub(r"[^\w .,:;/@+?&=%#~()$*!'|^-]", "_", source, flags=re.ASCII)[:_SOURCE]
    body = defused(text)
    mark = hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f'<outside {mark} from="{name}">\n{body}\n</outside {mark}>'


def defused(text: str) -> str:
    """Return a text that neither imitates a text of ours, nor holds characters that only a model sees, nor control
    tokens of a chat template, by which some servers would end the message.
    """
    return _patterns()[0].sub(r"\g<0>\\", escaped(seen(text)))


def seen(text: str) -> str:
    """Return a text without the characters that only a model sees."""
    return text if text.isascii() and text.isprintable() else _patterns()[1].sub("", text)


def escaped(text: str) -> str:
    """Put a backslash before each line that imitates a text of ours."""
    return _imitations().sub(r"\1\\", text) if "[" in text or "<" in text else text


@cache
def _imitations() -> re.Pattern[str]:
    """Compile the pattern with the first result: it takes a millisecond, and no first request needs it."""
    openings = "|".join((*map(re.escape, (*_OPENINGS, *_TAGS)), *_NOTES))
    return re.compile(rf"^({_NUMBERED})(?={openings})", re.MULTILINE | re.IGNORECASE)


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the patterns of beginnings of tags, and of characters that only a model sees."""
    return (
        re.compile(_TOKENS, re.IGNORECASE),
        re.compile(
            r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff]"
            # Fillers, and variants beyond those of emoji: each can carry a byte.
            r"|[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0e\uffa0]"
            r"|[\U000e0000-\U000e01ef]"
        ),
    )
