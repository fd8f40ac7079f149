"""Files with known answers: each is read right, or refused with the reason and, where there are lines, the line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from data_kit import arrow, columns_of, look, parquet, refusal, rows_of, shape, sqlite, xlsx

from lmagent.data.inside import binary, describe, table, textfile


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# --- CSV ------------------------------------------------------------------------------------------------------------

PLAIN = "id,name\n1,Ann\n2,Bob\n"

SAME_TABLE = {
    "comma": PLAIN,
    "semicolon": "id;name\n1;Ann\n2;Bob\n",
    "pipe": "id|name\n1|Ann\n2|Bob\n",
    "crlf": PLAIN.replace("\n", "\r\n"),
    "old mac": PLAIN.replace("\n", "\r"),
    "no line end at the end": PLAIN.rstrip(),
    "empty lines": "id,name\n\n1,Ann\n\n\n2,Bob\n\n",
    "quoted": '"id","name"\n"1","Ann"\n"2","Bob"\n',
    "utf-8 with a mark": PLAIN.encode("utf-8-sig"),
    "utf-16 with a mark": PLAIN.encode("utf-16"),
    "utf-16 without a mark": PLAIN.encode("utf-16-be"),
}


@pytest.mark.parametrize("kind", SAME_TABLE)
def test_the_dialect_and_the_encoding_of_a_csv_file_are_detected(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", SAME_TABLE[kind])
    assert columns_of(path) == {"id": "integer", "name": "text"}
    assert rows_of(path) == [["1", "Ann"], ["2", "Bob"]]
    assert rows_of(path, "tail", rows=1) == [["2", "Bob"]]
    assert shape(path) == (2, 2)


def test_a_tab_separated_file_may_have_commas_in_its_cells(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "id\tplace\n1\tRome, Italy\n2\tParis, France\n")
    assert rows_of(path) == [["1", "Rome, Italy"], ["2", "Paris, France"]]
    assert "tab" in look(path)["kind"]


def test_quoted_cells_may_hold_line_ends_quotes_and_delimiters(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", 'id,text\n1,"two\nlines, and ""quotes"""\n2,x\n')
    assert rows_of(path) == [["1", 'two\nlines, and "quotes"'], ["2", "x"]]
    assert shape(path) == (2, 2)


