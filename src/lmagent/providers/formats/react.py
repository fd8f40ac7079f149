"""ReAct: `Thought:`, `Action:`, `Action Input:`, an invented `Observation:`, `Final Answer:`; Command-R's `Action:`.

An observation in the model's own reply is invented: it and all text after it are dropped. Source: LangChain's agent
prompts, Cohere's prompt format for Command-R.
"""

from lmagent.core.loosejson import fault_in
from lmagent.core.patterns import late
from lmagent.providers.formats import jsoncalls, pycalls
from lmagent.providers.formats.base import Format, Found, FoundCall, Say, Source

_B = r"(?:\*\*)?"
_ACTION = late(
    rf"{_B}Action{_B}[ \t]*\d*[ \t]*:{_B}[ \t]*[`\"'*]*(?P<name>[A-Za-z_][\w.-]{{0,127}})[`\"'*]*"
    rf"[ \t]*(?:\r?\n)+[ \t]*{_B}Action[ \t]+Input{_B}[ \t]*\d*[ \t]*:{_B}[ \t]*"
)
_BLOB = late(rf"{_B}Action{_B}[ \t]*\d*[ \t]*:{_B}\s*(?P<fence>```[\w-]*[ \t]*\r?\n?)?\s*(?=[{{\[])")
_FENCE = late(r"\s*```(?:json|JSON|python|text)?[ \t]*\r?\n?\s*")
_CODE = late(r"`(?=[{\[])")
_CLOSED = late(r"\s*(?:```|`)[ \t\r]*(?=\n|\Z)")
_NEXT = late(
    rf"(?m)^[ \t]*{_B}(?:(?:Action|Thought|Final Answer)\b[^:\n]{{0,12}}:|Observation\b[^:\n]{{0,12}}(?::|\Z)|</think)"
)
_OPEN_END = late(rf"[ \t]*{_B}(?:Action|Thought|Final Answer)\b")
_FENCE_END = late(r"(?m)^[ \t]*```[ \t\r]*$")
_STEP = late(rf"(?m)^[ \t]*{_B}(?:Action|Final Answer)\b[^:\n]{{0,12}}:")
_FINAL = late(rf"{_B}Final Answer{_B}[ \t]*:{_B}[ \t]*")
_INVENTED = late(rf"\s*{_B}Observation\b[^:\n]{{0,12}}(?::|\Z)")
_THOUGHT = late(rf"{_B}Thought\b[^:\n]{{0,12}}:{_B}[ \t]*")
_KEYED = late(r"([A-Za-z_]\w*)\s*=(?!=)")
_NOTHING = ("none", "n/a", "null", "{}", "")
_ANSWERS = ("final answer", "final_answer", "directly_answer", "directly-answer")


def _read_action(source: Source, at: int, _opener: str) -> Found | None:
    found = _with_input(source, at) or _as_blob(source, at)
    if found is None or found.cut is not None:
        return found
    place = source.skip(found.end)
    if source.match(_INVENTED, place):
        found.last = True
    return found


def _with_input(source: Source, at: int) -> Found | None:
    head = source.match(_ACTION, at)
    if head is None:
        return None
    name, place = source.tools.plain(head["name"]), head.end()
    if fenced := source.match(_FENCE, place) or source.match(_CODE, place):
        place = fenced.end()
    if source.text[place : place + 1] in ("{", "["):
        found = jsoncalls.named(source, name, place, ("Observation", "```", "Thought", "Action"))
        if fenced and (closed := source.match(_CLOSED, found.end)):
            found.end = closed.end()
        return found
    if not source.tools.known(name) and name != name.lower() and place < source.end:
        return None  # a plan for the user: "Action: Review", "Action Input: the plan"
    end = _input_end(source, place, fenced=bool(fenced))
    text = source.text[place:end].strip().removesuffix("```").strip()
    if not text and end >= source.end:
        return Found(end=end, cut=name)
    call = _of_text(source, name, text, source.text[at:end])
    if fenced and (closed := source.match(_CLOSED, end)):
        end = closed.end()
    in_string = any(text.count(mark) % 2 for mark in ('"""', "'''"))
    if in_string or (("\n" in text or "<<" in text) and not fenced and source.match(_OPEN_END, end)):
        call.fault = "it is unclear whether the input ends before the line of the next step"
    return Found(end=end, items=[call])


def _input_end(source: Source, place: int, *, fenced: bool) -> int:
    """Return the end of bare text as input: with its fence, or before the next step."""
    end = source.search(_FENCE_END if fenced else _NEXT, place)
    return end if end >= 0 else source.end


def _of_text(source: Source, name: str, text: str, raw: str) -> FoundCall:
    """Return a call whose input is bare text, meant for its only argument."""
    main = source.tools.main(name)
    if (keyed := _KEYED.match(text)) and keyed[1] in source.tools.properties(name):
        try:
            call, end = pycalls.read_call(Source(f"{name}({text})", source.tools), 0)
        except (pycalls.NotACall, pycalls.Cut):
            end = -1
        else:
            if end == len(name) + len(text) + 2:
                call.raw = raw
                return call
    if main is not None and text:
        bare = text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'`" else text
        return FoundCall(name=name, arguments={main: bare}, raw=raw)
    if text.lower() in _NOTHING:
        return FoundCall(name=name, arguments={}, raw=raw)
    return FoundCall(name=name, arguments=text, raw=raw, fault=fault_in(text))


def _as_blob(source: Source, at: int) -> Found | None:
    head = source.match(_BLOB, at)
    if head is None:
        return None
    found, _ = jsoncalls.read_values(source, head.end(), ("```",) if head["fence"] else ())
    if found is None:
        return None
    if head["fence"] and found.cut is None and (closed := source.match(_CLOSED, found.end)):
        found.end = closed.end()
    items: list[FoundCall | Say] = []
    for item in found.items:
        if isinstance(item, FoundCall) and item.name.lower() in _ANSWERS and not source.tools.known(item.name):
            items += _answer(item)
        else:
            items.append(item)
    found.items = items
    return found


def _answer(call: FoundCall) -> list[FoundCall | Say]:
    """Return an "action" that is the answer; Command-R's has no text."""
    given = call.arguments if isinstance(call.arguments, str) else next(iter(call.arguments.values()), "")
    return [Say(str(given))] if given else []


def _read_thought(source: Source, at: int, opener: str) -> Found | None:
    begun = source.match(_THOUGHT, at)
    step = source.search(_STEP, at)
    if begun is None or step < 0:
        return None
    thought = Say(source.text[begun.end() : step], thought=True)
    place = source.skip(step)
    if final := source.match(_FINAL, place):
        return Found(end=final.end(), items=[thought], header=True)
    found = _read_action(source, place, opener)
    if found is not None:
        found.items.insert(0, thought)
    return found


FORMATS = (
    Format(name="react", line=rf"{_B}Action\b[^:\n]{{0,12}}:", read=_read_action),
    Format(name="react", line=rf"{_B}Thought\b[^:\n]{{0,12}}:", read=_read_thought),
)
