from collections import Counter

import pytest
from textcalls_corpus import TOOLS, exact_calls, rows, run_wrongly

from lmagent.providers.textcalls import parse_text

ROWS = rows()
FORMATS = Counter(row["file"] for row in ROWS)


def test_the_corpus_is_large_and_has_texts_that_run_nothing():
    assert len(ROWS) >= 350
    assert sum(not row["calls"] for row in ROWS) >= 60
    assert len({(row["file"], row["note"]) for row in ROWS}) == len(ROWS)


def test_of_all_calls_97_percent_are_exact():
    missed = [f"{row['file']}: {row['note']}" for row in ROWS if not exact_calls(row, parse_text(row["text"], TOOLS))]
    assert len(missed) <= 0.03 * len(ROWS), missed


def test_of_all_texts_95_percent_are_exact_in_calls_and_content():
    missed = [
        f"{row['file']}: {row['note']}"
        for row in ROWS
        if (parsed := parse_text(row["text"], TOOLS)).content != row["content"] or not exact_calls(row, parsed)
    ]
    assert len(missed) <= 0.05 * len(ROWS), missed


def test_no_call_runs_wrongly():
    assert [row["note"] for row in ROWS if run_wrongly(row, parse_text(row["text"], TOOLS))] == []


@pytest.mark.parametrize("file", sorted(FORMATS))
def test_most_of_each_file_is_exact(file):
    texts = [row for row in ROWS if row["file"] == file]
    exact = sum(exact_calls(row, parse_text(row["text"], TOOLS)) for row in texts)
    assert exact >= 0.9 * len(texts)


def test_thoughts_are_kept_apart():
    told = [row for row in ROWS if "thinking" in row]
    assert told
    for row in told:
        assert parse_text(row["text"], TOOLS).thinking == row["thinking"], row["note"]


def test_plain_text_comes_through_unchanged():
    for row in ROWS:
        if not row["calls"] and row["content"] == row["text"]:
            assert parse_text(row["text"], []).content == row["text"], row["note"]
