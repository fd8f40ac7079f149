"""From a question in natural language to words, and to an expression of FTS5."""

from __future__ import annotations

import re
from collections.abc import Iterable

_WORD = re.compile(r"\w+")

_ASKING = ("?", "？")
_SENTENCE_END = re.compile(r"[.!?](?=[\s\"'”’)*_]|$)|[。！？]")

_MOST = 64
"""Words of a query that count: a pasted page would cost seconds."""

_STOP_TEXT = """
a about after again all also am an and any anything are as at back be because been before being between both but
by can could d did do does doing don done down during each ever every few for from get gets getting go goes going
got had has have having he her here hers herself him himself his how i if in into is it its itself just like ll m
many may me might mine more most much must my myself no nor not now of off on once one only or other our ours out
over own re s same shall she should so some something such t than that the their theirs them themselves then there
these they thing things this those through to too under until up upon us ve very was we were what when where which
while who whom whose why will with within would you your yours yourself
"""

_STOP_WORDS = frozenset(_STOP_TEXT.split())


def query_words(query: str) -> list[str]:
    """Return the words of a query that carry meaning, each once; all of them if none does."""
    words = list(dict.fromkeys(_WORD.findall(query.casefold())))
    return ([word for word in words if word not in _STOP_WORDS] or words)[:_MOST]


def match_expression(words: list[str]) -> str:
    """Return the FTS5 expression that any of the words matches. Quoted, a word is never an operator."""
    return " OR ".join(f'"{word}"' for word in words)


def named(speaker: str, words: frozenset[str]) -> bool:
    """Return whether the query's words name the speaker, by any part of the name."""
    return any(part in words for part in _WORD.findall(speaker.casefold()) if part not in _STOP_WORDS)


def without_names(query: str, speakers: Iterable[str]) -> str:
    """Return a query without the proper names of speakers, unless nothing else is left.

    Texts that hold a speaker's name are mostly what others say to that speaker, and mean little more than a greeting.
    """
    names = {part for speaker in speakers for part in _WORD.findall(speaker) if part[0].isupper()}
    if not names or not any(part in names for part in _WORD.findall(query)):
        return query
    some = "|".join(map(re.escape, names))
    rest = re.sub(rf"\b({some})\b(['’]s\b)?", "", query)
    return " ".join(rest.split()) if not _STOP_WORDS.issuperset(_WORD.findall(rest.casefold())) else query


def asks(text: str) -> bool:
    """Return whether a text asks for what another one says: it ends with a question, and asks as much as it tells."""
    if not text.rstrip(" \t\n\"'”’)*_").endswith(_ASKING):
        return False
    ends = _SENTENCE_END.findall(text)
    return 2 * sum(end in _ASKING for end in ends) >= len(ends)
