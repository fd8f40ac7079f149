"""The crash suite as figures: SIGKILL before, inside and after every append of a real run, then going on.

python bench/crash.py [--quick]
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Print the figures; exit 1 if a case fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="every case all the same: there is no short way")
    parser.parse_args()
    command = [sys.executable, "-m", "pytest", "tests/crash", "-q", "-n", "auto", "-p", "no:cacheprovider"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    closing = run.stdout.strip().splitlines()[-1] if run.stdout.strip() else run.stderr
    counts = {name: int(number) for number, name in re.findall(r"(\d+) (passed|failed|skipped|error)", closing)}
    failed = counts.get("failed", 0) + counts.get("error", 0)
    figures = {
        "ok": run.returncode == 0,
        "kills": sum(counts.values()),
        "passed": counts.get("passed", 0),
        "failed": failed,
    }
    print(json.dumps(figures))
    return run.returncode


if __name__ == "__main__":
    sys.exit(main())
