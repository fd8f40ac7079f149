"""GGUF headers: what a model file says of itself."""

from __future__ import annotations

import pytest
from madegguf import TENSORS, chat_file, gguf, pairs

from lmagent.modelserver.library.facts import read_facts
from lmagent.modelserver.library.gguf import read_header
from lmagent.modelserver.spec import ModelServerError


def written(path, content: bytes):
    path.write_bytes(content)
    return path


def test_a_chat_model_says_what_it_is(tmp_path):
    facts = read_facts(chat_file(tmp_path / "m.gguf"))
    assert (facts.kind, facts.architecture, facts.name, facts.tokenizer) == ("chat", "qwen3", "Made for a test", "gpt2")
    assert (facts.context, facts.layers, facts.embedding, facts.feed_forward) == (32768, 2, 64, 160)
    assert (facts.heads, facts.kv_heads, facts.key_length, facts.value_length) == (4, (2, 2), 16, 16)
    assert (facts.vocabulary, facts.quantisation) == (40, "Q4_K_M")
    assert (facts.template, facts.tools, facts.thinks) == (True, True, True)
    assert facts.parameters == 64 * 40 + 2 * 256 * 16
    assert facts.layer_sizes == (16 * 144, 16 * 210)
    assert facts.size == (tmp_path / "m.gguf").stat().st_size


def test_version_two_reads_like_version_three(tmp_path):
    two = read_header(written(tmp_path / "a.gguf", gguf(pairs(), TENSORS, version=2)))
    three = read_header(written(tmp_path / "b.gguf", gguf(pairs(), TENSORS)))
    assert (two.values, two.tensors, two.data) == (three.values, three.tensors, three.data)


def test_kv_heads_may_differ_by_layer(tmp_path):
    assert read_facts(chat_file(tmp_path / "m.gguf", attention__head_count_kv=[0, 8])).kv_heads == (0, 8)


def test_the_lengths_of_keys_and_values_go_before_what_the_width_gives(tmp_path):
    facts = read_facts(chat_file(tmp_path / "m.gguf", attention__key_length=256, attention__value_length=128))
    assert (facts.key_length, facts.value_length) == (256, 128)


def test_without_a_file_type_most_of_the_numbers_name_the_quantisation(tmp_path):
    made = pairs()
    del made["general.file_type"]
    facts = read_facts(written(tmp_path / "m.gguf", gguf(made, [("blk.0.x", (256, 16), 12, 16 * 144)])))
    assert facts.quantisation == "Q4_K"


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"general.type": "adapter"}, "adapter"),
        ({"general.type": "mmproj"}, "projector"),
        ({"clip.projector_type": "gemma3", "general.architecture": "clip"}, "projector"),
        ({"general.architecture": "nomic-bert"}, "embedding"),
        ({"general.architecture": "bert"}, "embedding"),
        ({"qwen3.pooling_type": 3}, "embedding"),
        ({"qwen3.pooling_type": 4}, "reranker"),
        ({"qwen3.pooling_type": 0}, "chat"),
        ({"general.type": "imatrix"}, "other"),
    ],
)
def test_files_that_are_no_chat_models_are_told_apart(tmp_path, changes, kind):
    path = written(tmp_path / "m.gguf", gguf({**pairs(), **changes}, TENSORS))
    assert read_facts(path).kind == kind


def test_a_model_in_parts_is_read_as_one(tmp_path):
    first = {**pairs(), "split.count": 2, "split.no": 0}
    one = written(tmp_path / "big-Q4_K_M-00001-of-00002.gguf", gguf(first, TENSORS[:1]))
    two = written(tmp_path / "big-Q4_K_M-00002-of-00002.gguf", gguf({"split.no": 1, "split.count": 2}, TENSORS[1:]))
    for path in (one, two):
        facts = read_facts(path)
        assert (facts.path, facts.parts) == (one, (one, two))
        assert facts.parameters == 64 * 40 + 2 * 256 * 16
        assert facts.size == one.stat().st_size + two.stat().st_size
        assert facts.layer_sizes == (16 * 144, 16 * 210)


def test_missing_parts_are_named(tmp_path):
    path = written(tmp_path / "big-00001-of-00003.gguf", gguf({**pairs(), "split.count": 3}, TENSORS))
    with pytest.raises(ModelServerError, match=r"part 00002, 00003 is not there") as error:
        read_facts(path)
    assert "models pull" in error.value.fix


def test_a_first_part_that_lost_its_name_is_noticed(tmp_path):
    with pytest.raises(ModelServerError, match="first of 3 parts"):
        read_facts(written(tmp_path / "renamed.gguf", gguf({**pairs(), "split.count": 3}, TENSORS)))


def test_the_tiny_model_of_the_engine_tests_is_read_as_its_own_writer_reads_it(tmp_path):
    reader = pytest.importorskip("gguf", reason="the package gguf is missing: nothing to compare with")
    from testkit.gguf import build_tiny_gguf

    path = build_tiny_gguf(tmp_path / "tiny.gguf")
    facts, theirs = read_facts(path), reader.GGUFReader(path)
    assert facts.parameters == sum(int(tensor.n_elements) for tensor in theirs.tensors)
    assert facts.weights == sum(int(tensor.n_bytes) for tensor in theirs.tensors)
    assert facts.vocabulary == len(theirs.fields["tokenizer.ggml.tokens"].data)
    assert (facts.quantisation, facts.context, facts.kv_heads) == ("F32", 131_072, (4, 4))
