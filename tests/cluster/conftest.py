"""Makes `gateway_kit` importable from tests about the cluster."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "gateway"))
