"""A number goes with its noun."""

from __future__ import annotations

import re
from pathlib import Path

from lmagent.core.plurals import plural

SOURCE = Path(__file__).parents[2] / "src/lmagent"


def test_one_thing_is_named_in_the_singular() -> None:
    assert [plural(count, "line") for count in (0, 1, 2, 2000)] == ["0 lines", "1 line", "2 lines", "2,000 lines"]
    assert [plural(count, "entry", "entries") for count in (1, 2)] == ["1 entry", "2 entries"]


def test_no_text_chooses_between_one_and_several_by_itself() -> None:
    own = re.compile(r"'' if \w+(\(.*?\))? == 1 else 's'|\"1 \w+\" if .* == 1 else")
    found = [str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if own.search(path.read_text("utf-8"))]
    assert found == []
