"""GGUF files that are damaged, cut off, hostile, or something else: each is refused with the reason."""

from __future__ import annotations

import contextlib
import json
import struct
import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from madegguf import TENSORS, gguf, pairs, tensor, text
from testkit.amount import examples

from lmagent.modelserver.library.facts import read_facts
from lmagent.modelserver.library.gguf import MAX_HEADER, read_header
from lmagent.modelserver.spec import ModelServerError

GOOD = gguf(pairs(), TENSORS)


def refused(tmp_path, content: bytes) -> ModelServerError:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelServerError) as error:
        read_facts(path)
    assert error.value.message.startswith("m.gguf ")
    assert error.value.fix
    assert error.value.code == "model_broken"
    return error.value


def safetensors() -> bytes:
    head = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return struct.pack("<Q", len(head)) + head + bytes(4)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (bytes(4096), "begins with zeros"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"\n <html lang='en'>", "web page"),
        (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "server's error"),
        (b'{"error": "Repository not found"}', "server's error"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "Git LFS pointer"),
        (b"PK\x03\x04" + bytes(50), "begins with b'PK"),
        (safetensors(), "is not a GGUF"),
        (b"hello, this is a text", "begins with b'hell'"),
        (b"GGUF\x01\0\0\0" + bytes(50), "version 1"),
        (b"GGUF\0\0\0\x03" + bytes(50), "versions 2 and 3, little endian"),
        (b"GGUF\x63\0\0\0" + bytes(50), "version 99"),
        (b"GGUF", "cut off"),
        (b"GGUF\x03\0\0\0", "cut off"),
    ],
)
def test_what_a_file_is_instead_is_said(tmp_path, content, words):
    assert words in refused(tmp_path, content).message


def counted(tensors: int, count: int, rest: bytes) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, count) + rest


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (counted(0, 1 << 62, b""), "pairs of metadata"),
        (counted(1 << 62, 0, b""), "tensors"),
        (counted(0, 1, struct.pack("<Q", 1 << 60)), "cut off: its header has"),
        (counted(0, 1, text("k") + struct.pack("<IQ", 8, 1 << 50)), "cut off: its header has"),
        (counted(0, 1, text("k") + struct.pack("<IIQ", 9, 8, 1 << 50)), "cut off: its header has"),
        (counted(0, 1, text("k") + struct.pack("<IIQ", 9, 4, 1 << 63)), "cut off: its header has"),
        (counted(0, 1, text("k") + struct.pack("<IIQQ", 9, 8, 1, 1 << 62)), "cut off: its header has"),
        (counted(0, 1, text("k") + struct.pack("<IIQ", 9, 9, 1)), "unknown type 9"),
        (counted(0, 1, text("k") + struct.pack("<I", 77)), "unknown type 77"),
        (counted(1, 0, text("w") + struct.pack("<I5Q", 1 << 31, 1, 1, 1, 1, 1)), "dimensions"),
        (counted(1, 0, tensor("w", (1 << 40, 1 << 40), 0, 0)), "numbers"),
        (counted(1, 0, tensor("w", (64, 64), 0, 1 << 61)), "cut off: its tensors end"),
        (gguf({**pairs(), "general.alignment": 0}, TENSORS), "alignment"),
        (gguf({"general.name": "x"}, TENSORS), "architecture"),
    ],
)
def test_absurd_counts_and_lengths_are_refused_before_anything_is_taken_for_them(tmp_path, content, words):
    assert words in refused(tmp_path, content).message


def test_a_download_that_was_cut_off_in_the_tensors_is_noticed(tmp_path):
    error = refused(tmp_path, GOOD[:-1000])
    assert "cut off: its tensors end at byte" in error.message
    assert "models pull" in error.fix


def test_a_file_cut_off_anywhere_is_refused(tmp_path):
    path = tmp_path / "m.gguf"
    for length in range(0, len(GOOD), 97):
        path.write_bytes(GOOD[:length])
        with pytest.raises(ModelServerError):
            read_facts(path)


def test_a_folder_and_a_missing_file_are_refused(tmp_path):
    with pytest.raises(ModelServerError, match="is a folder"):
        read_facts(tmp_path)
    with pytest.raises(ModelServerError, match="cannot be read"):
        read_facts(tmp_path / "none.gguf")


@settings(max_examples=examples(300), deadline=None)
@given(junk=st.binary(max_size=400))
@example(junk=b"")
def test_no_bytes_behind_the_magic_raise_anything_else(tmp_path_factory, junk):
    path = tmp_path_factory.getbasetemp() / "junk.gguf"
    path.write_bytes(b"GGUF\x03\0\0\0" + junk)
    with contextlib.suppress(ModelServerError):
        read_facts(path)


@settings(max_examples=examples(400), deadline=None)
@given(places=st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), min_size=1, max_size=8))
def test_flipped_bytes_are_read_or_refused_and_never_worse(tmp_path_factory, places):
    damaged = bytearray(GOOD)
    for place, byte in places:
        damaged[place] = byte
    path = tmp_path_factory.getbasetemp() / "flipped.gguf"
    path.write_bytes(damaged)
    with contextlib.suppress(ModelServerError):
        read_facts(path)


def test_a_header_larger_than_all_known_ones_is_refused(tmp_path):
    path = tmp_path / "m.gguf"
    many = b"".join(text(f"general.k{number}") + struct.pack("<I", 8) + text("y" * 20_000) for number in range(4000))
    path.write_bytes(counted(0, 4000, many))
    tracemalloc.start()
    try:
        with pytest.raises(ModelServerError, match="its header has"):
            read_header(path)
        assert tracemalloc.get_traced_memory()[1] < 3 * MAX_HEADER
    finally:
        tracemalloc.stop()


def test_a_large_vocabulary_is_counted_and_not_kept(tmp_path):
    path = tmp_path / "m.gguf"
    words = [f"token-{number}" for number in range(150_000)]
    path.write_bytes(gguf({**pairs(), "tokenizer.ggml.tokens": words, "tokenizer.ggml.merges": words}, TENSORS))
    tracemalloc.start()
    try:
        facts = read_facts(path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert facts.vocabulary == 150_000


def test_texts_that_lie_across_the_blocks_that_are_read_are_passed_over_rightly(tmp_path):
    path = tmp_path / "m.gguf"
    words = ["x" * length for length in (1, 1 << 20, 7, (1 << 20) - 9, (3 << 20) + 1, 0, 5)]
    made = {"tokenizer.ggml.tokens": words, **pairs(), "general.last": "reached"}
    path.write_bytes(gguf({**made, "tokenizer.ggml.tokens": words}, TENSORS))
    header = read_header(path)
    assert (header.values["general.last"], header.lengths["tokenizer.ggml.tokens"]) == ("reached", 7)
