from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lmagent.tools.diff import LIMIT, changed_lines, counts, unified

TEXT = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n", "last"]), max_size=30).map("".join)


@pytest.mark.skipif(shutil.which("patch") is None, reason="patch is not installed")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(old=TEXT, new=TEXT)
def test_patch_turns_one_text_into_the_other(tmp_path: Path, old: str, new: str) -> None:
    difference = unified("f", old, new)
    if old == new:
        assert difference == ""
        return
    (tmp_path / "f").write_text(old)
    subprocess.run(
        ["patch", "-s", "-E", "f"], input=f"{difference}\n", cwd=tmp_path, text=True, check=True, capture_output=True
    )
    assert ((tmp_path / "f").read_text() if (tmp_path / "f").exists() else "") == new


def test_several_places_are_several_hunks() -> None:
    old = "".join(f"{n}\n" for n in range(100))
    difference = unified("f", old, old.replace("10\n", "ten\n").replace("80\n", "eighty\n"))
    assert difference.count("@@ -") == 2
    assert counts(difference) == (2, 2)


def test_huge_changes_are_fast_and_capped() -> None:
    started = time.perf_counter()
    difference = unified("f", "".join(f"{n}\n" for n in range(50_000)), "".join(f"{n}x\n" for n in range(50_000)))
    assert time.perf_counter() - started < 2
    assert len(difference.encode()) <= LIMIT + 100
    assert difference.endswith("more lines of diff …")


def test_a_diff_holds_no_escapes() -> None:
    assert "\x1b" not in unified("a\x1b[2J", "x\x1b[31m\n", "y\x1b]0;t\x07\n")


def test_lines_are_counted_at_a_glance() -> None:
    assert changed_lines("a\nb\nc", "a\nX\nY\nc") == (2, 1)
    assert changed_lines("", "a\nb\n") == (2, 0)
    assert changed_lines("a", "a") == (0, 0)
