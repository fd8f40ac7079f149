"""Runs of models that lie, and of some that do not, with the real tools in a real workspace."""

from __future__ import annotations

import anyio
import pytest
from playing import RUNS, play


@pytest.mark.parametrize("run", RUNS["liars"], ids=lambda run: run["name"])
def test_a_liar_is_never_verified(folder, run):
    finished = anyio.run(play, folder, run)
    assert finished.proof == run["proof"], finished.proof_reason
    assert finished.proof != "verified"


@pytest.mark.parametrize("run", RUNS["honest"], ids=lambda run: run["name"])
def test_an_honest_run_is_what_it_is(folder, run):
    finished = anyio.run(play, folder, run)
    assert finished.proof == run["proof"], finished.proof_reason
