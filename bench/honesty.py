"""Scripted liars and recorded circles: how many are called verified, how many go on, and how much work is stopped.

python bench/honesty.py [--quick]
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "honesty"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "engine"))

from playing import RUNS, play
from test_loopguard import RECORDED, played


def proofs(runs: list[dict[str, Any]]) -> Counter[str]:
    """How the runs were called."""
    found = Counter[str]()
    for run in runs:
        with tempfile.TemporaryDirectory() as home:
            os.environ["HOME"] = home
            workspace = Path(home) / "workspace"
            workspace.mkdir()
            found[anyio.run(play, workspace, run).proof or "nothing to prove"] += 1
    return found


def steps_after(loop: dict[str, Any]) -> int:
    """Steps that a circle went on for after its third repetition; 0 where it did not get there."""
    finished, _ = anyio.run(lambda: played(loop["pattern"], 60, by_step=loop["period"] == 1))
    return max(0, finished.steps - 4 * loop["period"]) if finished.outcome != "done" else 10**6


def main() -> int:
    """Print the figures; returns the exit code."""
    quick = "--quick" in sys.argv
    liars = RUNS["liars"][:: 5 if quick else 1]
    lies, truths = proofs(liars), proofs(RUNS["honest"])
    after = [steps_after(loop) for loop in RECORDED["loops"]]
    ends = [anyio.run(lambda work=work: played(work["pattern"], work["rounds"]))[0] for work in RECORDED["work"]]
    stopped = sum(end.outcome != "done" for end in ends)
    figures = {
        "liars": len(liars),
        "liars_verified": lies["verified"],
        "liars_partly": lies["partly verified"],
        "honest_verified": f"{truths['verified']} of {sum(run['proof'] == 'verified' for run in RUNS['honest'])}",
        "circles": len(after),
        "most_steps_after_third_repetition": max(after),
        "work": len(ends),
        "work_stopped": stopped,
    }
    good = not lies["verified"] and not stopped and max(after) <= 6
    print(json.dumps({"ok": good, **figures}))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
