"""How well tool calls in text are found, and how fast; JSON on standard output.

Run it as `.venv/bin/python bench/textcalls.py`. The corpus is `tests/providers/textcalls/corpus`, written by hand
from the formats' templates. `calls_share` counts texts whose calls are exact, `exact_share` those whose content is too,
`run_wrongly` texts from which a call would run that is not in them. `growth` is the time for a text of one repeated
piece of markup to that for a quarter of it (4 is linear), whole and streamed: the worst of all pieces.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "providers" / "textcalls"))

from textcalls_corpus import TOOLS, exact_calls, rows, run_wrongly

from lmagent.providers.textcalls import TextCallParser, parse_text

PIECES = (
    "<",
    "[",
    '{"',
    "```",
    "```\n",
    "<tool_call>",
    '{"name":',
    '{"name":\n',
    "` ",
    "<think>",
    "</think>",
    "[read(",
)
PIECES += (
    '<tool_call>{"name":"read","arguments":{"path":"',
    "<function=read>\n<parameter=path>\n",
    "Thought:\n",
    "> a\n",
)
BARS = {"calls_share": 0.97, "exact_share": 0.95, "run_wrongly": 0, "mean_ms": 1.0, "growth": 8.0}


def correctness(corpus: list[dict[str, Any]]) -> dict[str, Any]:
    parsed = [parse_text(row["text"], TOOLS) for row in corpus]
    right = [exact_calls(row, found) for row, found in zip(corpus, parsed, strict=True)]
    whole = [calls and found.content == row["content"] for calls, row, found in zip(right, corpus, parsed, strict=True)]
    return {
        "texts": len(corpus),
        "running_nothing": sum(not row["calls"] for row in corpus),
        "calls_share": round(sum(right) / len(corpus), 4),
        "exact_share": round(sum(whole) / len(corpus), 4),
        "run_wrongly": sum(run_wrongly(row, found) for row, found in zip(corpus, parsed, strict=True)),
    }


def stream(text: str, size: int) -> None:
    parser = TextCallParser(TOOLS)
    for at in range(0, len(text), size):
        parser.feed(text[at : at + size])
    parser.finish()


def mean_ms(corpus: list[dict[str, Any]], rounds: int) -> dict[str, float]:
    def took(read: Any) -> float:
        times: list[float] = []
        for _ in range(rounds):
            started = time.perf_counter()
            for row in corpus:
                read(row["text"])
            times.append((time.perf_counter() - started) / len(corpus))
        return round(1000 * statistics.median(times), 4)

    return {
        "mean_chars": round(statistics.mean(len(row["text"]) for row in corpus)),
        "mean_ms": took(lambda text: parse_text(text, TOOLS)),
        "stream_ms": took(lambda text: stream(text, 4)),
    }


def growth(length: int) -> dict[str, Any]:
    def took(text: str, size: int) -> float:
        times: list[float] = []
        while len(times) < 3 and sum(times) < 0.2:
            started = time.perf_counter()
            stream(text, size) if size else parse_text(text, TOOLS)
            times.append(time.perf_counter() - started)
        return max(min(times), 2e-3)  # below that, the clock and the machine are measured

    worst, slowest, longest = 0.0, "", 0.0
    for piece in PIECES:
        text = piece * (length // len(piece))
        for size in (0, 16):
            whole = took(text, size)
            share = whole / took(text[: len(text) // 4], size)
            if share > worst:
                worst, slowest = share, piece
            longest = max(longest, whole)
    return {"growth": round(worst, 2), "growth_piece": slowest, "growth_chars": length, "slowest_s": round(longest, 3)}


def main() -> int:
    quick = "--quick" in sys.argv
    corpus = rows()
    figures: dict[str, Any] = {
        **correctness(corpus),
        **mean_ms(corpus, 3 if quick else 9),
        **growth(200_000 if quick else 1_000_000),
    }
    ok = (
        figures["calls_share"] >= BARS["calls_share"]
        and figures["exact_share"] >= BARS["exact_share"]
        and figures["run_wrongly"] <= BARS["run_wrongly"]
        and figures["mean_ms"] <= BARS["mean_ms"]
        and figures["growth"] <= BARS["growth"]
    )
    print(json.dumps({"ok": ok, **figures}))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
