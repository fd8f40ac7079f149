"""What the memory finds, and how fast: generated conversations, or real ones in the format of LoCoMo.

    python bench/memory.py [--quick] [--tune] [--data locomo10.json]

Each turn is an item of its conversation's index. R@k is the share of the turns with the answer that are among the first
k hits, averaged over questions. `fts5` is SQLite's FTS5 with porter stemming and OR over all words of the question,
`bm25` the same without stop words. The figures are of conversations, and subjects, that nothing was tuned on; `--tune`
measures the others. Vectors of MiniLM are kept in `bench/.cache`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import resource
import sqlite3
import sys
import tempfile
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # CPU time of one thread

import numpy as np
from memory_talks import Question, Talk, Turn, talk

from lmagent.core.memory import MemoryItem
from lmagent.memory import MemoryIndex, open_memory
from lmagent.memory.search.embedding import Embedder
from lmagent.memory.search.index import SqliteMemoryIndex
from lmagent.memory.search.minilm import MiniLM
from lmagent.memory.search.query import query_words

Search = Callable[[str, int], list[str]]
CACHE = Path(__file__).parent / ".cache" / "minilm.npz"
TUNING_SEEDS, SEEDS = range(3100, 3104), range(8200, 8212)
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open", 4: "single-hop"}
DEPTHS = (5, 10, 25)
LEXICAL_GAIN, MINILM_GAIN, QUERY_MS, LARGE_QUERY_MS, OPEN_S = 0.10, 0.20, 30.0, 40.0, 0.5


def locomo(path: Path) -> list[Talk]:
    """Conversations of a file in LoCoMo's format; questions without evidence and the adversarial ones are left out."""
    talks: list[Talk] = []
    for entry in json.loads(path.read_text(encoding="utf-8")):
        made, spoken = Talk(), entry["conversation"]
        for name in [key for key in spoken if re.fullmatch(r"session_\d+", key)]:
            begun = datetime.strptime(spoken[f"{name}_date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
            for number, turn in enumerate(spoken[name]):
                text = f"{turn['text']} {turn.get('blip_caption', '')}".strip()
                made.turns.append(Turn(turn["dia_id"], text, begun.timestamp() + number, name, turn["speaker"]))
        known = {turn.id for turn in made.turns}
        for asked in entry["qa"]:
            evidence = [id for text in asked.get("evidence", []) for id in re.findall(r"D\d+:\d+", text) if id in known]
            if evidence and asked["category"] in CATEGORIES:
                made.questions.append(Question(asked["question"], CATEGORIES[asked["category"]], evidence))
        talks.append(made)
    return talks


def fts5(turns: Iterable[Turn], words: Callable[[str], list[str]]) -> Search:
    """A baseline: FTS5 with porter stemming, any of the words."""
    base = sqlite3.connect(":memory:")
    base.execute("CREATE VIRTUAL TABLE word USING fts5 (id UNINDEXED, text, tokenize = 'porter unicode61')")
    base.executemany("INSERT INTO word VALUES (?, ?)", [(turn.id, turn.text) for turn in turns])

    def search(query: str, k: int) -> list[str]:
        wanted = " OR ".join(f'"{word}"' for word in words(query))
        rows = base.execute("SELECT id FROM word WHERE word MATCH ? ORDER BY rank LIMIT ?", (wanted, k)).fetchall()
        return [id for (id,) in rows]

    return search


def recipe(index: MemoryIndex) -> Search:
    return lambda query, k: [hit.id for hit in index.search(query, k)]


def measure(talks: list[Talk], searches: list[Search]) -> dict[str, dict[str, float]]:
    """Return the figures of each category, and of all questions."""
    sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for conversation, search in zip(talks, searches, strict=True):
        for question in conversation.questions:
            found = search(question.text, max(DEPTHS))
            wanted = set(question.evidence)
            row = {f"R@{k}": len(wanted & set(found[:k])) / len(wanted) for k in DEPTHS}
            row["MRR"] = next((1 / place for place, id in enumerate(found, 1) if id in wanted), 0.0)
            for category in (question.category, "all"):
                sums[category].update(row)
                sums[category]["questions"] += 1
    return {
        category: {
            name: round(value / figures["questions"], 3) for name, value in figures.items() if name != "questions"
        }
        | {"questions": figures["questions"]}
        for category, figures in sorted(sums.items())
    }


class CachedMiniLM(MiniLM):
    """MiniLM that makes the vector of a text once, in all runs."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._known: dict[str, Any] = {}
        if path.exists():
            with np.load(path) as stored:
                self._known = dict(zip(stored["keys"].tolist(), stored["vectors"], strict=True))

    def embed(self, texts: Sequence[str]) -> Any:
        keys = [hashlib.sha256(b"|" + text.encode()).hexdigest() for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._known}
        if missing:
            self._known.update(zip(missing, super().embed(list(missing.values())), strict=True))
        return np.array([self._known[key] for key in keys])

    def save(self) -> None:
        self._path.parent.mkdir(exist_ok=True)
        np.savez(self._path, keys=np.array(list(self._known)), vectors=np.array(list(self._known.values())))


def indexed(folder: Path, talks: list[Talk], embedder: Embedder | None) -> list[SqliteMemoryIndex]:
    indexes: list[SqliteMemoryIndex] = []
    for number, conversation in enumerate(talks):
        index = open_memory(folder / f"{'vectors' if embedder else 'words'}-{number}.db", embedder)
        index.index(MemoryItem(turn.id, turn.text, turn.ts, turn.session, turn.speaker) for turn in conversation.turns)
        if embedder and not index.wait_embedded(900):
            raise SystemExit(f"no vectors: {index.fault}")
        indexes.append(index)
    return indexes


def quality(talks: list[Talk], folder: Path) -> dict[str, Any]:
    systems = {
        "fts5": [fts5(one.turns, lambda query: re.findall(r"\w+", query.lower())) for one in talks],
        "bm25": [fts5(one.turns, query_words) for one in talks],
        "lexical": [recipe(index) for index in indexed(folder, talks, None)],
    }
    figures = {name: measure(talks, searches) for name, searches in systems.items()}
    embedder = CachedMiniLM(CACHE)
    indexes = indexed(folder, talks, embedder)
    figures["minilm"] = measure(talks, [recipe(index) for index in indexes])
    embedder.save()
    return figures


class Noise:
    """An embedder without a model: clustered random vectors, for the speed of searching alone."""

    name = "noise"

    def embed(self, texts: Sequence[str]) -> Any:
        rng = np.random.default_rng(zlib.crc32(texts[0].encode()))
        centres = np.random.default_rng(0).standard_normal((64, 384))
        return centres[rng.integers(0, 64, len(texts))] + rng.standard_normal((len(texts), 384))


def speed(folder: Path, count: int) -> dict[str, float]:
    """CPU time of searches among `count` items with vectors, in milliseconds, and of opening in seconds.

    Words are as frequent as in a language (Zipf's law, 30,000 of them). Queries hold none of the 150 most frequent
    ones, which in a language are stop words.
    """
    from lmagent.memory.search import embedding

    embedding.BATCH = 1000
    rng = random.Random(count)
    words = [f"w{place}" for place in range(1, 30_001)]
    weights = list(accumulate(1 / place for place in range(1, len(words) + 1)))
    rare = list(accumulate(0.0 if place <= 150 else 1 / place for place in range(1, len(words) + 1)))
    folder /= str(count)
    with open_memory(folder, Noise()) as index:
        begun = time.process_time()
        texts = (" ".join(rng.choices(words, cum_weights=weights, k=18)) for _ in range(count))
        index.index(
            MemoryItem(str(number), text, float(number), f"s{number // 20}", ("Ana", "Ben")[number % 2])
            for number, text in enumerate(texts)
        )
        writing = time.process_time() - begun
        index.wait_embedded(900)
    begun = time.process_time()
    with open_memory(folder, Noise()) as index:
        index.search("warm", 1)
        opening = time.process_time() - begun
        index.wait_embedded(60)
        times: list[float] = []
        for number in range(60):
            query = f"What did Ana say about {' '.join(rng.choices(words, cum_weights=rare, k=5))} {number}?"
            index.query_vector(query)  # made outside of the measured time
            begun = time.process_time()
            index.search(query, 10)
            times.append((time.process_time() - begun) * 1000)
        index.index([MemoryItem("new", "a quokka sat upon the zither")])
        visible = index.search("quokka zither", 1)[0].id == "new"
    return {
        "query_ms": round(median(times), 1),
        "query_worst_ms": round(max(times), 1),
        "open_s": round(opening, 2),
        "writes_per_cpu_s": round(count / writing),
        "visible_at_once": float(visible),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the memory.")
    parser.add_argument("--quick", action="store_true", help="fewer conversations, no 100,000 items")
    parser.add_argument("--data", type=Path, help="a file in LoCoMo's format")
    parser.add_argument("--tune", action="store_true", help="the half that is for tuning, without speed")
    given = parser.parse_args()
    chosen = conversations(given.data, given.tune)
    if given.quick:
        chosen = chosen[:2]
    with tempfile.TemporaryDirectory() as name:
        figures = quality(chosen, Path(name))
        if not given.tune:
            figures |= {"items_10000": speed(Path(name), 10_000)}
        if not given.quick and not given.tune:
            figures |= {"items_100000": speed(Path(name), 100_000)}
    missed = misses(figures)
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    size = {"turns": sum(len(one.turns) for one in chosen), "questions": sum(len(one.questions) for one in chosen)}
    print(json.dumps({"ok": not missed, "error": "; ".join(missed), **size, "rss_mb": round(rss), **figures}))
    return 1 if missed else 0


def conversations(data: Path | None, tuning: bool) -> list[Talk]:
    """The conversations for tuning, or those for the figures."""
    if data is None:
        return [talk(seed, tuning) for seed in (TUNING_SEEDS if tuning else SEEDS)]
    talks = locomo(data)
    half = len(talks) // 2
    return talks[:half] if tuning else talks[half:]


def misses(figures: dict[str, Any]) -> list[str]:
    """Return the bars that do not hold."""
    found: list[str] = []
    base = figures["fts5"]["all"]["R@10"]
    for system, gain in (("lexical", LEXICAL_GAIN), ("minilm", MINILM_GAIN)):
        if figures[system]["all"]["R@10"] < base + gain:
            found.append(f"R@10 of {system} is {figures[system]['all']['R@10']}, the bar is {base + gain:.3f}")
        for category, row in figures[system].items():
            if row["R@10"] < figures["bm25"][category]["R@10"]:
                found.append(f"{category}: R@10 of {system} is below BM25's")
    for name, limit in (("items_10000", QUERY_MS), ("items_100000", LARGE_QUERY_MS)):
        if name in figures and (figures[name]["query_ms"] > limit or not figures[name]["visible_at_once"]):
            found.append(f"{name}: {figures[name]['query_ms']} ms, the bar is {limit}")
    if figures.get("items_100000", {}).get("open_s", 0) > OPEN_S:
        found.append(f"cold open: {figures['items_100000']['open_s']} s, the bar is {OPEN_S}")
    return found


if __name__ == "__main__":
    sys.exit(main())
