"""Makes `terminal`, and the hub of the models' tests, importable."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "modelserver")]
