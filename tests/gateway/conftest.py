"""Makes `gateway_kit` importable from every test about the gateway."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
