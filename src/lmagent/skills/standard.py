"""Standard: a skill in the form of the Agent Skills standard: a folder with a SKILL.md.

The file begins with YAML between two lines of `---`: `name` (lower case, digits and hyphens, at most 64 characters) and
`description` (at most 1,024). The rest is the text that the model gets when it uses the skill.
"""

from __future__ import annotations

import re
from typing import Any, cast

from msgspec import Struct

from lmagent.core.errors import ConfigError
from lmagent.tools.sanitize import visible

FILE = "SKILL.md"
LONGEST = 1024  # characters of a description

NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")

_FRONT = re.compile(r"---\s*\n(?P<front>.*?)\n---\s*(?:\n(?P<body>.*))?", re.DOTALL)


class TextSkill(Struct, frozen=True):
    """The content of a SKILL.md."""

    name: str
    description: str
    body: str


def parse_skill(text: str, source: str) -> TextSkill:
    """Return the skill in a SKILL.md. Raise ConfigError: no front matter, name or description, or a wrong one."""
    import yaml  # only where there are skills

    found = _FRONT.fullmatch(text.lstrip("\ufeff"))
    if found is None:
        raise ConfigError(f"{source} does not begin with `---`, `name` and `description`", fix="see docs/skills.md")
    try:
        front: Any = yaml.load(found["front"], yaml.BaseLoader)  # which makes texts, lists and maps alone
    except (yaml.YAMLError, RecursionError) as wrong:
        raise ConfigError(
            f"{source} has no valid YAML at its beginning: {' '.join(str(wrong).split())}", fix="correct it"
        ) from None
    fields = cast("dict[str, Any]", front) if isinstance(front, dict) else {}
    # Of a list, `str` could be as long as a repeated alias makes it.
    name, description = (value if isinstance(value := fields.get(key), str) else "" for key in ("name", "description"))
    description = " ".join(description.split())
    if not description:
        raise ConfigError(f"{source} has no description", fix="add `description: when to use it`")
    if len(name) > 64 or not NAME.fullmatch(name):
        raise ConfigError(f"{source} has no valid name: {name!r}", fix="use lower case, digits and hyphens")
    if len(description) > LONGEST or visible(description) != description:
        raise ConfigError(f"the description in {source} is too long or has hidden characters", fix="shorten it")
    return TextSkill(name, description, (found["body"] or "").strip())
