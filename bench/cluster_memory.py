"""What the memory finds in PostgreSQL by words alone, and how fast, against the embedded index in the same run.

    python bench/cluster_memory.py [--talks 4] [--items 20000]

R@k is the share of the turns with the answer among the first k hits, of the generated conversations of `memory.py`.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from memory import SEEDS, measure, recipe
from memory_talks import Talk, talk
from testkit.postgres import postgres

from lmagent.cluster.database import Database
from lmagent.core.memory import MemoryItem
from lmagent.memory import MemoryIndex, open_memory
from lmagent.memory.search.postgres import PostgresMemoryIndex


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--talks", type=int, default=4)
    options.add_argument("--items", type=int, default=20_000)
    given = options.parse_args()
    talks = [talk(seed, tuning=False) for seed in list(SEEDS)[: given.talks]]
    with tempfile.TemporaryDirectory() as folder, postgres() as server:
        database = Database(server.url())
        database.migrate()
        shared = [PostgresMemoryIndex(database, f"talk{number}", None, print) for number in range(len(talks))]
        embedded = [open_memory(Path(folder) / str(number)) for number in range(len(talks))]
        figures = {
            "embedded": found(talks, embedded),
            "postgres": found(talks, shared),
            "query_ms_embedded": query_ms(open_memory(Path(folder) / "large"), given.items),
            "query_ms_postgres": query_ms(PostgresMemoryIndex(database, "large", None, print), given.items),
            "items": given.items,
        }
        database.close()
    print(json.dumps(figures, indent=2))
    return 0


def found(talks: list[Talk], indexes: list[MemoryIndex]) -> dict[str, dict[str, float]]:
    for one, index in zip(talks, indexes, strict=True):
        index.index([MemoryItem(turn.id, turn.text, turn.ts, turn.session, turn.speaker) for turn in one.turns])
    return measure(talks, [recipe(index) for index in indexes])


def query_ms(index: MemoryIndex, count: int) -> float:
    """Return the median time of a query of six words; the words are as frequent as in a text."""
    draw = random.Random(7)
    words = [f"word{number}" for number in range(5000)]
    weights = [1 / (rank + 3) for rank in range(len(words))]

    def text(length: int) -> str:
        return " ".join(draw.choices(words, weights, k=length))

    index.index([MemoryItem(str(number), text(15), float(number), f"s{number // 50}") for number in range(count)])
    times: list[float] = []
    for _ in range(30):
        query, begun = text(6), time.perf_counter()
        index.search(query, 10)
        times.append(time.perf_counter() - begun)
    return round(1000 * median(times), 1)


if __name__ == "__main__":
    sys.exit(main())
