"""How many edits of the corpus are made right, and how many files are corrupted; JSON on standard output.

Run it as `.venv/bin/python bench/edits.py`. The corpus is `tests/tools/edit_corpus`, made from the contract of the edit
tool. `right` is the expected text, or a refusal where one is expected; `corrupted` is a text that was written where
another one, or a refusal, was expected. The baseline replaces an exact unique match and refuses everything else.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from lmagent.tools.edit.replace import EditRefused, replace_text

CORPUS = Path(__file__).resolve().parent.parent / "tests" / "tools" / "edit_corpus"

Replace = Callable[[str, str, str, bool], "str | None"]


def ours(source: str, search: str, replace: str, replace_all: bool) -> str | None:
    try:
        return replace_text(source, search, replace, replace_all)
    except EditRefused:
        return None


def exact_only(source: str, search: str, replace: str, replace_all: bool) -> str | None:
    count = source.count(search) if search else 0
    if count == 0 or search == replace or (count > 1 and not replace_all):
        return None
    return source.replace(search, replace)


def measure(edit: Replace, cases: list[dict]) -> dict[str, float]:
    right = corrupted = 0
    spent = 0.0
    for case in cases:
        wanted = None if case["expect"] == "refused" else case["expect"]
        started = time.perf_counter()
        got = edit(case["source"], case["search"], case["replace"], case.get("replace_all", False))
        spent += time.perf_counter() - started
        right += got == wanted
        corrupted += got is not None and got != wanted
    return {
        "cases": len(cases),
        "right": right,
        "right_share": round(right / len(cases), 4),
        "corrupted": corrupted,
        "mean_ms": round(1000 * spent / len(cases), 4),
    }


def main() -> int:
    cases = [case for path in sorted(CORPUS.glob("*.json")) for case in json.loads(path.read_text("utf-8"))]
    measure(ours, cases[:20])  # compile patterns first, as a running session has
    figures = measure(ours, cases)
    ok = figures["right_share"] >= 0.95 and not figures["corrupted"]
    print(json.dumps({"ok": ok, **figures, "exact_match_only": measure(exact_only, cases)}))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
