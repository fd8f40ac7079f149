"""What a word may become that is not fixed: braces are spread out, globs kept as globs, expansions stay unknown.

Only for rules that deny or ask: to them a name that could be meant is enough.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from lmagent.engine.shellline.words import GLUED, SPLIT, Word

_MAX_SPREAD = 64
_MAX_WORD = 4096
_OPEN, _CLOSE, _COMMA = b"{},"
_MAX_STARS = 4
_SEQUENCE = re.compile(rb"(?:(-?\d{1,9})\.\.(-?\d{1,9})|([A-Za-z])\.\.([A-Za-z]))(?:\.\.-?(\d{1,9}))?")
_Pair = tuple[bytes, bytes]


def spread(words: Sequence[Word]) -> tuple[Word, ...] | None:
    """The words with their braces spread out as bash does, or None where that is too much."""
    found: list[Word] = []
    for word in words:
        pairs = [(word.value, word.sketch)] if word.sketch else []
        spreads = _spread(pairs[0]) if pairs else []
        if spreads is None:
            return None
        # What becomes empty without quotes is no word at all.
        found += [_word(word, pair) for pair in spreads if pair[0]] if pairs else [word]
        if len(found) > _MAX_SPREAD + len(words):
            return None
    return tuple(found)


def named(word: Word) -> tuple[str, str] | None:
    """The name of the program that a word means, or a glob over such names; None where only the run will tell.

    What stands in front of the last slash is its folder: it may be unknown, where it cannot be several words.
    """
    if word.known:
        return word.text, ""
    value, sketch = word.value, word.sketch
    if not sketch or SPLIT in sketch or value.endswith(b"/"):
        return None
    at = value.rfind(b"/") + 1
    base, marks = value[at:], sketch[at:]
    if GLUED in marks:
        return None
    text = base.decode("utf-8", "surrogateescape")
    if not re.search(rb"[*?\[]", marks):
        return text, ""
    if marks.count(b"*") > _MAX_STARS:  # matching it would take time without end
        return None
    return text, _glob(base, marks).casefold()


def may_be(name: str, glob: str) -> bool:
    """Whether a name, which may be a glob itself, and a glob can mean the same; both in lower case."""
    if re.search(r"[*?\[]", name):
        heads = [re.split(r"[*?\[]", one, maxsplit=1)[0] for one in (name, glob)]
        tails = [re.split(r"[*?\]]", one)[-1] for one in (name, glob)]
        return (heads[0].startswith(heads[1]) or heads[1].startswith(heads[0])) and (
            tails[0].endswith(tails[1]) or tails[1].endswith(tails[0])
        )
    return re.fullmatch(_expression(glob), name, re.DOTALL) is not None


def _expression(glob: str) -> str:
    pieces = re.findall(r"\[!?[^\]]+\]|.", glob, re.DOTALL)
    return "".join(
        ".*" if piece == "*"
        else "." if piece == "?"
        else f"[{piece[1:-1].replace('!', '^', 1) if piece[1] == '!' else piece[1:-1]}]" if len(piece) > 1
        else re.escape(piece)
        for piece in pieces
    )  # fmt: skip


def _glob(base: bytes, marks: bytes) -> str:
    """`*`, `?` and simple `[a-z]` are kept; every other bracket becomes `?`; what is quoted, or odd, matches itself."""
    text, found, at = base.decode("latin-1"), "", 0
    while at < len(marks):
        end = marks.find(b"]", at + 2) if marks[at : at + 1] == b"[" else -1
        if end > 0:
            inner = marks[at + 1 : end].replace(b"^", b"!", 1)
            simple = re.fullmatch(rb"!?(?:[A-Za-z0-9_.]|[a-z]-[a-z]|[A-Z]-[A-Z]|[0-9]-[0-9])+", inner)
            found += f"[{inner.decode()}]" if simple and not _backwards(inner) else "?"
            at = end + 1
            continue
        char = text[at]
        found += char if marks[at : at + 1] in (b"*", b"?") else "?" if char in "*?[]" else char
        at += 1
    return found


def _backwards(inner: bytes) -> bool:
    return any(found[1] > found[2] for found in re.finditer(rb"(.)-(.)", inner))


def _word(word: Word, pair: _Pair) -> Word:
    value, sketch = pair
    if pair == (word.value, word.sketch):
        return word
    text = value.decode("utf-8", "surrogateescape")
    if not re.search(rb"[*?\[~" + SPLIT + GLUED + rb"]", sketch):
        return Word(text)
    return Word(text, known=False, loose=word.loose, value=value, sketch=sketch)


def _spread(pair: _Pair) -> list[_Pair] | None:
    if len(pair[0]) > _MAX_WORD:
        return None
    pending, done = [pair], list[_Pair]()
    while pending:
        one = pending.pop(0)
        parts = _first_brace(one)
        if parts is None:
            done.append(one)
        else:
            pending = [*parts, *pending]
        if len(pending) + len(done) > _MAX_SPREAD:
            return None
    return done


def _first_brace(pair: _Pair) -> list[_Pair] | None:
    """The alternatives of the first brace that has any."""
    value, sketch = pair
    best: tuple[list[int], re.Match[bytes] | None] | None = None
    opened: list[list[int]] = []  # where each open brace is, and the commas in it
    for at, char in enumerate(sketch):
        if char == _OPEN:
            opened.append([at])
        elif char == _COMMA and opened:
            opened[-1].append(at)
        elif char == _CLOSE and opened:
            cuts = [*opened.pop(), at]
            found = _SEQUENCE.fullmatch(sketch, cuts[0] + 1, at) if len(cuts) == 2 else None
            if (found or len(cuts) > 2) and (best is None or cuts[0] < best[0][0]):
                best = cuts, found
    if best is None:
        return None
    cuts, found = best
    if found:
        inner = [(one, one) for one in _sequence(found)]
    else:
        inner = [(value[a + 1 : b], sketch[a + 1 : b]) for a, b in itertools.pairwise(cuts)]
    front, back = slice(cuts[0]), slice(cuts[-1] + 1, None)
    return [(value[front] + text + value[back], sketch[front] + marks + sketch[back]) for text, marks in inner]


def _sequence(found: re.Match[bytes]) -> list[bytes]:
    first, last, start, end, by = found.groups()
    low, high = (int(first), int(last)) if first else (ord(start), ord(end))
    step = max(1, int(by or b"1")) * (1 if high >= low else -1)
    numbers = range(low, high + (1 if step > 0 else -1), step)[: _MAX_SPREAD + 2]
    if not first:
        return [bytes((number,)) for number in numbers]
    padded = any(re.match(rb"-?0\d", one) for one in (first, last))
    width = max(len(first), len(last)) if padded else 0
    return [str(number).zfill(width).encode() for number in numbers]
