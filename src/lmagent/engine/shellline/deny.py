"""What rules that deny, or ask, make of a line: any command that could be meant is enough, in any folder and wrapper.

What cannot be known before the line runs is told apart: `first_hidden` says that a rule might forbid it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

from lmagent.engine.shellline.compiled import Pat, generous
from lmagent.engine.shellline.guess import may_be
from lmagent.engine.shellline.segments import CommandLine, Segment
from lmagent.engine.shellline.unwrap import base_name

_VALUED = frozenset(("-C", "-c", "-f", "--git-dir", "--work-tree", "--namespace", "--prefix", "--manifest-path"))


def first_denied(line: CommandLine, patterns: Sequence[str]) -> str:
    """The first pattern of deny (or ask) rules that hits the line, or nothing."""
    for pattern in patterns:
        if any(hits(pattern, segment) for segment in (*line.segments, *line.possible)):
            return pattern
        if line.opaque and _mentions(pattern, line.text):
            return pattern
    return ""


def may_hide(line: CommandLine) -> str:
    """Why a line may run a command that only the run will tell, or nothing; then no rule that denies can be sure."""
    return line.hides


def hits(pattern: str, segment: Segment) -> bool:
    """Whether the pattern of a deny or ask rule could mean a command; generous."""
    compiled = generous(pattern)
    if not compiled.words:
        return compiled.rest
    if _hits(compiled.words, segment.argv, frozenset(segment.unknown), segment.glob):
        return True
    return any(_hits(compiled.words, argv, frozenset()) for argv in segment.via)


def _hits(pats: Sequence[Pat], argv: Sequence[str], unknown: frozenset[int], glob: str = "") -> bool:
    if not argv or not _is_name(pats[0].text.casefold(), argv[0].casefold(), glob):
        return False
    words = [(word, at in unknown) for at, word in enumerate(argv)][1:]
    if len(argv) in unknown:
        words.append(("$@", True))
    at = 0
    for index, pat in enumerate(pats[1:]):
        if pat.text.startswith("-"):
            if not _has_option(pat, words):
                return False
            continue
        anywhere = index > 0 or pat.glob is not None or "/" in pat.text
        at = _find_word(pat, words, at, anywhere=anywhere)
        if at < 0:
            return False
    return True


def _is_name(wanted: str, name: str, glob: str) -> bool:
    if glob:
        return may_be(base_name(wanted), glob)
    if any(one == wanted or fnmatchcase(one, wanted) for one in (name, base_name(name))):
        return True
    return base_name(wanted) == base_name(name) and "/" in wanted


def _find_word(pat: Pat, words: Sequence[tuple[str, bool]], at: int, *, anywhere: bool) -> int:
    """The place after the word, or -1. The first operand may only stand behind options (and their values)."""
    skipped = ""
    while at < len(words):
        word, unknown = words[at]
        is_value = unknown and skipped in _VALUED
        if not is_value and _is_word(pat, word, unknown=unknown):
            return at + 1
        if not anywhere and not word.startswith("-") and not skipped.startswith("-"):
            return -1
        skipped = word if word.startswith("-") and not unknown and "=" not in word else ""
        at += 1
    return -1


def _is_word(pat: Pat, word: str, *, unknown: bool) -> bool:
    if pat.text == word or (pat.glob is not None and pat.glob.fullmatch(word) is not None):
        return True
    # A run-time word may become anything; a glob only what its letters allow.
    return unknown and (re.search(r"[$`{]", word) is not None or fnmatchcase(pat.text, word))


def _has_option(pat: Pat, words: Sequence[tuple[str, bool]]) -> bool:
    if any(_is_word(pat, word, unknown=unknown) for word, unknown in words):
        return True
    if pat.text.startswith("--"):
        name = pat.text.partition("=")[0]
        long = [word.partition("=")[0] for word, _ in words if word.startswith("--") and len(word) > 3]
        return any(name.startswith(word) or word == name for word in long)
    clusters = "".join(word[1:] for word, _ in words if re.match(r"-[^-]", word))
    return len(pat.text) > 1 and all(letter in clusters for letter in pat.text[1:])


def _mentions(pattern: str, text: str) -> bool:
    """Whether a line that nobody understands has the pattern's program in it, also with quotes in the midst of it."""
    words = generous(pattern).words
    if not words or words[0].text == "*":
        return True
    name = base_name(words[0].text.casefold())
    escaped = re.escape(name).replace(re.escape("*"), r"[^\s/]*")
    form = re.compile(rf"(?<!\w){escaped}(?!\w)")
    return any(form.search(one) for one in _spellings(text))


@lru_cache(maxsize=4)
def _spellings(text: str) -> tuple[str, str]:
    """A text, and the same without what can be put into the midst of a word to hide it."""
    text = text.casefold()
    return text, re.sub(r"""\\\n|[\\'"]|\$\{?(?:ifs|@|\*)\}?""", "", text)
