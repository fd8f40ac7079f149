"""Characters that a person cannot tell apart in a listing, folded to one: quotes, dashes, blanks, composition.

The folds serve comparison only; nothing folded is ever written to a file.
"""

from __future__ import annotations

import re
import unicodedata

_QUOTES = dict.fromkeys("‘’‚‛‹›", "'") | dict.fromkeys("“”„‟«»", '"')
_DASHES = dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-")
_BLANKS = dict.fromkeys(
    "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "
)
_TABLE = str.maketrans(_QUOTES | _DASHES | _BLANKS | {"…": "..."})
_LONG_TABLE = _TABLE | str.maketrans({"\u2014": "--"})
_DASH = re.compile("[-" + "".join(_DASHES) + "]+")
_ODD_DASH = re.compile("[" + "".join(_DASHES) + "]")
_UNIT = re.compile(
    "(?P<blank>[ \t" + "".join(_BLANKS) + "]+)|(?P<dash>[-" + "".join(_DASHES) + "]+)"
    "|[^\u0300-\u036f][\u0300-\u036f]+|[^\x00-\x7f]"
)


def fold(text: str, *, long_dash: bool = False) -> str:
    """`text` composed (NFC), with plain quotes, dashes, dots and blanks; an em dash as `--` if `long_dash`."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", text).translate(_LONG_TABLE if long_dash else _TABLE)


def has_odd_dash(text: str) -> bool:
    """Whether a dash other than the hyphen of a keyboard is in `text`."""
    return not text.isascii() and _ODD_DASH.search(text) is not None


def loose_keys(text: str, *, dashes: bool) -> list[str]:
    """A key for each line of `text` (line feeds only): equal for any two lines that a bridge could ever join.

    Args:
        text: the lines.
        dashes: runs of hyphens count as one, because a typographic dash is about.
    """
    folded = fold(text)
    if dashes:
        folded = _DASH.sub("-", folded)
    return [" ".join(line.split()) for line in folded.split("\n")]


def loose_map(line: str, *, dashes: bool) -> tuple[str, list[int]]:
    """`line` folded, its runs of blanks as one, and for each of these characters (and the end) where it came from.

    The origin is -1 inside of what came from one character, such as the second dot of an ellipsis.
    """
    pieces: list[str] = []
    origin: list[int] = []
    position = 0
    for unit in _UNIT.finditer(line):
        if unit["dash"] and not dashes and unit["dash"].isascii():
            continue
        pieces.append(line[position : unit.start()])
        origin += range(position, unit.start())
        short = " " if unit["blank"] else "-" if unit["dash"] and dashes else fold(unit[0])
        pieces.append(short)
        origin += [unit.start()] + [-1] * (len(short) - 1)
        position = unit.end()
    pieces.append(line[position:])
    origin += range(position, len(line) + 1)
    return "".join(pieces), origin
