"""A secret that the model sees as a mask is not lost by what the model writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmagent.engine.redact import MASK

ENV = "LLM_API_KEY=sk-secret-1234567890abcdef\nDEBUG=0\n"


@pytest.fixture
def env(hands, workspace: Path) -> Path:
    path = workspace / ".env"
    path.write_text(ENV)
    hands.mark(".env")
    return path


def test_a_whole_file_with_the_mask_in_the_secrets_place_is_refused(hands, env: Path) -> None:
    for content in (f"LLM_API_KEY={MASK}\nDEBUG=1\n", f"{MASK}{MASK}"):
        refusal = hands.refused("write", path=".env", content=content)
        assert "hidden from you" in refusal.message
        assert "Use edit on the other lines" in refusal.message
    assert "hidden from you" in hands.refused_unasked("write", path=".env", content=MASK).message
    assert env.read_text() == ENV


def test_an_edit_that_would_put_the_mask_in_is_refused(hands, env: Path) -> None:
    refusal = hands.refused("edit", path=".env", search="LLM_API_KEY=sk-secret", replace=f"LLM_API_KEY={MASK}")
    assert "would destroy" in refusal.message
    assert env.read_text() == ENV


def test_an_edit_that_looks_for_the_mask_is_told_why_it_is_not_there(hands, env: Path) -> None:
    refusal = hands.refused("edit", path=".env", search=f"{MASK}\nDEBUG=0", replace=f"{MASK}\nDEBUG=1")
    assert "cannot be searched for" in refusal.message


def test_an_edit_of_another_line_works_and_keeps_the_secret(hands, env: Path) -> None:
    hands("edit", path=".env", search="DEBUG=0", replace="DEBUG=1")
    assert env.read_text() == ENV.replace("0\n", "1\n")


def test_a_new_file_does_not_get_the_mask_for_a_secret(hands, workspace: Path) -> None:
    assert "leave it out" in hands.refused("write", path=".env.copy", content=f"KEY={MASK}\n").message
    assert not (workspace / ".env.copy").exists()


def test_a_file_that_really_holds_the_word_can_be_changed(hands, workspace: Path) -> None:
    (workspace / "redact.py").write_text(f'MASK = "{MASK}"\nX = 1\n')
    hands.mark("redact.py")
    hands("edit", path="redact.py", search=f'MASK = "{MASK}"', replace=f'THE_MASK = "{MASK}"')
    hands("write", path="redact.py", content=f'M = "{MASK}"\n')
    hands.refused("write", path="redact.py", content=f"{MASK} {MASK}")
