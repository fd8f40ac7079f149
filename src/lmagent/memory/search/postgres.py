"""The index of a workspace's memory in the cluster's database: full text, and pgvector where it is present.

Words are ranked by BM25 as in the embedded index: PostgreSQL's own ranks do not weigh a word by how rare it is.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from lmagent.cluster.database import Connection, Database, DatabaseError
from lmagent.core.errors import ConfigError
from lmagent.core.memory import Hit, MemoryItem
from lmagent.memory.search.embedding import Batch, Embedder, Filler
from lmagent.memory.search.items import Loose, as_item
from lmagent.memory.search.query import asks, named, query_words, without_names
from lmagent.memory.search.recipe import FoundItem, base_scores, fuse

POOL = 100  # items that each half of the search proposes; their neighbours are candidates too
LONGEST = 100_000  # characters of a text whose words are found: a tsvector holds 1 MB

_WORD = re.compile(r"[^\W_]+")
_ITEM = "id, text, ts, session, speaker"
_UPSERT = """
    INSERT INTO memory_item (workspace, id, text, ts, session, speaker, asks, words, length)
    VALUES (%s, %s, %s, %s, %s, %s, %s, to_tsvector('words', %s), %s)
    ON CONFLICT (workspace, id) DO UPDATE SET text = excluded.text, ts = excluded.ts, session = excluded.session,
        speaker = excluded.speaker, asks = excluded.asks, words = excluded.words, length = excluded.length
"""
# BM25 with the constants of SQLite's FTS5 (k1 = 1.2, b = 0.75), as if a text held a word once: to count the words of
# each text that matches takes five times as long, and finds no more (bench/cluster_memory.py).
_MATCHES = """
    WITH term AS (SELECT unnest(tsvector_to_array(to_tsvector('words', %(words)s))) AS lexeme),
    total AS (
        SELECT count(*)::float8 AS items, greatest(avg(length), 1)::float8 AS mean
        FROM memory_item WHERE workspace = %(workspace)s
    ),
    held AS MATERIALIZED (
        SELECT lexeme, number, length, ts, count(*) OVER (PARTITION BY lexeme)::float8 AS items_with
        FROM term JOIN memory_item ON workspace = %(workspace)s AND words @@ quote_literal(lexeme)::tsquery
    )
    SELECT number, sum(
        greatest(ln((items - items_with + 0.5) / (items_with + 0.5)), 1e-6)
        * 2.2 / (1 + 1.2 * (0.25 + 0.75 * length / mean))
    ) AS score
    FROM held CROSS JOIN total WHERE ts BETWEEN %(since)s AND %(until)s
    GROUP BY number ORDER BY score DESC, number LIMIT %(limit)s
"""
_NEIGHBOUR = """
    (SELECT near.number FROM memory_item AS near
     WHERE near.workspace = item.workspace AND near.session = item.session AND item.session <> ''
       AND (near.ts, near.number) {0} (item.ts, item.number) ORDER BY near.ts {1}, near.number {1} LIMIT 1)
