"""SQL over a file: what it can ask, and what it cannot reach."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from data_kit import arrow, look, parquet, refusal, rows_of, sqlite, xlsx

COUNT = "SELECT count(*) AS n, max(id) AS m FROM data"


def made(folder: Path, kind: str) -> Path:
    """Return a file of that kind with the ids 1 to 3."""
    if kind == "parquet":
        return parquet(folder / "a.parquet", "SELECT range + 1 AS id FROM range(3)")
    if kind == "sqlite":
        return sqlite(folder / "a.db", "CREATE TABLE t (id)", "INSERT INTO t VALUES (1), (2), (3)")
    if kind == "excel":
        return xlsx(folder / "a.xlsx", {"T": [["id"], [1], [2], [3]]})
    path = folder / f"a.{kind.split()[0]}"
    text = {"jsonl": '{"id": 1}\n{"id": 2}\n{"id": 3}\n', "json": '[{"id": 1}, {"id": 2}, {"id": 3}]'}
    csv = "id,x\n1,a\n2,b\n3,c\n"
    encoded = {"csv utf-16": csv.encode("utf-16"), "csv ragged": csv.replace("2,b", "2").encode()}
    path.write_bytes(encoded.get(kind) or text.get(kind, csv).encode())
    return path


@pytest.mark.parametrize("kind", ["csv", "csv utf-16", "csv ragged", "jsonl", "json", "parquet", "sqlite", "excel"])
def test_every_format_is_the_table_data(kind: str, tmp_path: Path) -> None:
    assert rows_of(made(tmp_path, kind), "sql", COUNT) == [["3", "3"]]


def test_arrow_is_the_table_data(tmp_path: Path) -> None:
    assert rows_of(arrow(tmp_path / "a.feather"), "sql", COUNT) == [["3", "2"]]


def test_sheets_and_tables_go_by_their_names(tmp_path: Path) -> None:
    book = xlsx(tmp_path / "a.xlsx", {"Orders": [["id"], [1], [2]], "Old Ones": [["id"], [2]]})
    assert rows_of(book, "sql", 'SELECT id FROM Orders JOIN "Old Ones" USING (id)') == [["2"]]
    file = sqlite(tmp_path / "a.db", "CREATE TABLE a (x)", "CREATE TABLE b (y)", "INSERT INTO b VALUES (5)")
    assert rows_of(file, "sql", "SELECT y FROM b LEFT JOIN a ON x = y") == [["5"]]


def test_values_keep_their_types(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('code;day;"the price";text\n007;2024-01-31;2.5;"a ""b"";\nc"\n008;2024-02-01;;""\n')
    query = """SELECT code, day + 1 AS next, "the price" * 2 AS double, text FROM data WHERE code = '007'"""
    assert rows_of(path, "sql", query) == [["007", "2024-02-01", "5", 'a "b";\nc']]
    lines = tmp_path / "a.jsonl"
    lines.write_text('{"a": "007", "b": {"c": [1, 2]}, "d": true}\n{"a": "", "b": null, "d": false}\n')
    assert rows_of(lines, "sql", "SELECT * FROM data WHERE NOT d OR a <> ''") == [
        ["007", "[1, 2]", "true", None],
        ["", None, "false", None],
    ]


def test_the_result_is_cut_and_says_so(tmp_path: Path) -> None:
    path = made(tmp_path, "csv")
    found = look(path, "sql", "SELECT * FROM data, range(1000)", rows=4)
    assert len(found["rows"]) == 4
    assert found["title"] == "sql: the first 4 rows of more"


ERRORS = {
    "SELEC 1": "SELEC",
    "SELECT nope FROM data": "nope",
    "SELECT 1; SELECT 2": "only one SELECT",
    "": "needs a query",
    "SELECT id / 'x' FROM data": "Conver",
}


@pytest.mark.parametrize("query", ERRORS)
def test_a_wrong_query_is_answered_by_one_line(query: str, tmp_path: Path) -> None:
    answer = refusal(made(tmp_path, "csv"), "sql", query)
    assert ERRORS[query] in answer
    assert "\n" not in answer


def test_a_query_without_an_end_is_stopped(tmp_path: Path) -> None:
    endless = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT count(*) FROM r"
    for kind in ("csv", "sqlite"):
        found = look(made(tmp_path, kind), "sql", endless, seconds=0.5)
        assert "longer than 0.5 s" in found["error"] or "Out of Memory" in found["error"]


@pytest.mark.long
def test_a_query_for_more_memory_than_there_is_is_refused(tmp_path: Path) -> None:
    answer = refusal(
        made(tmp_path, "csv"), "sql", "SELECT list(a.range || b.range) FROM range(100000) a, range(100000) b"
    )
    assert "Memory" in answer or "longer" in answer


ATTACKS = (
    "SELECT * FROM read_csv('SECRET')",
    "SELECT * FROM read_text('SECRET')",
    "SELECT * FROM read_blob('SECRET')",
    "SELECT * FROM 'SECRET'",
    "SELECT * FROM glob('FOLDER/*')",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_csv('https://example.org/a.csv')",
    "SELECT * FROM read_csv(['SECRET'])",
    "SELECT * FROM sniff_csv('SECRET')",
    "SELECT * FROM parquet_metadata('SECRET')",
    "SELECT * FROM query('SELECT * FROM read_text(''SECRET'')')",
    "SELECT * FROM query_table('SECRET')",
    "COPY data TO 'FOLDER/stolen.csv'",
    "COPY (SELECT 1) TO 'FOLDER/stolen.parquet'",
    "EXPORT DATABASE 'FOLDER/stolen'",
    "ATTACH 'FOLDER/new.db'",
    "ATTACH 'SECRET' AS s (TYPE sqlite)",
    "INSTALL httpfs",
    "LOAD httpfs",
    "PRAGMA enable_external_access=true",
    "SET enable_external_access=true",
    "SET allowed_paths=['SECRET']",
    "RESET lock_configuration",
    "CREATE TABLE t AS SELECT * FROM read_text('SECRET')",
    "CREATE SECRET s (TYPE http)",
    "DROP VIEW data",
    "CALL pragma_version()",
    "SELECT 1; COPY data TO 'FOLDER/stolen.csv'",
)


@pytest.mark.parametrize("kind", ["csv", "sqlite"])
def test_a_query_reaches_no_other_file_and_changes_nothing(kind: str, tmp_path: Path) -> None:
    path = made(tmp_path, kind)
    (tmp_path / "secret.csv").write_text("word\nopensesame\n")
    before = path.read_bytes()
    for attack in ATTACKS:
        query = attack.replace("SECRET", str(tmp_path / "secret.csv")).replace("FOLDER", str(tmp_path))
        found = look(path, "sql", query)
        assert "error" in found, query
        assert "opensesame" not in str(found)
    assert sorted(os.listdir(tmp_path)) == sorted((path.name, "secret.csv"))
    assert path.read_bytes() == before


SQLITE_ATTACKS = (
    "ATTACH DATABASE 'FOLDER/new.db' AS n",
    "INSERT INTO t VALUES (9)",
    "UPDATE t SET id = 1",
    "DELETE FROM t",
    "DROP TABLE t",
    "VACUUM INTO 'FOLDER/stolen.db'",
    "PRAGMA writable_schema=ON",
    "PRAGMA temp_store_directory='FOLDER'",
    "SELECT load_extension('SECRET')",
    "SELECT readfile('SECRET')",
    "CREATE TABLE u AS SELECT 1",
)


@pytest.mark.parametrize("attack", SQLITE_ATTACKS)
def test_a_query_of_sqlite_only_reads(attack: str, tmp_path: Path) -> None:
    path = made(tmp_path, "sqlite")
    before = path.read_bytes()
    query = attack.replace("FOLDER", str(tmp_path)).replace("SECRET", str(tmp_path / "x"))
    assert "error" in look(path, "sql", query)
    assert os.listdir(tmp_path) == [path.name]
    assert path.read_bytes() == before


def test_a_view_of_a_strangers_database_reads_its_own_tables_only(tmp_path: Path) -> None:
    path = sqlite(tmp_path / "a.db", "CREATE TABLE t (id)", "CREATE VIEW v AS SELECT load_extension('x') AS e FROM t")
    sqlite(path, "INSERT INTO t VALUES (1)")
    assert "not authorized" in refusal(path, "head", "v") or "load_extension" in refusal(path, "head", "v")
