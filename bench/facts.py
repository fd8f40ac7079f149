"""Fifty facts through compactions in a window of 16,384 tokens: what the prompt holds, what can be looked up.

    python bench/facts.py [--quick]

A session in which a model is told demands, todos, paths, decisions, numbers and errors, and then reads until the
conversation was cut at least three times. Its summaries say nothing: what is kept is kept without the model.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "honesty"))

from planted import FACTS, IN_PROMPT, WINDOW, play


def main() -> int:
    """Print the figures; returns the exit code."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["HOME"] = home
        workspace = Path(home) / "workspace"
        workspace.mkdir()
        outcome = anyio.run(play, workspace)
    kinds = Counter(fact.kind for fact in FACTS)
    held = Counter(fact.kind for fact in FACTS if outcome.prompt[fact.answer])
    calls = Counter(outcome.calls.values())
    figures = {
        "window": WINDOW,
        "compactions": outcome.compactions,
        "in_prompt": {kind: f"{held[kind]} of {number}" for kind, number in kinds.items()},
        "found_by_one_call": calls[1],
        "found_by_two_calls": calls[2],
        "not_found": calls[0],
    }
    good = outcome.compactions >= 3 and not calls[0] and all(held[kind] == kinds[kind] for kind in IN_PROMPT)
    print(json.dumps({"ok": good, **figures}))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
