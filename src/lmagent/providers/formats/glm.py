"""GLM-4.5 and later: `<tool_call>name <arg_key>k</arg_key> <arg_value>v</arg_value> </tool_call>`; GLM-4: name, JSON.

Hunyuan's later models put `<tool_sep>` after the name. Values of string arguments are bare, all others JSON. Source:
the chat templates of GLM-4.5 and GLM-4.
"""

import re

from lmagent.core.loosejson import Broken, Cut
from lmagent.providers.formats import xmlcalls
from lmagent.providers.formats.base import Format, Found, Source

_TAGS = xmlcalls.tags(
    call=r"<tool_call>\s*(?P<name>[A-Za-z_][\w.:-]{0,127})\s*(?:<tool_sep>\s*)?(?=<arg_key>|</tool_call>|\{|\Z)",
    call_end=r"</tool_call>",
    value=r"<arg_key>(?P<key>[^<]{1,128})</arg_key>\s*<arg_value>",
    value_end=r"</arg_value>",
    over=r"<\|(?:observation|user|endoftext)\|>",
)
_NAMED = re.compile(r"([A-Za-z_][\w.-]{0,127})[ \t]*\r?\n[ \t]*(?=\{)")


def _read_four(source: Source, at: int, _opener: str) -> Found | None:
    """Read the name on a line, and its arguments as JSON on the next."""
    named = source.match(_NAMED, at)
    if named is None or not source.tools.known(named[1]):
        return None
    try:
        value, end = source.value(named.end())
    except (Cut, Broken):
        return None
    return Found(end=end, items=[source.call(named[1], value, at, end, "glm-4")])


FORMATS = (
    Format(
        name="glm-4.5",
        openers=("<tool_call>",),
        read=xmlcalls.alone("glm-4.5", _TAGS, ("</tool_call>",)),
        quiet=("<|observation|>", "<|user|>", "<|assistant|>"),
    ),
    Format(name="glm-4", line=r"[A-Za-z_][\w.-]{0,127}[ \t]*\r?\n[ \t]*(?:\{|\Z)", read=_read_four, bare=True),
)
