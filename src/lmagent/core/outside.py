"""Outside: marks text that is not the user's and not ours as data for the model.

Results of the built-in tools are data by a rule of the system prompt, and only need `escaped`. Text of MCP servers, web
pages and hooks, which is written for a model, also says where it comes from: `framed`. Both break imitations with a
backslash and leave all other text alone.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

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

_NAME = "outside"
_SOURCE = 80  # characters of a source that are shown

# Signs that a model may read as `<`, also those that other notations write for it.
_BRACKETS = "<[{＜﹤‹〈⟨〈⟪《«˂ᐸᚲ❮❰≺⧼⦑［｛【〔「『〖⦗⁅❲❴❬"
_BRACKET = rf"(?:[{re.escape(_BRACKETS)}]|(?i:&(?:lt|#0*60|#x0*3c);?|\\u003c|\\x3c|%3c))"
_LIKE = {
    letter: own
    for own, letters in {
        "o": "0οо০௦๐օഠ○◯〇",
        "u": "υսцμ∪",
        "t": "7τт†",
        "s": "5ѕʂ",
        "i": "1ιіıւ",
        "d": "ԁժɗđ∂",
        "e": "3еεє℮ҽ",
    }.items()
    for letter in letters
}
# Control tokens of chat templates, up to the place of the backslash.
_TOKENS = (
    r"<(?=[|｜])"
    r"|<(?=/?(?:s|bos|eos|pad|unk|think|tool_?calls?|tool_?response|start_of_turn|end_of_turn|start_of_image)>)"
    r"|\[(?=/?(?:INST|SYS|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\])"
    r"|<(?=</?SYS>>)"
)


def framed(source: str, text: str) -> str:
    """Return a text from outside as data for the model, with its source: `<outside from="web example.org">`.

    The text cannot end the frame, imitate a text of ours, or hold the control tokens of a chat template, by which some
    servers would end the message. Characters that only a model sees are left out. Callers cap the text, and make it
    `printable`.
    """
    name = re.sub(r"[^\w .,:;/@+?&=%#~()-]", "_", source, flags=re.ASCII)[:_SOURCE]
    return f'<{_NAME} from="{name}">\n{_harmless(text)}\n</{_NAME}>'


def escaped(text: str) -> str:
    """Put a backslash before each line that imitates a text of ours."""
    return _imitations().sub(r"\1\\", text) if "[" in text or "<" in text else text


def _harmless(text: str) -> str:
    brackets, tokens, unseen = _patterns()
    text = escaped(unseen.sub("", text))
    text = brackets.sub(lambda found: found[0] + "\\" * _is_name(found.string, found.end()), text)
    return tokens.sub(r"\g<0>\\", text)


def _is_name(text: str, at: int) -> bool:
    """Return whether a text spells the frame's name from a place on, in any letters and with anything in between."""
    spelled = ""
    for index in range(at, len(text)):
        if text[index] in _BRACKETS:  # looked at on its own
            return False
        spelled += _letters(text[index])
        if spelled.startswith(_NAME):
            return True
        if not _NAME.startswith(spelled):
            return False
    return False


@lru_cache(4096)
def _letters(character: str) -> str:
    """Return the plain letters that a character looks like; nothing for blanks, marks and punctuation."""
    import unicodedata  # few texts have a bracket before such a character

    plain = unicodedata.normalize("NFKD", character).casefold()
    if len(plain) == 1 and not plain.isascii():
        named = re.search(r"\bLETTER (?:\w+ )*?([A-Z])(?: WITH .*)?$", unicodedata.name(plain, ""))
        plain = named[1].lower() if named else plain
    return "".join(_LIKE.get(letter, letter) for letter in plain if letter in _LIKE or letter.isalnum())


@cache
def _imitations() -> re.Pattern[str]:
    """Compile the pattern with the first result: it takes a millisecond, and no first request needs it."""
    openings = "|".join((*map(re.escape, (*_OPENINGS, *_TAGS)), *_NOTES))
    return re.compile(rf"^({_NUMBERED})(?={openings})", re.MULTILINE | re.IGNORECASE)


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Return the patterns of brackets, beginnings of control tokens, and characters that only a model sees."""
    return (
        re.compile(rf"{_BRACKET}(?![A-NP-Za-np-z<])"),
        re.compile(_TOKENS, re.IGNORECASE),
        re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]"),
    )
