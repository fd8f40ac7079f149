"""Comments: the page's modules go out without those that fill lines of their own; they are a fifth of what is sent.

Lines stay where they are, so that a browser's error names the line of the source. Comments behind code stay. What a
template literal holds must not begin a line like a comment; a test compares each module with what a parser makes of it.
"""

from __future__ import annotations

import re

_BLOCK = re.compile(r"^[ \t]*/\*(?:(?!\*/).)*\*/[ \t]*$", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"^[ \t]*//.*$", re.MULTILINE)


def without_comments(source: str) -> str:
    """A module without the comments that stand in lines of their own."""
    return _LINE.sub("", _BLOCK.sub(lambda found: "\n" * found[0].count("\n"), source))
