"""Makes the kits importable, and ends browser and gateways that the tests shared; the fixtures are in `web_kit`."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "gateway"))

from gateway_kit import end_shared
from web_kit import browser, chromium, no_leftovers, screen  # noqa: F401


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: Any) -> None:
    if nextitem is None or nextitem.path.parent != item.path.parent:
        chromium.stop()
        end_shared()
