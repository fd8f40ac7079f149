"""Measure lmagent against a bare asyncio + httpx loop in the same run, and print the figures as JSON.

    python bench/run.py                      everything (about two minutes on two cores)
    python bench/run.py --only start --quick

The model is a scripted server in a process of its own, on loopback; nothing leaves the machine. Progress goes to
standard error, one JSON object to standard output. Exit code 1 if a bar does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import sys
import time
from typing import Any

from lab import Lab
from measures import MEASURES, SUITES, run_suite


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    model = ""
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as file:
            model = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "")
    begun = time.perf_counter()
    sum(number * number for number in range(1_000_000))
    return {
        "cores": os.cpu_count(),
        "cpu": model,
        "load": round(os.getloadavg()[0], 2),
        "loop_ms": round((time.perf_counter() - begun) * 1000, 1),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
    }


def runner_rss_mb() -> float:
    """Peak memory of this process. Linux counts it into the peak of what it spawns: `rss_mb` means something only where
    it is larger."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6, 1)


def main() -> int:
    """Run what was asked for; returns the exit code."""
    parser = argparse.ArgumentParser(description="Measure lmagent.")
    names = (*MEASURES, *SUITES)
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"one of {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="fewer runs: a first look")
    given = parser.parse_args()
    wanted = given.only or names
    report: dict[str, Any] = {"machine": machine(), "quick": given.quick}
    missed: list[str] = []
    for name in wanted:
        begun = time.monotonic()
        if name in MEASURES:
            measure = MEASURES[name]
            with Lab() as lab:
                figures = measure.run(lab, given.quick)
            missed += [
                f"{name}: {bar.figure} = {figures[bar.figure]}, the bar is {bar.limit}"
                for bar in measure.bars
                if not bar.holds(figures)
            ]
        else:
            suite = run_suite(name, given.quick, timeout=900)
            if suite is None:
                print(f"{name}: not there, skipped", file=sys.stderr)
                continue
            figures = suite
            if not figures.get("ok", True):
                missed.append(f"{name}: {figures.get('error', 'its bars do not hold')}")
        report[name] = figures
        print(f"{name} ({time.monotonic() - begun:.0f} s): {json.dumps(figures)}", file=sys.stderr, flush=True)
    report["machine"]["load_after"] = round(os.getloadavg()[0], 2)
    report["machine"]["runner_rss_mb"] = runner_rss_mb()
    report["missed"] = missed
    print(json.dumps(report, indent=1))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
