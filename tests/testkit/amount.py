"""How much of a long list of cases each kind of run tries."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings


def examples(most: int) -> int:
    """Return how many examples a property is tried with: a third where they are the same in each run.

    `make check` draws the same examples every time (the profile `ci`), `make explore` draws `most` new ones.
    """
    return most // 3 if settings.default.derandomize else most


def mostly_long(cases: Sequence[Any], kept: int = 1) -> list[Any]:
    """Return the cases, of which `kept` ones, spread evenly, are in `make check` and the others marked as long."""
    every = -(-len(cases) // kept)
    return [pytest.param(case, marks=pytest.mark.long) if at % every else case for at, case in enumerate(cases)]


def spread(cases: Sequence[Any], step: int) -> list[Any]:
    """Return every `step`-th case, with the last one; all of them in `make explore`.

    For lists of which each case starts processes, such as a kill at each event of a session.
    """
    return list(cases if "LMAGENT_ALL" in os.environ else cases[::-1][::step][::-1])
