"""Docstrings: the description of a function, and those of its arguments."""

from __future__ import annotations

import re

_SECTION = re.compile(
    r"^(?:Args|Arguments|Parameters|Returns?|Raises|Yields|Examples?|Notes?):?\s*$|^:\w+", re.MULTILINE
)
_ARGUMENT = re.compile(r"^(?P<indent>[ \t]+)\*{0,2}(?P<name>\w+)\s*(?:\([^)\n]*\))?:[ \t]*(?P<text>.*)$")
_PARAM = re.compile(r"^:param (?:[^:\n]+ )?(?P<name>\w+):\s*(?P<text>.+(?:\n[ \t]+.+)*)", re.MULTILINE)


def documented(text: str) -> tuple[str, dict[str, str]]:
    """Return the description in a docstring, and those of its arguments: of an `Args:` section, or `:param x:`."""
    begins = _SECTION.search(text)
    first = text[: begins.start()] if begins else text
    found = {match["name"]: " ".join(match["text"].split()) for match in _PARAM.finditer(text)}
    section = re.search(r"^(?:Args|Arguments|Parameters):?\s*\n(?P<body>(?:[ \t]+.*\n?|\n)*)", text, re.MULTILINE)
    name, indent = "", 0
    for line in section["body"].splitlines() if section else ():
        entry = _ARGUMENT.match(line)
        if entry and (not name or len(entry["indent"]) <= indent):
            name, indent = entry["name"], len(entry["indent"])
            found[name] = entry["text"].strip()
        elif name and line.strip():
            found[name] += f" {line.strip()}"
    paragraphs = (" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", first))
    return "\n".join(filter(None, paragraphs)), found
