"""InternLM 2 and 2.5: `<|action_start|><|plugin|>{"name": …, "parameters": {…}}<|action_end|>`, or code to run.

Source: the model's chat format document.
"""

from lmagent.providers.formats import jsoncalls
from lmagent.providers.formats.base import Format, Found, Source
from lmagent.providers.formats.llama import code_call

_ENDS = ("<|action_end|>",)
_plugin = jsoncalls.between("internlm", _ENDS)


def _read(source: Source, at: int, opener: str) -> Found | None:
    place = source.skip(at)
    kind = source.starts(place, "<|plugin|>", "<|interpreter|>") if opener == "<|action_start|>" else "<|plugin|>"
    place += len(kind) if opener == "<|action_start|>" else 0
    if kind == "<|interpreter|>":
        return code_call(source, place, _ENDS, "internlm")
    return _plugin(source, place, "<|plugin|>")


FORMATS = (Format(name="internlm", openers=("<|action_start|>", "<|plugin|>"), read=_read, quiet=_ENDS),)
