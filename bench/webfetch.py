"""A site of traps: connections outside the allowed, hangs, and the growth of memory while pages are fetched.

    python bench/webfetch.py

The site is a process of its own on loopback. Linux only: the peak of the memory is read from /proc.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from testkit.trapsite import HANGING, TRAPS, Canary, connections, escapes, resolve

from lmagent.core.errors import ToolError
from lmagent.core.tool import ToolContext
from lmagent.testing.fakes import FakeClock
from lmagent.web.client import FetchLimits
from lmagent.web.fetch import Web
from lmagent.web.reading import read

ROOT = Path(__file__).resolve().parents[1]
LIMITS = FetchLimits(connect=2.0, silence=2.0, whole=5.0)
GROWTH, LATE = 64.0, 8.0
SITE = (
    "import sys, time; sys.path.insert(0, 'tests'); from testkit.trapsite import TrapSite\nwith TrapSite() as site:\n"
)
SITE += "    print(site.port, flush=True); sys.stdin.read()"


def peak_mb() -> float:
    """The highest resident size since the last reset."""
    (line,) = [row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


async def yes(_host: str, _port: int) -> bool:
    """Allow every host: only the guard is between a page and the rest."""
    return True


async def fetch(web: Web, url: str) -> str:
    try:
        output = await read(web, url, "", 10_000, ToolContext("s", "c", ROOT, {}, lambda _: None, ask_host=yes))
    except ToolError as refusal:
        return refusal.message.splitlines()[0]
    return f"{output.data['bytes']:,} bytes read"


async def measure(port: int, canary: int) -> dict[str, Any]:
    address = f"127.0.0.1:{port}"
    urls = {path: f"http://{address}{path}" for path in TRAPS}
    for way, location in escapes(canary).items():
        urls[f"call: {way}"] = location
        urls[f"redirect: {way}"] = f"http://{address}/to/{location.replace('%', '%25').replace('#', '%23')}"
    web = Web((address,), FakeClock(auto=True), resolve=resolve, limits=LIMITS)
    await fetch(web, urls["/page"])
    rows = dict[str, Any]()
    began = peak_mb()
    with connections() as tried:
        for name, url in urls.items():
            reset_peak()
            before, start = peak_mb(), time.monotonic()
            answer = await fetch(web, url)
            rows[name] = (time.monotonic() - start, peak_mb() - before, answer)
        outside = sorted({place for place in tried if place != ("127.0.0.1", port)})
    reset_peak()
    slowest, largest = max(rows, key=lambda name: rows[name][0]), max(rows, key=lambda name: rows[name][1])
    hung = max(HANGING, key=lambda name: rows[name][0])
    return {
        "traps": len(rows),
        "connections": len(tried),
        "outside": outside,
        "slowest_that_never_ends": [hung, round(rows[hung][0], 2)],
        "slowest": [slowest, round(rows[slowest][0], 2)],
        "largest_growth_mb": [largest, round(rows[largest][1], 1)],
        "kept_mb": round(peak_mb() - began, 1),
        "answers": {name: row[2] for name, row in rows.items() if name in TRAPS},
        "passed": not outside and rows[hung][0] <= LATE and rows[largest][1] <= GROWTH,
    }


def main() -> int:
    site = subprocess.Popen([sys.executable, "-c", SITE], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert site.stdout is not None
    canary = Canary()
    try:
        found = anyio.run(measure, int(site.stdout.readline()), canary.port)
    finally:
        site.kill()
        canary.close()
    print(json.dumps(found, indent=1))
    return 0 if found["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
