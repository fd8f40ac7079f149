"""Functionary: 2 (`<|recipient|>name<|content|>{…}`) and 3.2 (`>>>name`, line, `{…}`); text goes to recipient `all`.

Version 3.1 is in `qwen_coder`. The first `>>>`, or `<|from|>assistant`, belongs to the prompt. Source: MeetKai's
prompt templates.
"""

import re

from lmagent.providers.formats import jsoncalls
from lmagent.providers.formats.base import Format, Found, Source

_ENDS = ("<|stop|>", "<|from|>", ">>>", "<|eot_id|>")
_ALL = ("all\n", "all\r\n")
_SECOND = re.compile(r"\s*(?:assistant\s*)?(?:<\|recipient\|>\s*)?([\w.-]{1,128})\s*<\|content\|>[ \t\r]*\n?")
_LATER = re.compile(r">>>[A-Za-z_][\w.-]{0,127}[ \t]*\r?\n")
_THIRD = re.compile(r"([A-Za-z_][\w.-]{0,127})[ \t]*\r?\n\s*(?=\{|\Z)")


def _read_second(source: Source, at: int, opener: str) -> Found | None:
    head = source.match(_SECOND, at)
    if head is None:
        return None
    if head[1] == "all":
        return Found(end=head.end(), header=True)
    place = source.skip(head.end())
    if place < source.end and source.text[place] != "{":
        return None
    return _ended(source, jsoncalls.named(source, head[1], place, _ENDS, "functionary"))


def _read_third(source: Source, at: int, opener: str) -> Found | None:
    if everyone := source.starts(at, *_ALL):
        return Found(end=at + len(everyone), header=True)
    head = source.match(_THIRD, at)
    if head is None:
        return None
    if head.end() >= source.end:
        return Found(end=source.end, cut=head[1]) if source.tools.known(head[1]) else None
    return _ended(source, jsoncalls.named(source, head[1], head.end(), _ENDS, "functionary"))


def _ended(source: Source, found: Found) -> Found:
    """Include the token that ends it, but not the one that begins the next message."""
    return jsoncalls.closed(source, found, ("<|stop|>", "<|eot_id|>"))


def _read_all(source: Source, at: int, opener: str) -> Found | None:
    """Read the recipient of text at the very beginning, whose `>>>` was in the prompt; only if others follow."""
    if not source.begins or source.search(_LATER, at) < 0:
        return None
    return Found(end=at + len(opener), header=True)


FORMATS = (
    Format(name="functionary", openers=("<|from|>assistant", "<|recipient|>"), read=_read_second, quiet=("<|stop|>",)),
    Format(name="functionary", openers=(">>>",), read=_read_third),
    Format(name="functionary", line=r"all\r?\n", read=_read_all),
)
