"""Makes the kits importable; the browser's fixtures are in `web_kit`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "gateway"))

from web_kit import browser, no_leftovers, screen  # noqa: F401
