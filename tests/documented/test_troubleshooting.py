"""What the troubleshooting page quotes is what the program says."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
QUOTED = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)


def test_every_message_that_the_page_quotes_is_one_of_the_program() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    quoted = QUOTED.findall(page)
    assert len(quoted) >= 6
    assert [message for message in quoted if message not in code] == []
