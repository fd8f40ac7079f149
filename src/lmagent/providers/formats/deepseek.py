"""DeepSeek: V3 and R1 (type, name, fenced JSON), V3.1 (name, JSON), V3.2 and V4 (elements with a DSML prefix).

The separators inside the tokens are U+2581, the bars U+FF5C; models also write `_`, a blank or `\\_`, and `|`.
Source: the models' tokenizer configs and chat templates.
"""

import re

from lmagent.providers.formats import jsoncalls, xmlcalls
from lmagent.providers.formats.base import Format, Found, Source

_SEPARATORS = ("▁", "_", " ", "\\_")
_BARS = ("｜", "|")


def _spelled(*words: str) -> tuple[str, ...]:
    bars = [(left, right) for left in _BARS for right in _BARS]
    return tuple(f"<{left}{gap.join(words)}{right}>" for left, right in bars for gap in _SEPARATORS)


_ALL, _ONE = _spelled("tool", "calls", "begin"), _spelled("tool", "call", "begin")
_ALL_END, _ONE_END = _spelled("tool", "calls", "end"), _spelled("tool", "call", "end")
_STOPS = (*_ONE_END, *_ALL_END, *_ONE)
_GAP = r"(?:▁|_| |\\_)"
_BEGIN = re.compile(rf"<[｜|]tool{_GAP}call{_GAP}begin[｜|]>\s*")
_END = re.compile(rf"\s*(?:```)?\s*<[｜|]tool{_GAP}calls?{_GAP}end[｜|]>")
_FENCE_END = re.compile(r"\s*```")
_NAMED = re.compile(
    rf"(?:function\s*<[｜|]tool{_GAP}sep[｜|]>\s*)?([A-Za-z_][\w.:-]{{0,127}})\s*"
    rf"(?:<[｜|]tool{_GAP}sep[｜|]>|\n)\s*(?:```(?:json)?\s*)?"
)


def _read(source: Source, at: int, opener: str) -> Found | None:
    found = Found(end=at - len(opener) if opener in _ONE else at)
    while True:
        place = source.skip(found.end)
        begun = source.match(_BEGIN, place)
        place = begun.end() if begun else place
        named = source.match(_NAMED, place)
        if named is None or source.text[named.end() : named.end() + 1] not in ("{", ""):
            if begun and place >= source.end:
                found.cut, found.end = "", source.end
            break
        if not _call(source, found, named):
            break
    if found.cut is None and found.items and (ended := source.match(_END, found.end)):
        found.end = ended.end()
    return found if found.items or found.cut is not None else None


def _call(source: Source, found: Found, named: re.Match[str]) -> bool:
    """Add one call; return False if the text is cut inside it."""
    one = jsoncalls.named(source, named[1], named.end(), _STOPS, "deepseek")
    found.items += one.items
    found.end, found.cut = one.end, one.cut
    if one.cut is not None:
        return False
    ended = source.match(_END, found.end) or ("```" in named[0] and source.match(_FENCE_END, found.end))
    if ended:
        found.end = ended.end()
    return True


_BAR = r"[｜|]{1,2}DSML[｜|]{1,2}\s*"
_TAGS = xmlcalls.tags(
    call=rf"<{_BAR}invoke\s+name=[\"'](?P<name>[^\"'>]{{1,128}})[\"']\s*>",
    call_end=rf"</{_BAR}invoke>",
    value=rf"<{_BAR}parameter\s+name=[\"'](?P<key>[^\"'>]{{1,128}})[\"'](?:\s+string=[\"'](?P<text>true|false)[\"'])?\s*>",
    value_end=rf"</{_BAR}parameter>",
    over=rf"</{_BAR}(?:function_calls|tool_calls|calls)>",
)
_WRAPPERS = tuple(
    f"{bar}DSML{bar}{word}>" for bar in ("｜", "|", "｜｜") for word in ("function_calls", "tool_calls", "calls")
)
_DSML_ENDS = tuple(f"</{word}" for word in _WRAPPERS)

FORMATS = (
    Format(
        name="deepseek",
        openers=(*_ALL, *_ONE),
        read=_read,
        quiet=(*_ALL_END, *_ONE_END, "<｜end▁of▁sentence｜>"),
    ),
    Format(
        name="deepseek-v3.2",
        openers=tuple(f"<{word}" for word in _WRAPPERS),
        read=xmlcalls.inside("deepseek-v3.2", _TAGS, _DSML_ENDS),
        quiet=_DSML_ENDS,
    ),
    Format(
        name="deepseek-v3.2",
        openers=("<｜DSML｜invoke", "<|DSML|invoke"),
        read=xmlcalls.alone("deepseek-v3.2", _TAGS, _DSML_ENDS),
    ),
)
