"""Standard: a skill in the form of the Agent Skills standard: a folder with a SKILL.md.

The file begins with YAML between two lines of `---`, in which `description` has at most 1,024 characters. The rest is
the text that the model gets when it uses the skill. The skill's name is its folder's; `name` is not read.
"""

from __future__ import annotations

import re
from typing import Any, cast

from msgspec import Struct

from lmagent.core.errors import ConfigError
from lmagent.tools.sanitize import visible

FILE = "SKILL.md"
LONGEST = 1024  # characters of a description

_FRONT = re.compile(r"---\s*\n(?P<front>.*?)\n---\s*(?:\n(?P<body>.*))?", re.DOTALL)


class TextSkill(Struct, frozen=True):
    """The content of a SKILL.md."""

    description: str
    body: str


def parse_skill(text: str, source: str) -> TextSkill:
    """Return the skill in a SKILL.md. Raise ConfigError: no front matter or description, or a wrong one."""
    import yaml  # only where there are skills

    found = _FRONT.fullmatch(text.lstrip("\ufeff"))
    if found is None:
        raise ConfigError(f"{source} does not begin with `---` and `description`", fix="see docs/skills.md")
    try:
        front: Any = yaml.load(found["front"], yaml.BaseLoader)  # which makes texts, lists and maps alone
    except (yaml.YAMLError, RecursionError) as wrong:
        raise ConfigError(
            f"{source} has no valid YAML at its beginning: {' '.join(str(wrong).split())}", fix="correct it"
        ) from None
    fields = cast("dict[str, Any]", front) if isinstance(front, dict) else {}
    value = fields.get("description")
    # Of a list, `str` could be as long as a repeated alias makes it.
    description = " ".join(value.split()) if isinstance(value, str) else ""
    if not description:
        raise ConfigError(f"{source} has no description", fix="add `description: when to use it`")
    if len(description) > LONGEST or visible(description) != description:
        raise ConfigError(f"the description in {source} is too long or has hidden characters", fix="shorten it")
    return TextSkill(description, (found["body"] or "").strip())
