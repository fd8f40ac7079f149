"""The process in which grep runs regular expressions: it can be killed, a thread that is inside `re` cannot.

It is a script in an isolated interpreter of the same Python, so both sides speak `marshal`. On standard input: the
pattern, then texts. On standard output: why the pattern cannot be read, or "", then the matching lines of each text.
The alarm ends it when its time is over.
"""

import marshal
import re
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

KEPT = 500
"""Matching lines of one text that are returned; further ones are only counted."""


def matching_lines(search: Callable[[str], Any], text: str) -> tuple[list[tuple[int, int, int]], int]:
    """Return (number, start of the match, end of the match) of the first matching lines, and the count of all."""
    hits, total = list[tuple[int, int, int]](), 0
    for number, line in enumerate(text.split("\n"), 1):
        found = search(line.removesuffix("\r"))
        if found is not None:
            total += 1
            if total <= KEPT:
                hits.append((number, found.start(), found.end()))
    return hits, total


def main() -> None:
    signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))  # the default action of SIGALRM is to end the process
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    search, fault = None, ""
    try:
        search = re.compile(marshal.load(requests)).search
    except (re.error, OverflowError, RecursionError) as error:
        fault = str(error)
    marshal.dump(fault, replies)
    replies.flush()
    with suppress(EOFError):
        while search is not None:
            marshal.dump(matching_lines(search, marshal.load(requests)), replies)
            replies.flush()


if __name__ == "__main__":
    main()
