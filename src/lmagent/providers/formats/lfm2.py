"""LFM2: `<|tool_call_start|>[name(key="value")]<|tool_call_end|>`, or JSON in the same tokens.

Source: the model's card.
"""

from lmagent.providers.formats import jsoncalls, pycalls
from lmagent.providers.formats.base import Format

_OPEN, _ENDS = ("<|tool_call_start|>",), ("<|tool_call_end|>",)

FORMATS = (
    Format(name="lfm2", openers=_OPEN, read=pycalls.between("lfm2", _ENDS), quiet=_ENDS),
    Format(name="lfm2", openers=_OPEN, read=jsoncalls.between("lfm2", _ENDS)),
)