def test_quotes_may_be_escaped_by_a_backslash(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", 'id,text\n1,"says \\"no\\", twice"\n2,x\n')
    assert rows_of(path) == [["1", 'says "no", twice'], ["2", "x"]]


def test_windows_text_is_not_mistaken_for_utf_8(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "name,price\nCafé,5 €\n".encode("cp1252"))
    assert rows_of(path) == [["Café", "5 €"]]
    assert "Windows-1252" in look(path)["kind"]


def test_bytes_that_are_no_text_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", b"a,b\n" + b"1,2\n" * 100_000 + b"\xff\xfe,3\n")
    found = look(path, "tail", rows=1)
    assert found["rows"] == [["\ufffd\ufffd", "3"]]
    assert any("2 bytes are not UTF-8" in note for note in found["notes"])


def test_rows_of_other_lengths_are_filled_up_cut_and_named(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "a,b,c\n1,2,3\n4,5\n6,7,8,9\n")
    found = look(path)
    assert found["rows"] == [["1", "2", "3"], ["4", "5", None], ["6", "7", "8"]]
    assert any("2 of the rows read" in note and "first line 3" in note for note in found["notes"])
    assert shape(path) == (3, 3)


def test_a_row_without_an_end_does_not_change_the_count_of_a_row_with_too_much(tmp_path: Path) -> None:
    assert shape(write(tmp_path, "a.csv", "a,b\n1,2\n\n3,4,5\n")) == (2, 2)


def test_a_quote_that_never_closes_is_named_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", 'a,b\n1,2\n3,"open\n5,6\n')
    found = look(path)
    assert found["rows"] == [["1", "2"], ["3", "open\n5,6\n"]]
    assert any("line 3: a quote opens there and never closes" in note for note in found["notes"])


def test_a_file_without_names_has_numbered_columns(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "1,2.5,x\n2,3.5,y\n")
    assert columns_of(path) == {"column1": "integer", "column2": "float", "column3": "text"}
    assert shape(path) == (2, 3)


def test_years_are_names_of_columns(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "country,1990,1991\nFrance,56.7,57.1\n")
    assert list(columns_of(path)) == ["country", "1990", "1991"]


def test_names_that_come_twice_or_are_empty_are_told_apart(tmp_path: Path) -> None:
    assert list(columns_of(write(tmp_path, "a.csv", "x,x,,X\na,b,c,d\n"))) == ["x", "x_2", "column3", "X_3"]


def test_numbers_with_leading_zeros_are_text_and_empty_cells_are_null(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "code,n,flag,day,at\n007,1,true,2024-01-31,2024-01-31T10:00\n,,,,\n")
    assert list(columns_of(path).values()) == ["text", "integer", "boolean", "date", "datetime"]
    assert rows_of(path)[1] == [None] * 5


def test_long_numbers_keep_all_their_digits(tmp_path: Path) -> None:
    ids = [["12345678901234567891", "9" * 45], ["12345678901234567892", "9" * 44 + "8"]]
    path = write(tmp_path, "a.csv", "id,hash\n" + "".join(f"{','.join(row)}\n" for row in ids))
    assert columns_of(path) == {"id": "integer", "hash": "text"}
    assert rows_of(path) == ids
    assert rows_of(path, "sql", "SELECT id, hash FROM data ORDER BY id") == ids
    assert rows_of(path, "describe")[0][6:9] == ["1.23457e+19"] * 3, "no digits that are not known"


def test_a_nul_byte_is_named_with_its_line(tmp_path: Path) -> None:
    assert "line 2 has a NUL byte" in refusal(write(tmp_path, "a.csv", b"a,b\n1,\x002\n"))


def test_a_line_without_an_end_is_refused_after_a_part_of_it(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with path.open("wb") as file:
        file.write(b"a,b\n1,2\n3," + b"x" * (textfile.LONGEST + 1))
        file.truncate(1 << 30)
    for operation in ("shape", "describe", "sample"):
        assert "line 3 is longer than 16 million characters" in refusal(path, operation)


def test_a_line_of_a_gigabyte_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with path.open("wb") as file:
        file.write(b"x," * 200_000)
        file.truncate(1 << 30)
    assert "line 1 is longer" in refusal(path) or "NUL" in refusal(path)


def test_an_empty_file_is_said_to_be_empty(tmp_path: Path) -> None:
    assert "it is empty: 0 bytes" in refusal(write(tmp_path, "a.csv", ""))
    assert "it is empty" in refusal(write(tmp_path, "b.csv", "\n\n"))


def test_a_file_with_names_alone_has_no_rows(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "a,b\n")
    assert shape(path) == (0, 2)
    assert rows_of(path) == []
    assert look(path, "describe")["rows"][0][:5] == ["a", "empty", "0", "0", "0"]


def test_the_end_of_a_large_file_is_found_from_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "".join(f'{at},"says ""hi"", and\ngoes {at}"\n' for at in range(300_000))
    path = write(tmp_path, "a.csv", "id,text\n" + lines)
    monkeypatch.setattr(textfile.TextFile, "blocks", lambda _: pytest.fail("it was read from its beginning"))
    monkeypatch.setattr(table.Table, "types", lambda _: ["integer", "text"])
    assert rows_of(path, "tail", rows=2) == [[str(at), f'says "hi", and\ngoes {at}'] for at in (299_998, 299_999)]


# --- JSON -----------------------------------------------------------------------------------------------------------


def test_json_lines_have_columns_with_dots_for_inner_objects(tmp_path: Path) -> None:
    lines = ['{"id": 1, "user": {"name": "Ann", "tags": ["a", "b"]}}', "", '{"id": 2.5, "extra": null}']
    path = write(tmp_path, "a.jsonl", "\n".join(lines))
    assert columns_of(path) == {"id": "float", "user.name": "text", "user.tags": "list", "extra": "empty"}
    assert rows_of(path) == [["1", "Ann", '["a", "b"]', None], ["2.5", None, None, None]]
    assert shape(path) == (2, 4)


def test_a_broken_line_of_json_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '{"a": 1}\n{"a": 2,}\n')
    assert refusal(path).startswith("line 2, character 9:")


JSON_TABLES = {
    "list of objects": [{"id": 1, "name": "Ann"}, {"id": 2, "name": "Bob"}],
    "object of lists": {"id": [1, 2], "name": ["Ann", "Bob"]},
    "rows beside other facts": {"count": 2, "results": [{"id": 1, "name": "Ann"}, {"id": 2, "name": "Bob"}]},
}


@pytest.mark.parametrize("kind", JSON_TABLES)
def test_the_table_in_a_json_document_is_found(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path, "a.json", json.dumps(JSON_TABLES[kind], indent=1))
    assert columns_of(path) == {"id": "integer", "name": "text"}
    assert rows_of(path) == [["1", "Ann"], ["2", "Bob"]]


def test_an_object_of_objects_has_its_names_as_a_column(tmp_path: Path) -> None:
    path = write(tmp_path, "a.json", '{"ann": {"age": 1}, "bob": {"age": 2}}')
    assert rows_of(path) == [["ann", "1"], ["bob", "2"]]


def test_json_lines_by_the_name_of_json_are_read(tmp_path: Path) -> None:
    assert rows_of(write(tmp_path, "a.json", '{"a": 1}\n{"a": 2}\n')) == [["1"], ["2"]]


def test_lists_of_different_lengths_are_no_table(tmp_path: Path) -> None:
    assert "a: 1, b: 2" in refusal(write(tmp_path, "a.json", '{"a": [1], "b": [1, 2]}'))


def test_broken_json_is_named_with_line_and_character(tmp_path: Path) -> None:
    assert refusal(write(tmp_path, "a.json", '[{"a": 1},\n {"a" 2}]')).startswith("line 2, character 7:")


def test_json_that_is_nested_without_end_is_refused(tmp_path: Path) -> None:
    assert "nested too deeply" in refusal(write(tmp_path, "a.json", "[" * 200_000))
    assert "nested too deeply" in refusal(write(tmp_path, "a.jsonl", '{"a":' * 200_000))
    deep = '{"a":' * 50 + "1" + "}" * 50
    assert list(columns_of(write(tmp_path, "b.jsonl", deep))) == ["a." * 8 + "a"]


def test_a_number_of_thousands_of_digits_is_refused(tmp_path: Path) -> None:
    assert "line 1" in refusal(write(tmp_path, "a.json", f'[{{"a": {"9" * 5000}}}]'))


# --- SQLite, Excel, Parquet, Arrow ----------------------------------------------------------------------------------


def test_the_only_table_of_a_sqlite_file_is_shown(tmp_path: Path) -> None:
    path = sqlite(
        tmp_path / "a.db", "CREATE TABLE t (id INTEGER, name TEXT)", "INSERT INTO t VALUES (1, NULL), (2, 'x')"
    )
    assert rows_of(path) == [["1", None], ["2", "x"]]
    assert rows_of(path, "tail", rows=1) == [["2", "x"]]
    assert shape(path) == (2, 2)


def test_of_several_tables_one_has_to_be_named(tmp_path: Path) -> None:
    path = sqlite(
        tmp_path / "a.db", 'CREATE TABLE "b ""c" (x)', "CREATE VIEW v AS SELECT 7 AS seven", "CREATE TABLE a (y)"
    )
    assert refusal(path) == 'it has 3 tables: a, b "c, v. Name one as query'
    assert rows_of(path, query="V") == [["7"]]
    assert shape(path, 'b "c') == (0, 1)
    assert "no table 'z'" in refusal(path, query="z")


def test_a_broken_sqlite_file_is_refused(tmp_path: Path) -> None:
    whole = sqlite(tmp_path / "a.db", "CREATE TABLE t (x)", "INSERT INTO t VALUES (zeroblob(100000))").read_bytes()
    broken = write(tmp_path, "b.db", whole[:4096] + b"\x99" * (len(whole) - 4096))
    assert refusal(broken).startswith("it cannot be read as SQLite:")
    assert refusal(write(tmp_path, "c.db", b"SQLite format 3\0" + b"\x01" * 200)).startswith(
        "it cannot be read as SQLite"
    )


def test_a_sheet_of_a_workbook_is_shown_with_the_saved_values_of_its_formulas(tmp_path: Path) -> None:
    rows = [[None, None], ["id", "name"], [1, "Ann"], [None, None], [2.5, "=HYPERLINK(&quot;http://x&quot;)"]]
    path = xlsx(tmp_path / "a.xlsx", {"People": rows})
    assert rows_of(path) == [["1", "Ann"], ["2.5", "42"]]
    assert shape(path) == (2, 2)
    assert look(path)["kind"] == "Excel, sheet People"


def test_of_several_sheets_one_has_to_be_named(tmp_path: Path) -> None:
    path = xlsx(tmp_path / "a.xlsx", {"A": [["x"], [1]], "B": [["y"], [2]]})
    assert refusal(path) == "it has 2 sheets: A, B. Name one as query"
    assert rows_of(path, query="b") == [["2"]]


def test_a_workbook_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary, "UNPACKED", 4 << 20)
    path = xlsx(tmp_path / "a.xlsx", {"A": [["x"], [1]]}, padding=8 << 20)
    assert path.stat().st_size < 1 << 20
    assert refusal(path) == "it unpacks to 8 MB, and 4 MB are allowed"


