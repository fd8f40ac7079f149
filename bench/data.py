"""How long a look at a large CSV file takes, and how much memory; JSON on standard output.

    python bench/data.py [--gb 10] [--folder DIR] [--quick]

The file is made in a scratch folder and deleted. `plain` has no quotes, as most exports; in `quoted`, a tenth
as large, each row has a quoted cell, every thousandth with a line end in it. The worker runs in bubblewrap, as for the
tool. `cold` is read from the disk, where the system lets us drop its pages from memory. Memory is the worker's peak.
Exit code 1 if an answer is wrong or a bar does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio

from lmagent.core.sandbox import Limits, Sandbox
from lmagent.core.tool import ToolContext
from lmagent.data.feature import DataPlace, DataView, view_tool
from lmagent.sandbox.choose import alike, choose
from lmagent.sandbox.environment import SandboxRequest

HEAD_S, SHAPE_MB = 1.0, 64
BLOCK = 50_000  # rows that are written again and again


def plain(number: int) -> str:
    return f"{number},customer {number % 977},{number * 7 % 10_000 / 100:.2f},2024-{number % 12 + 1:02d}-11,open,Rome\n"


def quoted(number: int) -> str:
    inner = "two\nlines" if number % 1000 == 0 else "says hello, and goes"
    day = f"2024-{number % 12 + 1:02d}-11"
    return f'{number},"customer {number % 977} {inner}",{number * 7 % 10_000 / 100:.2f},{day},open,Rome\n'


def make(path: Path, size: int, row: Callable[[int], str]) -> int:
    """Write a file of about this size; returns its rows."""
    block = "".join(map(row, range(BLOCK))).encode()
    rows = 0
    with open(path, "wb") as file:
        file.write(b"id,name,price,day,state,city\n")
        while file.tell() < size:
            file.write(block)
            rows += BLOCK
        file.flush()
        os.fsync(file.fileno())
    return rows


def forget(path: Path) -> None:
    """Drop the file's pages from memory, so that the next look reads the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


class Looks:
    def __init__(self, workspace: Path, backend: str) -> None:
        async def get(folder: Path, read: Sequence[Path], limits: Limits) -> Sandbox:
            return alike(folder, SandboxRequest(env=dict(os.environ), read=tuple(read), limits=limits), backend)

        self.tool = view_tool(DataPlace(workspace, get, lambda: backend))
        self.context = ToolContext("bench", "call", workspace, {}, lambda _: None)

    async def __call__(self, path: Path, operation: str) -> tuple[dict[str, Any], str]:
        began = time.perf_counter()
        output = await self.tool.run(DataView(path.name, operation), self.context)
        took = time.perf_counter() - began
        return {"s": round(took, 2), "memory_mb": output.data["memory_mb"]}, output.content


async def measure(folder: Path, gigabytes: float, *, quick: bool) -> dict[str, Any]:
    sandbox, report = await choose(folder, SandboxRequest(env=dict(os.environ)))
    looks = Looks(folder, report.backend)
    figures: dict[str, Any] = {"sandbox": report.backend, "load": os.getloadavg()[0], "wrong": []}
    small = folder / "small.csv"
    make(small, 1000, plain)
    figures["small head"] = (await looks(small, "head"))[0]
    for name, row, size in (("plain", plain, gigabytes), ("quoted", quoted, gigabytes / 10)):
        path = folder / f"{name}.csv"
        rows = make(path, int(size * 1e9), row)
        found: dict[str, Any] = {"gb": round(path.stat().st_size / 1e9, 2), "rows": rows}
        for operation in ("head", "tail", "shape") if not quick else ("head", "shape"):
            forget(path)
            found[f"{operation} cold"], _ = await looks(path, operation)
            found[operation], content = await looks(path, operation)
            if operation == "shape" and f"{rows:,} rows" not in content:
                figures["wrong"].append(f"{name}: {content}")
        figures[name] = found
        path.unlink()
    await sandbox.aclose()
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure looks at a large file.")
    parser.add_argument("--gb", type=float, default=10.0, help="gigabytes of the file (default: 10)")
    parser.add_argument("--folder", type=Path, help="where the file is made (default: the system's temporary folder)")
    parser.add_argument("--quick", action="store_true", help="one gigabyte, without tail")
    given = parser.parse_args()
    gigabytes = 1.0 if given.quick else given.gb
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        if shutil.disk_usage(name).free < gigabytes * 1.2e9:
            print(f"{name} has no room for {gigabytes} GB", file=sys.stderr)
            return 2
        figures = anyio.run(lambda: measure(Path(os.path.realpath(name)), gigabytes, quick=given.quick))
    large = figures["plain"]
    figures["ok"] = not figures["wrong"] and large["head"]["s"] <= HEAD_S and large["shape"]["memory_mb"] <= SHAPE_MB
    print(json.dumps(figures, indent=1))
    return 0 if figures["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
