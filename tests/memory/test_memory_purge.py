"""What a purge finds: the text in each of its forms, also where it was cut, and nothing else."""

from __future__ import annotations

import json

import pytest

from lmagent.memory.purge import TextPattern

LONG = "The customer portal of Acme is deployed to the host nordwind on each Friday before noon, by Ada."


def left(text: str, content: str) -> str:
    kept, rest = b"", content.encode()
    at = 0
    for start, end in TextPattern(text).find(rest):
        kept, at = kept + rest[at:start], end
    return (kept + rest[at:]).decode()


@pytest.mark.parametrize(
    "text",
    [LONG, 'The "blue" door of Müller is C:\\new\\tab', "a.*+?[x]{2}|(y)$^", "Grüße 🦊 für dich", "مرحبا يا عالم"],
)
@pytest.mark.parametrize("ascii", [True, False])
def test_a_text_is_found_at_each_depth_of_json(text, ascii):
    content, empty = text, ""
    for _ in range(4):
        assert left(text, f"<{content}>") == f"<{empty}>"
        content, empty = (json.dumps({"a": inner}, ensure_ascii=ascii) for inner in (content, empty))


@pytest.mark.parametrize("cut", ["…", '"', '\\"', "\\u2026"])
def test_a_beginning_that_was_cut_is_found(cut):
    assert left(LONG, f"store: {LONG[:80]}{cut} more") == f"store: {cut} more"


def test_a_text_with_the_same_beginning_stays():
    other = LONG.replace("nordwind", "suedwind")
    assert left(LONG, f"- {other}\n- {LONG[:60]}\n") == f"- {other}\n- {LONG[:60]}\n"
