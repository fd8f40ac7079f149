"""Llama 3: `<|python_tag|>` before JSON, `tool.call(…)` or code; 4: `<|python_start|>[name(k="v")]<|python_end|>`.

Both also write bare JSON and bare lists of calls: see `bare`. Source: Meta's prompt formats.
"""

import re

from lmagent.providers.formats import jsoncalls, pycalls
from lmagent.providers.formats.base import Format as _Format
from lmagent.providers.formats.base import Found, FoundCall, Source
from lmagent.providers.formats.pycalls import NotACall

_ENDS = ("<|eom_id|>", "<|eot_id|>", "<|python_end|>", "<|eom|>", "<|eot|>")
_FENCE = re.compile(r"\A```[\w-]*[ \t]*\r?\n|\r?\n?```\s*\Z")
_METHOD = re.compile(r"([A-Za-z_]\w*)\.call\(")
_RUNNERS = ("python", "code_interpreter", "ipython", "interpreter", "execute_python")


def _read_tag(source: Source, at: int, opener: str) -> Found | None:
    place = source.skip(at)
    if source.text[place : place + 1] in ("{", "["):
        found = jsoncalls.between("llama-3", _ENDS)(source, at, opener)
        if found is not None and (found.cut is not None or any(call.name != jsoncalls.UNNAMED for call in found.calls)):
            return found
    if source.match(pycalls.CALL, place) or source.match(pycalls.LIST, place):
        found = _python(source, place)
        if found is not None:
            return found
    return code_call(source, place, _ENDS, "llama-3") if opener == "<|python_tag|>" else None


def _python(source: Source, at: int) -> Found | None:
    try:
        if source.text[at] == "[":
            found = pycalls.read_list(source, at, "llama-pythonic")
        else:
            found = pycalls.read_lines(source, at, "llama-pythonic", _ENDS)
    except NotACall:
        return None
    for call in found.calls:
        call.name = source.tools.plain(call.name.removesuffix(".call"))
    found.cut = None if found.cut is None else found.cut.removesuffix(".call")
    known = all(source.tools.known(call.name) for call in found.calls)
    if not known and source.text[at] != "[" and not source.match(_METHOD, at):
        return None  # code that happens to be one call
    return jsoncalls.closed(source, found, _ENDS)


def code_call(source: Source, at: int, closers: tuple[str, ...], format: str) -> Found | None:
    """Return a call of the tool that runs code, up to one of `closers` or the end.

    Raises:
        More: the text is not complete; mentions of tokens before it decide, too.
    """
    source.needs()
    place, word = source.first(closers, at)
    end = place if place >= 0 else source.end
    code = _FENCE.sub("", source.text[at:end].strip())
    if not code:
        return None
    name = next((each for each in _RUNNERS if source.tools.known(each)), "python")
    call = FoundCall(name=name, arguments={source.tools.main(name) or "code": code}, raw=code, format=format)
    return Found(end=end + len(word), items=[call], code=True)


FORMATS = (
    _Format(name="llama-3", openers=("<|python_tag|>",), read=_read_tag, quiet=("<|eom_id|>", "<|eot_id|>")),
    _Format(
        name="llama-4", openers=("<|python_start|>",), read=_read_tag, quiet=("<|python_end|>", "<|eom|>", "<|eot|>")
    ),
)
