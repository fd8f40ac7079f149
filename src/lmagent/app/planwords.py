"""Plan words: the visible part of a reply in plan mode. The plan itself is shown as text, never as its JSON."""

from __future__ import annotations

import re

_BEGINS = "[{`]"
"""The beginning of a plan, or of the fence around it."""


class PlanWords:
    """Holds back a possible plan until the reply is whole; without `planning` all text is shown as it comes."""

    def __init__(self) -> None:
        self.planning = False
        self._held = ""

    def feed(self, text: str) -> str:
        """Return the visible part of another piece."""
        if not self.planning:
            return text
        found = None if self._held else re.search(_BEGINS, text)
        if not self._held and found is None:
            return text
        at = found.start() if found is not None else 0
        self._held += text[at:]
        return text[:at]

    def finish(self, whole: str) -> tuple[str, str]:
        """Return the unshown rest at the end of a reply, and all of its visible text."""
        held, self._held = self._held, ""
        if not self.planning or '"steps"' not in whole:
            return held, whole
        from lmagent.planning.plans import Unusable, read_plan  # few replies are a plan

        found = read_plan(whole)
        words = f"(The plan cannot be followed: {found.words}.)" if isinstance(found, Unusable) else ""
        begins = re.search(_BEGINS, whole)
        return words, f"{whole[: begins.start()] if begins is not None else ''}{words}"

    def drop(self) -> None:
        """Forget the held text: the reply broke off and comes again."""
        self._held = ""
