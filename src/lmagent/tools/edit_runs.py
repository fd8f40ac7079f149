"""Do two stretches of a line say the same, but for the length of runs of blanks and for typography?"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable

from lmagent.tools.edit_fold import fold
from lmagent.tools.edit_strings import scan

_RUN = re.compile("([ \t]+)")
_RUNS, _TYPO = 8, 32


def agree(line: str, start: int, stop: int, want: str, state: Callable[[], str]) -> int | None:
    """The bits by which `line[start:stop]` of the file and `want` of the search are the same text; None: they differ.

    Args:
        line: the file's line.
        start: where the stretch begins.
        stop: where it ends.
        want: the search's text.
        state: tells which string literal the line starts in; called only when runs of blanks differ.
    """
    have = line[start:stop]
    if have == want:
        return 0
    if _same_words(have, want) and _free_runs(line, start, have, want, state):
        return _RUNS
    if have.isascii() and want.isascii():
        return None
    for long_dash in (False, True):
        folded, sought = fold(have, long_dash=long_dash), fold(want, long_dash=long_dash)
        if folded == sought:
            return _TYPO
        if _same_words(folded, sought):
            whole = fold(line, long_dash=long_dash)
            margin = len(fold(line[:start], long_dash=long_dash))
            if _free_runs(whole, margin, folded, sought, state):
                return _TYPO | _RUNS
    return None


def _same_words(have: str, want: str) -> bool:
    return _RUN.split(have)[::2] == _RUN.split(want)[::2]


def _free_runs(line: str, start: int, have: str, want: str, state: Callable[[], str]) -> bool:
    """Whether every run of blanks that differs lies outside of string literals."""
    inside = scan(line, state())[0]
    for run, sought in zip(_RUN.finditer(have), _RUN.findall(want), strict=True):
        if run[0] != sought:
            after = bisect_left(inside, (start + run.end(), 0))  # strings before this one begin before the run ends
            if after and inside[after - 1][1] > start + run.start():
                return False
    return True
