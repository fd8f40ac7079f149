"""Theme: the colours of finished text, suited to the terminal's background."""

from __future__ import annotations

import re
from collections.abc import Mapping

_SGR = re.compile(r"\x1b\[([0-9;]*)m")

_ON_LIGHT = {"40": "", "33": "35", "36": "34", "37": "30", **{str(90 + n): str(30 + n) for n in range(8)}}
"""Replacements for colours that are unreadable on a light background."""

_LIGHT_BACKGROUNDS = frozenset({"7", "15"})


def resolved(theme: str, environ: Mapping[str, str]) -> str:
    """Return the theme that `auto` means: light if the terminal says so (COLORFGBG), else dark."""
    if theme == "auto":
        return "light" if environ.get("COLORFGBG", "").rpartition(";")[2] in _LIGHT_BACKGROUNDS else "dark"
    return theme


def recoloured(text: str, theme: str) -> str:
    """Return the text with the theme's colours in its escape sequences; other attributes (bold, dim …) stay."""
    if theme == "dark" or "\x1b[" not in text:
        return text
    return _SGR.sub(lambda found: _sequence(found[1], theme), text)


def _sequence(parameters: str, theme: str) -> str:
    kept: list[str] = []
    given = parameters.split(";")
    while given:
        one = given.pop(0)
        if one in ("38", "48"):  # an extended colour: 5;N or 2;R;G;B follow
            size = 2 if given[:1] == ["5"] else 4
            extended, given = [one, *given[:size]], given[size:]
            kept += [] if theme == "none" else extended
        elif theme == "none":
            kept += [one] if not re.fullmatch(r"3\d|4\d|9\d|10\d", one) else []
        elif replaced := _ON_LIGHT.get(one, one):
            kept.append(replaced)
    return f"\x1b[{';'.join(kept)}m" if kept or not parameters else ""
