"""Place: whether markup is a call of the model, or an example in a text about calls."""

from __future__ import annotations

from lmagent.core.patterns import late
from lmagent.providers.formats.base import Found, Source, Toolset

_QUOTES = "\"'“‘«(`["
_ENDED = late(r"[.!?…:;。！？：；)\]*_~\"”’»|>`=#-]\s*\Z|[^\x00-\u2fff]\s*\Z")
_CUE = late(
    r"(?i)\b(?:like|e\.g\.|eg|i\.e\.|examples?|instance|format|syntax|form|writes?|wrote|emits?|looks?|tags?|tokens?|says?"
    r"|said|prints?|outputs?|literal|string|so|follows|this|means)[:,]?\s*\Z"
)
_JOINT = late(
    r"(?i)\b(?:as|is|are|with|by|of|use|uses|using|called|than|or|and|the|a|an|in|via|from|into|to|that|be)\s*\Z"
)
_EXAMPLE = late(
    r"(?i)\b(?:for example|an example|examples?:|e\.g\.|for instance|looks? like|like (?:this|so|that)|as follows"
    r"|(?:this|the|following|its|correct|right) (?:format|syntax|form)"
    r"|(?:models?|agents?|llms?) (?:write|emit|send|output)s?|(?:writes|emits|sends)(?: this| it)?"
    r"|(?:trace|transcript|template|sample)s?(?=:))(?!\w)[^\n.!?]{0,60}\Z"
)
_AROUND = late(r"(?:<(?:pre|code|examples?|samples?|blockquote)\b[^<>]{0,80}>|\"{3}|'{3})\Z")
"""The beginning of a quotation in a line of its own."""
_ITEM = late(r"\s*(?:[-*+•]|\d{1,3}[.)])[ \t]")
_GOES_ON = late(r"[a-z,.;:)!?'\"”’`\]}]|[-–—] ")


class MarkupPlace:
    """The text around markup: the line `before` it, the place `end` after it, and the last text `above` that line."""

    def __init__(self, source: Source, before: str, end: int, above: str = "") -> None:
        self._source = source
        self.before = before
        self.end = end
        self._above = above

    @staticmethod
    def ended(before: str) -> bool:
        return not before.strip() or bool(_ENDED.search(before))

    def after(self) -> str:
        """Return the rest of the line without counting markup there."""
        text, at = self._source.text, self.end
        while at < self._source.end and text[at] in " \t\r":
            at += 1
        return "" if text[at : at + 1] in ("", "\n") else self._text_at(at)

    def at_an_edge(self) -> bool:
        return not self.before.strip() or not self.after()

    def goes_on(self) -> bool:
        return bool(_GOES_ON.match(self.after()))

    def as_example(self) -> bool:
        """Return whether it is an example: announced above, and more text, or the sentence, continues below."""
        below = self._text_at(self._source.skip(self.end))
        above = self._above.rstrip().rpartition("\n")[2][-200:]
        if not below or not above:
            return False
        if _ITEM.match(below) and _ITEM.match(above) and above[-1] == ":":
            return True
        if _AROUND.search(above):
            return True
        goes_on = below[0].islower() and (above[-1] in ":," or not MarkupPlace.ended(above))
        return goes_on or bool(_EXAMPLE.search(above))

    def talks_of_tokens(self) -> bool:
        """Return whether the text above announces an example, or names special tokens itself."""
        return "<|" in self._above or bool(_EXAMPLE.search(self._above.rstrip().rpartition("\n")[2][-200:]))

    def _text_at(self, at: int) -> str:
        from lmagent.providers.formats.markup import INSIDE

        text = self._source.text
        if at >= self._source.end:
            return ""
        found = INSIDE.match(text, at)
        if found and found[0][0] != "`":
            return ""
        return text[at : at + 80].partition("\n")[0]


def belongs(place: MarkupPlace, found: Found, tools: Toolset, *, special: bool) -> bool:
    """Return whether calls are meant in their place; `special`: their markup is a token, never in prose by chance."""
    before = place.before.strip()
    if place.before[-1:] in _QUOTES and place.before[-1:]:
        return False
    joined = bool(before) and not MarkupPlace.ended(before)
    after = place.after() if found.cut is None else ""
    if before and _CUE.search(before):
        return False
    if found.code:
        return (not before or place.before[-1] in ".!?。！？") and not after and not place.talks_of_tokens()
    if special:
        return not (before and after) and (found.cut is not None or not place.as_example())
    if after and (before or _GOES_ON.match(after)):
        return False
    if joined:
        whole = found.cut is None and all(not call.fault and tools.known(call.name) for call in found.calls)
        return whole and not _JOINT.search(before)
    return found.cut is not None or bool(before) or not place.as_example()
