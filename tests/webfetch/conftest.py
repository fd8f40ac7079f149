"""The site of traps, one for each file of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from testkit.trapsite import TrapSite


@pytest.fixture(scope="module")
def site() -> Iterator[TrapSite]:
    with TrapSite() as site:
        yield site
