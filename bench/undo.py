"""Snapshots and undo, timed; JSON on standard output.

    python bench/undo.py [--quick]

`small` is a repository of 300 files, `large` one of 50,000 (40,000 of them in `node_modules`); between two snapshots
ten files change. `cold` is the first snapshot of all, which reads everything; `reopened` the first of a new process.
`edit` is what a write or edit tool pays: before and after of one file. As in a session, a state outlives the process
until it is let go of. `undo` takes back `rm -rf` of 10,000 files, `redo` does it again. Exit code 1 if a bar does not
hold, or what comes back is not what was there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

from lmagent.undo import WorkspaceSnapshots

CALL = "session/call"
SMALL_BAR_MS, LARGE_BAR_MS = 50.0, 1000.0


async def timed(act: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    started = time.perf_counter()
    result = await act(*arguments)
    return (time.perf_counter() - started) * 1000, result


def furnish(workspace: Path, own: int, foreign: int = 0) -> None:
    """Files of 1 to 12 kB, twenty a folder."""
    text = "The quick brown fox jumps over the lazy dog. " * 300
    for number in range(own + foreign):
        top = workspace / ("src" if number < own else "node_modules")
        folder = top / f"part{number // 200}" / f"unit{number // 20}"
        if number % 20 == 0:
            folder.mkdir(parents=True, exist_ok=True)
        (folder / f"file{number}.txt").write_text(f"{number}\n{text[: 1000 + number * 37 % 11_000]}")


def change(workspace: Path, turn: int) -> None:
    for number in range(10):
        (workspace / "src" / "part0" / "unit0" / f"file{number}.txt").write_text(f"turn {turn}, file {number}")


def digest(workspace: Path) -> str:
    """Names, modes, times and contents of all files."""
    whole = hashlib.sha256()
    for folder, folders, files in os.walk(workspace):
        folders.sort()
        for name in sorted(files):
            path = os.path.join(folder, name)
            found = os.stat(path)
            whole.update(f"{path} {found.st_mode} {found.st_mtime_ns}".encode() + Path(path).read_bytes())
    return whole.hexdigest()


async def snapshots(folder: Path, own: int, foreign: int, turns: int) -> dict[str, Any]:
    workspace = folder / f"workspace{own}"
    furnish(workspace, own, foreign)
    await anyio.sleep(0.1)  # files of this very instant are read twice
    store = folder / f"store{own}"
    undo = WorkspaceSnapshots(workspace, store)
    cold, _ = await timed(undo.before)
    await undo.after()
    warm, after = list[float](), list[float]()
    for turn in range(turns):
        warm.append((await timed(undo.before, None, CALL))[0])
        change(workspace, turn)
        took, changes = await timed(undo.after, None, CALL)
        after.append(took + (await timed(undo.forget, CALL))[0])
        if len(changes) != 10:
            raise SystemExit(f"{len(changes)} changes were found where 10 were made")
    undo.close()
    reopened, _ = await timed(WorkspaceSnapshots(workspace, store).before)
    return {
        "files": own + foreign,
        "cold_ms": round(cold, 1),
        "warm_ms": round(statistics.median(warm), 1),
        "after_ms": round(statistics.median(after), 1),
        "reopened_ms": round(reopened, 1),
        "manifest_kb": round((store / "manifest").stat().st_size / 1000),
    }


async def edit(folder: Path) -> dict[str, float]:
    """Before and after of one file, in a workspace that was never walked."""
    workspace = folder / "workspace-edit"
    furnish(workspace, 40)
    path = "src/part0/unit0/file3.txt"
    undo = WorkspaceSnapshots(workspace, folder / "store-edit")
    await undo.before([path])
    took = list[float]()
    for turn in range(100):
        before, _ = await timed(undo.before, [path], CALL)
        (workspace / path).write_text(f"turn {turn}")
        after, changes = await timed(undo.after, [path], CALL)
        after += (await timed(undo.forget, CALL))[0]
        if [change.path for change in changes] != [path]:
            raise SystemExit("an edit was not found")
        took.append(before + after)
    return {"before_and_after_ms": round(statistics.median(took), 2)}


async def take_back(folder: Path, files: int, top: str) -> dict[str, Any]:
    workspace = folder / f"workspace-{top}"
    furnish(workspace, *((files, 0) if top == "src" else (0, files)))
    await anyio.sleep(0.1)
    undo = WorkspaceSnapshots(workspace, folder / f"store-{top}")
    first = digest(workspace)
    await undo.before()
    shutil.rmtree(workspace / top)
    changes = await undo.after()
    back, undone = await timed(undo.restore, changes, "before")
    exact = digest(workspace) == first and not undone.refused
    again, redone = await timed(undo.restore, changes, "after")
    exact = exact and not redone.refused and not os.listdir(workspace)
    return {"files": files, "undo_ms": round(back), "redo_ms": round(again), "exact": exact}


async def measure(quick: bool) -> dict[str, Any]:
    scale = 10 if quick else 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small = await snapshots(folder, 300, 0, 20)
        large = await snapshots(folder, 10_000 // scale, 40_000 // scale, 5)
        own = await take_back(folder, 10_000 // scale, "src")
        foreign = await take_back(folder, 10_000 // scale, "node_modules")
        edits = await edit(folder)
    exact = own["exact"] and foreign["exact"]
    ok = exact and small["warm_ms"] <= SMALL_BAR_MS and large["warm_ms"] <= LARGE_BAR_MS
    return {
        "ok": bool(ok),
        "bars": {"small.warm_ms": SMALL_BAR_MS, "large.warm_ms": LARGE_BAR_MS},
        "small": small,
        "large": large,
        "edit": edits,
        "undo_rm_rf": own,
        "undo_rm_rf_node_modules": foreign,
    }


def main() -> int:
    """Print the figures; exit 1 if a bar does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the files")
    figures = anyio.run(measure, parser.parse_args().quick)
    print(json.dumps(figures))
    return 0 if figures["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
