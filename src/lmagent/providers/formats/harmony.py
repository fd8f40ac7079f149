"""Harmony (gpt-oss): messages with a channel and a recipient.

`<|channel|>commentary to=functions.name <|constrain|>json<|message|>{…}<|call|>`; the recipient may precede the
channel. The analysis channel is always thought; the final one, and commentary without a recipient, is text. Source:
OpenAI's description of the Harmony response format.
"""

import re

from lmagent.core.loosejson import fault_in
from lmagent.providers.formats import jsoncalls
from lmagent.providers.formats.base import Format, Found, FoundCall, Say, Source, unprefixed

_HEAD = re.compile(
    r"(?:<\|start\|>assistant)?(?P<before>[^<\n]{0,160})<\|channel\|>\s*(?P<channel>[a-z]+)(?P<after>[^<\n]{0,160})"
    r"(?:<\|constrain\|>\s*[\w-]{0,40}\s*)?<\|message\|>"
)
_TO = re.compile(r"to=([\w.:-]+)")
_ENDS = ("<|call|>", "<|end|>", "<|return|>", "<|start|>", "<|channel|>")
_CLOSES = ("<|call|>", "<|end|>", "<|return|>")
_THOUGHT_END = re.compile(r"<\|(?:end|start|return)\|>|(?:^|(?<=[\n.!?]))<\|channel\|>")
"""The end of a thought: a channel only if no sentence continues around it."""
_START = re.compile(r"<\|start\|>assistant\s*\Z")
_UNFINISHED = re.compile(r"[^\n]{0,400}\Z")


def _read(source: Source, at: int, opener: str) -> Found | None:
    begin = at if opener.startswith(" ") or opener[:1].isalpha() else at - len(opener)
    head = source.match(_HEAD, begin)
    if head is None:
        if (named := _TO.search(source.text, begin, begin + 200)) and source.match(_UNFINISHED, begin):
            return Found(end=source.end, cut=unprefixed(named[1]))
        return Found(end=source.end, header=True) if source.match(_START, begin) else None
    if head["channel"] == "analysis":
        end = source.search(_THOUGHT_END, head.end())
        end = end if end >= 0 else source.text.find("<|call|>", head.end())
        end = end if end >= 0 else source.end
        after = end + len(source.starts(end, *_CLOSES) if end < source.end else "")
        return Found(end=after, items=[Say(source.text[head.end() : end], thought=True)], header=True)
    to = _TO.search(head["before"] + " " + head["after"])
    if to is None:
        return Found(end=head.end(), header=True)
    return _call(source, unprefixed(to[1]), head)


def _call(source: Source, name: str, head: re.Match[str]) -> Found:
    place = source.skip(head.end())
    if place >= source.end:
        return Found(end=source.end, cut=name)
    if source.text[place] == "{":
        found = jsoncalls.named(source, name, place, _ENDS, "harmony")
    else:
        end, _ = source.first(_ENDS, place)
        end = end if end >= 0 else source.end
        raw = source.text[place:end].strip()
        main = source.tools.main(source.tools.plain(name))
        if main is not None or name == "python":
            found = Found(end=end, items=[source.call(name, {main or "code": raw}, place, end, "harmony")])
        else:
            name, fault = source.tools.plain(name), fault_in(raw)
            call = FoundCall(name=name, arguments=raw, raw=raw, format="harmony", fault=fault, spills=True)
            found = Found(end=end, items=[call])
    return jsoncalls.closed(source, found, _CLOSES)


FORMATS = (
    Format(
        name="harmony",
        openers=("<|channel|>", "<|start|>assistant"),
        read=_read,
        quiet=("<|end|>", "<|return|>", "<|call|>", "<|start|>"),
    ),
    Format(name="harmony", line=r" ?to=[\w.:-]+ ?<\|channel\|>", read=_read),
)
