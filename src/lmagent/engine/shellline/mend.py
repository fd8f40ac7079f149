"""Where the grammar does not know what bash knows: the text is mended at the same length, so that places stay places.

{name}>file    opens a descriptor and notes its number in a variable: read as `9>file`
{r,}m  [c]url  a word that begins with a brace, or has a bracket: shown to the grammar with dots instead
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from lmagent.engine.shellline.words import names_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from tree_sitter import Node

_DESCRIPTOR = re.compile(rb"(?<![^\s;&|()`])(?<!\\[\s;&|()`])\{([A-Za-z_]\w*)\}(?=[<>])")
_TOKEN = re.compile(rb"(?<![^\s;&|()`])[^\s;&|()<>`$'\"\\]*[{\[][^\s;&|()<>`$'\"\\]*")
_MAX_TOKEN = 1000
_ODD = re.compile(rb"\{.*(?:,|\.\.).*\}|\[[^=]+\](?!\+?=)")
# What a text can put a name together with; in one that is not understood, nobody knows which it is.
_COMPUTES = re.compile(
    r"[$`*?\[{]|[<>]\("
    r"|(?<![\w-])(?:ba|da|z|k|mk|rba|a|fi|c|tc)?sh(?![\w-])|(?:^|[\s;&|({])(?:\.|source|eval|BASH_ENV|ENV=)",
    re.MULTILINE,
)
_RUNNERS = names_in("xargs parallel at batch crontab expect script alias env find")


class Descriptors(NamedTuple):
    """A text without its named descriptors, and the names."""

    source: bytes
    places: tuple[int, ...]
    names: tuple[str, ...]


def descriptors(source: bytes, kind: Callable[[bytes, int], str]) -> Descriptors | None:
    """Replace each `{name}` that is a descriptor by a number; `kind` parses a text and tells the token at a place.

    What looks like one may stand in quotes or in a here-document: those come back as they were.
    """
    found = list(_DESCRIPTOR.finditer(source))
    if not found:
        return None
    tried = _numbered(source, found)
    real = [one for one in found if kind(tried, one.end() - 1) == "file_descriptor"]
    return Descriptors(
        _numbered(source, real), tuple(one.end() - 1 for one in real), tuple(one[1].decode() for one in real)
    )


def _numbered(source: bytes, found: list[re.Match[bytes]]) -> bytes:
    better = bytearray(source)
    for one in found:
        better[one.start() : one.end()] = b"9".rjust(one.end() - one.start())
    return bytes(better)


def shown(source: bytes) -> bytes:
    """What the grammar may be shown instead, where it cannot read the text as it is."""
    return _TOKEN.sub(lambda found: _dotted(found[0]), source)


def _dotted(token: bytes) -> bytes:
    odd = len(token) < _MAX_TOKEN and _ODD.search(token) is not None
    return re.sub(rb"[{}\[\],]", b".", token) if odd else token


def computes(text: str) -> bool:
    """Whether a text that nobody understands may put a command together that does not stand in it."""
    return _COMPUTES.search(text) is not None or not _RUNNERS.isdisjoint(re.split(r"[^\w-]+", text))


def token(root: Node | None, at: int) -> str:
    """The kind of the smallest part of a tree at a place."""
    found = root.descendant_for_byte_range(at, at + 1) if root else None
    return found.type if found else ""
