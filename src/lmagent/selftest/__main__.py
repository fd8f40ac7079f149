"""The self-test's own process: `python -m lmagent.selftest FOLDER` prints each finding as a line of JSON."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import msgspec

from lmagent.app.servers.battery import Finding
from lmagent.selftest.checks import run_checks


def _print(finding: Finding) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(finding) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    anyio.run(run_checks, Path(sys.argv[1]), _print)
