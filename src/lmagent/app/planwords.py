"""Plan words: what a person sees of a reply in plan mode. The plan itself is shown to be read, never as its JSON."""

from __future__ import annotations

import re

_BEGINS = "[{`]"
"""What a plan, or the fence around it, begins with."""


class PlanWords:
    """Holds back what may be a plan until the reply is whole.

    Attributes:
        planning: whether the session is in plan mode; outside of it everything is shown as it comes.
    """

    def __init__(self) -> None:
        self.planning = False
        self._held = ""

    def feed(self, text: str) -> str:
        """What is shown of another piece."""
        if not self.planning:
            return text
        found = None if self._held else re.search(_BEGINS, text)
        if not self._held and found is None:
            return text
        at = found.start() if found is not None else 0
        self._held += text[at:]
        return text[:at]

    def finish(self, whole: str) -> tuple[str, str]:
        """What is still to be shown at the end of a reply, and what of all of it, for who has shown nothing yet."""
        held, self._held = self._held, ""
        if not self.planning or '"steps"' not in whole:
            return held, whole
        from lmagent.planning.plans import Unusable, read_plan  # few replies are a plan

        found = read_plan(whole)
        words = f"(The plan cannot be followed: {found.words}.)" if isinstance(found, Unusable) else ""
        begins = re.search(_BEGINS, whole)
        return words, f"{whole[: begins.start()] if begins is not None else ''}{words}"

    def drop(self) -> None:
        """Forget what was held back: the reply broke off and comes again."""
        self._held = ""
