"""Titles: one clean line from any pasted or received text.

Lists, window titles and notifications show a title in the middle of other text, where a control character, or a mark
that turns the direction of writing around (Unicode UAX #9), would change the text beside it. They are left out.
"""

from __future__ import annotations

import re
from functools import cache

WORDS = 12
"""Words of a first message that are the session's title."""

LONGEST, LONGEST_GIVEN = 100, 200
"""Characters of a title: of a generated one, and of one that the user gave."""

ATTACHED = "\n\n[Attached by the user: "
"""Where the files begin that were attached to a message: they are no part of its title."""


@cache
def _hidden() -> re.Pattern[str]:
    """Matches controls, directions, invisible characters (but for the joiners of letters and emoji), halves of pairs,
    tag

    letters; compiled on first use, which is not at start-up.
    """
    return re.compile(
        "[\x00-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
        "\ud800-\udfff\U000e0000-\U000e007f]"
    )


def title_of(text: str, words: int | None = WORDS) -> str:
    """Return a title on one line.

    Args:
        text: a first message, or a title from the user.
        words: how many of its words are enough; None for all.
    """
    found = (_hidden().sub("", word) for word in text.partition(ATTACHED)[0].split())
    return " ".join([word for word in found if word][:words])[: LONGEST if words else LONGEST_GIVEN].rstrip()
