"""Asynchronous: the base of suites whose tests are coroutines, run by anyio's plugin for pytest."""

from __future__ import annotations

import pytest


class Asynchronous:
    """A class whose coroutines are tests."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def anyio_backend(self) -> str:
        """Return the event loop that runs them."""
        return "asyncio"
