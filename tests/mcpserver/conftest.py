"""Makes `serve_kit`, and the gateway of its own tests, importable; ends what tests of a file shared."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "gateway"))


@pytest.fixture(scope="module", autouse=True)
def no_gateway_is_left() -> Iterator[None]:
    from gateway_kit import end_shared

    yield
    end_shared()
