"""Glob patterns: `*`, `?` and `[…]` within a name, `**` across directories, `{a,b}` for either.

A name that begins with a dot is a name like any other. Matching goes name by name with a set of positions in the
pattern, so that no pattern is slow, and excludes directories without matches early.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate
from typing import Final

from lmagent.core.errors import ToolError
from lmagent.policy.rules import alternatives
from lmagent.tools.sanitize import one_line

_ANY: Final = "**"
_Piece = re.Pattern[str] | str
"""`**`, or what one name must match."""


class Pattern:
    """A compiled pattern. Raises ToolError."""

    def __init__(self, text: str) -> None:
        try:
            self._chains = [_compile(alternative) for alternative in alternatives(text)]
        except ValueError as fault:
            raise ToolError(f"The pattern {one_line(text)} cannot be read: {fault}.") from None

    def matches(self, path: str) -> bool:
        """Return whether the whole path (relative, "/" separated) matches."""
        names = path.split("/")
        return any(len(chain) in _after(chain, names) for chain in self._chains)

    def may_hold(self, directory: str) -> bool:
        """Return whether a path beneath a directory can match."""
        names = directory.split("/")
        return any(min(_after(chain, names), default=len(chain)) < len(chain) for chain in self._chains)


def name_or_path(text: str) -> Pattern:
    """Return a filter: with a slash a pattern for the whole path, without one for the name in any directory."""
    return Pattern(text if "/" in text else f"**/{text}")


def fixed_start(text: str) -> str:
    """Return the directory of all matches, as far as the pattern names it literally."""
    names = text.split("/")[:-1]
    fixed = list[str]()
    for name in names:
        if set(name) & set("*?[{}"):
            break
        fixed.append(name)
    return "/".join(fixed) or "."


def _compile(text: str) -> list[_Piece]:
    pieces = list[_Piece]()
    for name in text.split("/"):
        if name == _ANY:
            if not pieces or pieces[-1] != _ANY:
                pieces.append(_ANY)
        elif name not in ("", "."):
            pieces.append(re.compile(translate(name)))
    if pieces and pieces[-1] == _ANY:
        pieces.append(re.compile(translate("*")))  # `src/**` matches all paths beneath src
    return pieces


def _after(chain: Sequence[_Piece], names: Sequence[str]) -> set[int]:
    """Return the positions in the pattern that are reached when all names are consumed."""
    states = _skip(chain, {0})
    for name in names:
        following = set[int]()
        for at in states:
            if at >= len(chain):
                continue
            piece = chain[at]
            if isinstance(piece, str):
                following.add(at)
            elif piece.match(name):
                following.add(at + 1)
        states = _skip(chain, following)
        if not states:
            break
    return states


def _skip(chain: Sequence[_Piece], states: set[int]) -> set[int]:
    """Add the positions after a `**`, which may match no directory at all."""
    return states | {at + 1 for at in states if at < len(chain) and isinstance(chain[at], str)}
