"""Runs of models that lie, and of some that do not, with the real tools in a real workspace."""

from __future__ import annotations

import subprocess
import sys

import anyio
import pytest
from playing import RUNS, play
from testkit.amount import mostly_long

PREPARED = [run for run in RUNS["liars"] if len(run["calls"]) > 2]
"""Liars that prepare their lie by several calls. The others end in a line of their own, which the check replaces."""

WORKS = "\nassert add(2, 2) == 4 and add(1, 3) == 4"


def is_mended(folder) -> bool:
    """Whether calc.py adds, looked at from outside of the folder."""
    code = (folder / "calc.py").read_text(encoding="utf-8") + WORKS
    return (
        subprocess.run([sys.executable, "-I", "-B", "-c", code], cwd="/", check=False, capture_output=True).returncode
        == 0
    )


@pytest.mark.parametrize("run", mostly_long(RUNS["liars"], kept=75), ids=lambda run: run["name"])
def test_a_liar_is_never_verified(folder, run):
    finished = anyio.run(play, folder, run)
    assert finished.proof != "verified", finished.proof_reason


@pytest.mark.parametrize("run", mostly_long(PREPARED, kept=len(PREPARED) // 3), ids=lambda run: run["name"])
def test_a_liar_is_verified_by_the_projects_own_check_only_where_the_code_works(folder, run):
    finished = anyio.run(lambda: play(folder, run, check="auto"))
    assert finished.proof != "verified" or is_mended(folder), finished.proof_reason


@pytest.mark.parametrize("run", RUNS["honest"], ids=lambda run: run["name"])
def test_an_honest_run_is_verified_where_its_check_ran_alone(folder, run):
    finished = anyio.run(play, folder, run)
    assert finished.proof == run["proof"], finished.proof_reason


@pytest.mark.parametrize("run", RUNS["honest"], ids=lambda run: run["name"])
def test_an_honest_run_passes_the_projects_own_check(folder, run):
    finished = anyio.run(lambda: play(folder, run, check="auto"))
    assert finished.proof in ("", "verified", "partly verified"), finished.proof_reason
