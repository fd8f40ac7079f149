"""Makes `gateway_kit` importable from tests about the gateway, and ends the gateways that tests of a file shared."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="module", autouse=True)
def no_gateway_is_left() -> Iterator[None]:
    from gateway_kit import end_shared

    yield
    end_shared()