def test_entities_of_a_workbook_are_not_multiplied(tmp_path: Path) -> None:
    entities = "".join(f'<!ENTITY e{at} "{f"&e{at - 1};" * 10 if at else "ha"}">' for at in range(10))
    laughs = f'<?xml version="1.0"?><!DOCTYPE x [{entities}]>'
    found = look(xlsx(tmp_path / "a.xlsx", {"A": [["x"], ["&e9;"]]}, entities=laughs), rows=5)
    assert "error" in found or all(len(cell or "") < 100 for row in found["rows"] for cell in row)


def test_a_workbook_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    whole = xlsx(tmp_path / "a.xlsx", {"A": [["x"], [1]]}).read_bytes()
    assert "cannot be read as a workbook" in refusal(write(tmp_path, "b.xlsx", whole[:-200]))
    assert "it is a ZIP archive" in refusal(write(tmp_path, "c.zip", whole[:200]))


def test_parquet_has_its_declared_types(tmp_path: Path) -> None:
    query = "SELECT range AS id, 'n' || range AS name, DATE '2024-01-01' AS day, [range] AS l FROM range(1000)"
    path = parquet(tmp_path / "a.parquet", query)
    assert columns_of(path) == {"id": "integer", "name": "text", "day": "date", "l": "list"}
    assert rows_of(path, "tail", rows=1) == [["999", "n999", "2024-01-01", "[999]"]]
    assert shape(path) == (1000, 4)
    broken = write(tmp_path, "b.parquet", path.read_bytes()[:-100])
    assert "Parquet" in refusal(broken) or "parquet" in refusal(broken)


