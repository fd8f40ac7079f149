"""Makes text safe to show: no terminal escapes, no control characters, no invisible tricks.

Escape sequences after ECMA-48 (CSI, the control strings OSC, DCS, APC, PM and SOS, two-character escapes, and the 8-bit
C1 range); bidirectional controls after Unicode UAX #9.
"""

from __future__ import annotations

import re
from functools import cache

_CONTROLS = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
_SEQUENCES = (
    r"\x1b\[[0-?]*+[ -/]*+[@-~]?"  # CSI: parameters, intermediates, final byte
    r"|\x1b[\]PX^_][^\x07\x1b\x9c\n]*+(?:\x07|\x1b\\|\x9c)"  # a control string that is closed on its line
    r"|\x1b[ -/]*+[0-~]?"  # two characters, or a lone ESC
    f"|{_CONTROLS}"
)
_DECEPTIVE = (
    "[\u202a-\u202e\u2066-\u2069"  # bidirectional embeddings, overrides and isolates: text that reads another way
    "\u2028\u2029"  # line and paragraph separator: a line end to some terminals, none to others
    "\ud800-\udfff"  # lone surrogates: undecodable bytes of a file name, and no valid UTF-8
    "\U000e0000-\U000e007f]"  # tag characters: invisible ASCII
)
_UNSEEN = (  # without the joiners and variants that scripts and emoji need
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2060-\u2064\u206a-\u206f\u3164"
    "\ufeff\uffa0\U000e0100-\U000e01ef]"
)
_INVISIBLE = (  # no width, or only variants and fillers
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2060-\u2064\u206a-\u206f\u3164"
    "\ufe00-\ufe0e\ufeff\uffa0\U000e0100-\U000e01ef]"
)
_Patterns = tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]


@cache
def _patterns() -> _Patterns:
    """Return the patterns for suspicious, removed and escaped characters; cached, since start-up does not need them."""
    return re.compile(f"\r|{_CONTROLS}|{_DECEPTIVE}"), re.compile(_SEQUENCES), re.compile(_DECEPTIVE)


@cache
def _shown() -> re.Pattern[str]:
    return re.compile(f"\r|{_CONTROLS}|{_DECEPTIVE}|{_UNSEEN}")


def printable(text: str) -> str:
    """Return the text without terminal escapes and control characters; line feeds and tabs stay.

    CR LF becomes a line feed, and so does a lone CR, so that nothing overwrites the text before it. Characters that
    make text look like another text are shown as `\\u202e`. A control string that is never closed loses only its
    introducer: the text after it was meant to be hidden and is shown. Linear in the length of the text.
    """
    suspect, sequences, deceptive = _patterns()
    if suspect.search(text) is None:
        return text
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return deceptive.sub(_escaped, sequences.sub("", text))


def visible(text: str) -> str:
    """Return the text with all characters visible: those that a terminal would obey or hide are shown as `\\x1b`.

    For text that the user decides about: nothing is left out, so nothing can hide. Line feeds and tabs stay.
    """
    suspect = _shown()
    if suspect.search(text) is None:
        return text
    return suspect.sub(_escaped, text.replace("\r\n", "\n"))


def is_hiding(text: str) -> bool:
    """Return whether a text has characters that hide something or make it look like another text."""
    return visible(text) != text.replace("\r\n", "\n") or re.search(_INVISIBLE, text) is not None


def one_line(text: str, limit: int = 120) -> str:
    """Return the text on one line of at most `limit` characters, for labels and names; nothing hides in it."""
    line = visible(text).replace("\n", " ").replace("\t", " ")
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