"""
_FOUND = (
    f"SELECT number, session, speaker, asks, {_NEIGHBOUR.format('<', 'DESC')}, {_NEIGHBOUR.format('>', 'ASC')}"
    " FROM memory_item AS item WHERE number = ANY(%s)"
)


class PostgresMemoryIndex:
    """The memory index of a workspace, for all processes of the cluster. See `lmagent.memory.search.sources`.

    Args:
        workspace: its name in the cluster.
        embedder: makes vectors, in a thread of its own; without one, or without pgvector, the words count alone.
        notice: receives sentences for the user.
    """

    def __init__(
        self, database: Database, workspace: str, embedder: Embedder | None, notice: Callable[[str], None]
    ) -> None:
        self._database = database
        self._workspace = workspace
        self._filler = Filler(lambda: PostgresVectors(database, workspace), embedder, notice) if embedder else None

    @property
    def fault(self) -> str:
        """Return why vectors cannot be made at present; empty if they can, or no embedder was given."""
        return self._filler.fault if self._filler else ""

    @property
    def kind(self) -> str:
        if self._filler is None or self._filler.vectors is None or self.fault:
            return "words"
        return f"words and vectors of {self._filler.embedder.name}"

    def close(self) -> None:
        if self._filler:
            self._filler.close()

    # --- writing --------------------------------------------------------------------------------------------------

    def index(self, items: Iterable[Loose]) -> None:
        self._index([as_item(item) for item in items])

    def _index(self, items: Sequence[MemoryItem]) -> None:
        rows = [self._row(item) for item in items]

        def write(connection: Connection) -> None:
            with connection.cursor() as cursor:
                cursor.executemany(_UPSERT, rows)

        if rows:
            self._database.run(write)
            if self._filler:
                self._filler.wake()

    def _row(self, item: MemoryItem) -> tuple[Any, ...]:
        id, text, session, speaker = (_storable(one) for one in (item.id, item.text, item.session, item.speaker))
        words = _words(text)
        return (self._workspace, id, text, item.ts, session, speaker, asks(text), " ".join(words), len(words))

    def remove(self, ids: Iterable[str]) -> int:
        query, wanted = "DELETE FROM memory_item WHERE workspace = %s AND id = ANY(%s)", [_storable(id) for id in ids]
        return self._database.run(lambda connection: connection.execute(query, (self._workspace, wanted)).rowcount)

    def purge(self, ids: Iterable[str]) -> int:
        """Remove items, and let the database reuse their room. Its own log (WAL) holds them until it is recycled."""
        removed = self.remove(ids)
        with self._database.connect() as connection:
            connection.execute("VACUUM FULL memory_item")
        return removed

    def take(self, source: str, mark: str, items: Sequence[MemoryItem], *, whole: bool) -> None:
        if whole:
            self._remove_others(source, [item.id for item in items])
        self._index(items)
        query = (
            "INSERT INTO memory_source VALUES (%s, %s, %s)"
            " ON CONFLICT (workspace, name) DO UPDATE SET mark = excluded.mark"
        )
        self._database.run(lambda connection: connection.execute(query, (self._workspace, source, mark)))

    def drop(self, source: str) -> None:
        self._remove_others(source, [])
        query = "DELETE FROM memory_source WHERE workspace = %s AND name = %s"
        self._database.run(lambda connection: connection.execute(query, (self._workspace, source)))

    def _remove_others(self, source: str, kept: list[str]) -> None:
        query = "DELETE FROM memory_item WHERE workspace = %s AND session = %s AND id <> ALL(%s)"
        self._database.run(lambda connection: connection.execute(query, (self._workspace, source, kept)))

    def wait_embedded(self, timeout: float) -> bool:
        """Wait until each item has a vector; False if one has none after so many seconds, or no embedder was given."""
        if not self._filler:
            return False
        self._filler.wake()
        return self._filler.wait(timeout)

    # --- reading --------------------------------------------------------------------------------------------------

    def marks(self) -> dict[str, str]:
        return dict(self._rows("SELECT name, mark FROM memory_source WHERE workspace = %s", self._workspace))

    def count(self) -> int:
        return self._rows("SELECT count(*) FROM memory_item WHERE workspace = %s", self._workspace)[0][0]

    def ids_of_texts(self, is_meant: Callable[[str], bool]) -> list[str]:
        found = self._rows("SELECT id, text FROM memory_item WHERE workspace = %s", self._workspace)
        return [id for id, text in found if is_meant(text)]

    def alike(self, text: str, least: float, prefix: str) -> str:
        if self._filler is None or (vectors := self._filler.vectors) is None:
            return ""
        vector = self._filler.query_vector(text)
        return "" if vector is None else vectors.alike(vector, self._filler.embedder.name, least, prefix)

    def search(
        self, query: str, k: int, *, now: float | None = None, since: float | None = None, until: float | None = None
    ) -> list[Hit]:
        """Return up to `k` items, the best first; see `MemoryIndex.search`."""
        words = query_words(query)
        if k <= 0 or not words:
            return []
        times = (-1e300 if since is None else since, 1e300 if until is None else until)
        limit = max(POOL, k)
        matched = self._matches(words, limit, times)
        cosines = self._cosines(query, limit, times)
        found = self._candidates({*matched, *(cosines or ())}, frozenset(words))
        scores = fuse(found, base_scores(matched, cosines))
        hits = [hit for hit in self._hits(scores) if times[0] <= hit.ts <= times[1]]
        hits.sort(key=lambda hit: (-hit.score, -hit.ts if now is None else abs(hit.ts - now), hit.id))
        return hits[:k]

    def _matches(self, words: list[str], limit: int, times: tuple[float, float]) -> dict[int, float]:
        """Return the BM25 scores of the best items that hold any of the words."""
        given = {
            "words": " ".join(_words(" ".join(words))),
            "workspace": self._workspace,
            "since": times[0],
            "until": times[1],
            "limit": limit,
        }
        return dict(self._database.run(lambda connection: connection.execute(_MATCHES, given).fetchall()))

    def _cosines(self, query: str, limit: int, times: tuple[float, float]) -> dict[int, float] | None:
        if self._filler is None or (vectors := self._filler.vectors) is None:
            return None
        self._filler.wake_once()
        query_speakers = "SELECT DISTINCT speaker FROM memory_item WHERE workspace = %s LIMIT 1000"
        speakers = [speaker for (speaker,) in self._rows(query_speakers, self._workspace)]
        vector = self._filler.query_vector(without_names(query, speakers))
        return None if vector is None else vectors.nearest(vector, self._filler.embedder.name, limit, times)

    def _candidates(self, numbers: set[int], words: frozenset[str]) -> dict[int, FoundItem]:
        """Return these items with their neighbours, which a search finds through them."""
        found: dict[int, FoundItem] = {}

        def add(wanted: set[int]) -> None:
            for number, session, speaker, is_question, before, after in self._rows(_FOUND, list(wanted)):
                found[number] = FoundItem(number, session, named(speaker, words), is_question, before, after)

        add(numbers)
        add({number for item in found.values() for number in (item.before, item.after) if number} - found.keys())
        return found

    def _hits(self, scores: Mapping[int, float]) -> list[Hit]:
        rows = self._rows(f"SELECT number, {_ITEM} FROM memory_item WHERE number = ANY(%s)", list(scores))
        return [Hit(*row, score=scores[number]) for number, *row in rows]

    def around(self, ids: Iterable[str], span: int = 1) -> Mapping[str, Sequence[MemoryItem]]:
        return {id: found for id in ids if (found := self._around(_storable(id), span))}

    def _around(self, id: str, span: int) -> list[MemoryItem]:
        query = f"SELECT number, {_ITEM} FROM memory_item WHERE workspace = %s AND id = %s"
        rows = self._rows(query, self._workspace, id)
        if not rows or not rows[0][4]:
            return [MemoryItem(*row[1:]) for row in rows]
        number, *_, ts, session, _speaker = rows[0]
        query = (
            f"SELECT {_ITEM} FROM memory_item WHERE workspace = %s AND session = %s AND (ts, number) {{0}} (%s, %s)"
            " ORDER BY ts {1}, number {1} LIMIT %s"
        )
        place = (self._workspace, session, ts, number, span)
        before, after = self._rows(query.format("<", "DESC"), *place), self._rows(query.format(">", "ASC"), *place)
        return [MemoryItem(*row) for row in (*reversed(before), rows[0][1:], *after)]

    def _rows(self, query: str, *given: Any) -> list[tuple[Any, ...]]:
        return self._database.run(lambda connection: connection.execute(query.encode(), given).fetchall())


class PostgresVectors:
    """The vectors of a workspace's items, in a table of pgvector. Raise ConfigError if the extension is missing."""

    def __init__(self, database: Database, workspace: str) -> None:
        self._database = database
        self._workspace = workspace
        try:
            with database.connect() as connection, connection.transaction():
                connection.execute("CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public")
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS memory_vector (item bigint PRIMARY KEY REFERENCES memory_item"
                    " ON DELETE CASCADE, model text NOT NULL, text text NOT NULL, data vector NOT NULL)"
                )
        except DatabaseError as missing:
            reason = str(missing).strip().splitlines()[0]
            raise ConfigError(f"the database has no pgvector: {reason}", fix="install pgvector on its server") from None

    def pending(self, model: str, after: int, limit: int) -> Batch:
        query = (
            "SELECT number, memory_item.text FROM memory_item LEFT JOIN memory_vector AS known"
            " ON known.item = number AND known.model = %s AND known.text = md5(memory_item.text)"
            " WHERE workspace = %s AND number > %s AND known.item IS NULL ORDER BY number LIMIT %s"
        )
        given = (model, self._workspace, after, limit)
        return self._database.run(lambda connection: connection.execute(query, given).fetchall())

    def store(self, batch: Batch, rows: Any, model: str) -> None:
        query = (
            "INSERT INTO memory_vector SELECT number, %s, md5(text), %s::vector FROM memory_item"
            " WHERE number = %s AND text = %s ON CONFLICT (item)"
            " DO UPDATE SET model = excluded.model, text = excluded.text, data = excluded.data"
        )
        given = [(model, _vector(row), *item) for item, row in zip(batch, rows, strict=True)]

        def write(connection: Connection) -> None:
            with connection.cursor() as cursor:
                cursor.executemany(query, given)

        self._database.run(write)

    def nearest(self, vector: Any, model: str, limit: int, times: tuple[float, float]) -> dict[int, float]:
        """Return the cosines of the items of a time whose vectors are nearest, by number."""
        query = (
            "SELECT item, 1 - (data <=> %s::vector) FROM memory_vector JOIN memory_item ON number = item"
            " WHERE workspace = %s AND model = %s AND vector_dims(data) = %s AND ts BETWEEN %s AND %s"
            " ORDER BY data <=> %s::vector LIMIT %s"
        )
        text = _vector(vector)
        given = (text, self._workspace, model, len(vector), *times, text, limit)
        return dict(self._database.run(lambda connection: connection.execute(query, given).fetchall()))

    def alike(self, vector: Any, model: str, least: float, prefix: str) -> str:
        """Return the nearest id that begins so, if its cosine is at least so much; else an empty text."""
        query = (
            "SELECT id, 1 - (data <=> %s::vector) FROM memory_vector JOIN memory_item ON number = item"
            " WHERE workspace = %s AND model = %s AND vector_dims(data) = %s AND starts_with(id, %s)"
            " ORDER BY data <=> %s::vector LIMIT 1"
        )
        text = _vector(vector)
        given = (text, self._workspace, model, len(vector), prefix, text)
        found = self._database.run(lambda connection: connection.execute(query, given).fetchall())
        return next((id for id, cosine in found if cosine >= least), "")


def _vector(row: Any) -> str:
    return f"[{','.join(f'{value:.6g}' for value in row)}]"


def _words(text: str) -> list[str]:
    """Return the words of a text without accents, as FTS5 finds them: PostgreSQL would read addresses as one word."""
    plain = unicodedata.normalize("NFKD", text[:LONGEST]).casefold()
    return _WORD.findall("".join(char for char in plain if not unicodedata.combining(char)))


def _storable(text: str) -> str:
    """Return a text that PostgreSQL can store: it has no NUL and no half characters."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()