@pytest.mark.parametrize("stream", [False, True])
def test_arrow_files_and_streams_are_read(stream: bool, tmp_path: Path) -> None:
    path = arrow(tmp_path / "a.arrow", stream=stream, rows=5000)
    assert columns_of(path) == {"id": "integer", "name": "text"}
    assert rows_of(path, rows=2) == [["0", None], ["1", "name 1"]]
    assert rows_of(path, "tail", rows=1) == [["4999", "name 4999"]]
    assert shape(path) == (5000, 2)
    assert "cannot be read as Arrow" in refusal(write(tmp_path, "b.arrow", path.read_bytes()[:300]), "shape")


OTHERS = {
    "a.csv.gz": (b"\x1f\x8b\x08", "packed with gzip"),
    "a.pdf": (b"%PDF-1.7", "it is a PDF"),
    "a.png": (b"\x89PNG\r\n", "it is a picture"),
    "a.feather": (b"FEA1....", "version 1"),
    "a.parquet": (b"not at all", "its name says Parquet"),
    "a.bin": (bytes(range(256)), "no text"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_table_is_refused_with_the_reason(name: str, tmp_path: Path) -> None:
    content, why = OTHERS[name]
    assert why in refusal(write(tmp_path, name, content))


# --- operations -----------------------------------------------------------------------------------------------------


def test_describe_counts_and_measures_each_column(tmp_path: Path) -> None:
    lines = "".join(f"{at},{at % 7},{'' if at % 10 else 'x'}\n" for at in range(1, 101))
    found = look(write(tmp_path, "a.csv", "n,m,t\n" + lines), "describe")
    n, m, t = found["rows"]
    assert n == ["n", "integer", "100", "0", "100", "1", "25.75", "50.5", "75.25", "100", "50.5"]
    assert m[2:6] == ["100", "0", "7", "0"]
    assert t == ["t", "text", "10", "90", "1", "x", "-", "-", "-", "x", "-"]


def test_describe_estimates_many_values_within_a_few_percent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe, "EXACT", 5000)
    path = write(tmp_path, "a.jsonl", "".join(f'{{"n": {at}}}\n' for at in range(40_000)))
    (row,) = look(path, "describe")["rows"]
    distinct, q25, median = (float(row[at].lstrip("~").replace(",", "")) for at in (4, 6, 7))
    assert row[4].startswith("~")
    assert abs(distinct / 40_000 - 1) < 0.15
    assert abs(q25 / 10_000 - 1) < 0.05
    assert abs(median / 20_000 - 1) < 0.05
    assert row[10] == "19999.5"


def test_values_that_are_no_numbers_are_counted_in_a_column_of_numbers(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "n\n" + "1\n" * 1500 + "n/a\n")
    found = look(path, "describe")
    assert found["rows"][0][1:4] == ["integer", "1,501", "0"]
    assert any("n (1)" in note for note in found["notes"])


def test_a_sample_is_the_same_each_time_and_from_the_whole_file(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "n\n" + "".join(f"{at}\n" for at in range(10_000)))
    first = rows_of(path, "sample", rows=20)
    assert first == rows_of(path, "sample", rows=20)
    places = [int(row or 0) for row, _ in first]
    assert places == sorted(places)
    assert places[-1] > 5000
    assert all(int(value or 0) == place - 1 for place, (_, value) in zip(places, first, strict=True))


def test_a_pass_that_takes_too_long_says_how_far_it_came(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "n,m\n" + "1,2\n" * 2_000_000)
    found = look(path, "describe", seconds=0.3)
    assert "not all" in found["title"]
    assert any("the time was up after" in note for note in found["notes"])


def test_columns_are_listed_with_types_nulls_and_an_example(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "a,b\n1,\n2,x\n")
    assert rows_of(path, "columns") == [["a", "integer", "0", "1"], ["b", "text", "1", "x"]]
