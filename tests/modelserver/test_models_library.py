"""The library: which models there are, what they are called, and what is wrong with them."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from madegguf import TENSORS, chat_file, gguf, pairs
from testkit.amount import examples

from lmagent.modelserver.library.library import Library
from lmagent.modelserver.spec import ModelEntry, ModelServerError, ModelSettings


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


@pytest.fixture
def library(folder: Path, home: Path) -> Library:
    return Library(folder, {"HOME": str(home), "USERPROFILE": str(home), "OFFICE_KEY": "s3cret"})


def listed(library: Library) -> list[str]:
    return [entry.name for entry in library.entries()]


def test_a_library_without_a_folder_is_empty_and_says_how_to_begin(tmp_path, home):
    library = Library(tmp_path / "none", {"HOME": str(home)})
    assert library.entries() == []
    with pytest.raises(ModelServerError, match="nor any other") as error:
        library.find("qwen3")
    assert (error.value.status, error.value.code) == (404, "model_not_found")
    assert "models pull" in error.value.fix


def test_models_are_found_in_any_depth_and_named_by_their_files(folder, library):
    chat_file(folder / "Qwen3-8B-Q4_K_M.gguf")
    chat_file(folder / "deep/er/Gemma 3 (4B).gguf")
    assert listed(library) == ["gemma-3-4b", "qwen3-8b-q4_k_m"]
    entry = library.find("qwen3-8b-q4_k_m")
    assert (entry.engine, entry.source, entry.broken) == ("llama", "library", "")
    assert entry.settings.context == 16_384
    assert entry.size == entry.path.stat().st_size
    assert entry.needed > entry.size


@pytest.mark.parametrize(
    "asked",
    [
        *("qwen3-8b-q4_k_m", "QWEN3-8B-Q4_K_M", "qwen3-8b-q4_k_m:latest", "Qwen3-8B-Q4_K_M.gguf", "qwen3:8b", "8b"),
        *("Qwen/Qwen3-8B", "lmstudio-community/Qwen3-8B-Q4_K_M.gguf", " qwen3-8b "),
    ],
)
def test_a_model_is_found_by_the_spellings_of_other_programs_and_by_a_part(folder, library, asked):
    chat_file(folder / "Qwen3-8B-Q4_K_M.gguf")
    chat_file(folder / "Qwen3-4B-Q4_K_M.gguf")
    assert library.find(asked).name == "qwen3-8b-q4_k_m"


def test_a_part_that_several_names_have_is_ambiguous_and_lists_them(folder, library):
    chat_file(folder / "Qwen3-8B-Q4_K_M.gguf")
    chat_file(folder / "Qwen3-8B-Q8_0.gguf")
    with pytest.raises(ModelServerError, match=r"any of qwen3-8b-q4_k_m, qwen3-8b-q8_0") as error:
        library.find("qwen3-8b")
    assert (error.value.status, error.value.code) == (400, "model_ambiguous")


def test_an_exact_name_wins_over_a_longer_one(folder, library):
    chat_file(folder / "qwen3.gguf")
    chat_file(folder / "qwen3-8b.gguf")
    assert library.find("qwen3").name == "qwen3"


def test_an_unknown_name_gets_the_nearest_ones(folder, library):
    chat_file(folder / "Qwen3-8B-Q4_K_M.gguf")
    with pytest.raises(ModelServerError) as error:
        library.find("qwen3-8b-q4km")
    assert "qwen3-8b-q4_k_m" in error.value.fix


@pytest.mark.parametrize("asked", ["", " ", "!!!", "/", ":latest"])
def test_no_name_is_no_models_name(folder, library, asked):
    chat_file(folder / "model.gguf")
    with pytest.raises(ModelServerError) as error:
        library.find(asked)
    assert error.value.status == 404


def test_two_files_of_one_name_get_two_names(folder, home, library):
    chat_file(folder / "a/model.gguf")
    chat_file(folder / "b/model.gguf")
    chat_file(home / ".lmstudio/models/pub/repo/model.gguf")
    assert listed(library) == ["model", "model@library", "model@lmstudio"]


def test_settings_lie_beside_the_model_or_in_the_folder_of_the_library(folder, home, library):
    chat_file(folder / "sub/One-Q8_0.gguf")
    (folder / "sub/One-Q8_0.toml").write_text('context = 4096\ncache_type_k = "q8_0"\n')
    chat_file(home / ".lmstudio/models/pub/repo/Two.gguf")
    (folder / "two.toml").write_text("parallel = 3\nttl = 60\n")
    one, two = library.find("one"), library.find("two")
    assert (one.settings.context, one.settings.cache_type_k) == (4096, "q8_0")
    assert (two.settings.parallel, two.settings.ttl, two.source) == (3, 60, "lmstudio")
    assert listed(library) == ["one-q8_0", "two"]


@pytest.mark.parametrize(
    ("text", "words", "fix"),
    [
        ("context = 4096\nzzz = 1\n", "there is no setting 'zzz'", "the keys are: context,"),
        ("gpu_layer = 1\n", "there is no setting 'gpu_layer'", "did you mean gpu_layers?"),
        ('cache_type_k = "q9"\n', "cache_type_k: ", 'one of "f32", "f16"'),
        ('context = "large"\n', "context: Expected `int`", "a whole number from 0"),
        ("parallel = 0\n", "parallel: Expected `int` >= 1", "from 1 to 64"),
        ("embedding = 1\n", "embedding: Expected `bool`", "true or false"),
        ("ttl = true\n", "ttl: Expected `float`", "a number of seconds from 0"),
        ("flash_attention = [1]\n", "flash_attention: ", '"auto", "on", "off"'),
        ('pooling = "sum"\n', "pooling: ", '"mean"'),
        ("context 4096", "cannot be read as settings in TOML", "key = value"),
        ('template = "mine.jinja"\n', "there is no such file", "counts from that file"),
        ('draft = "tiny"\n', "names a draft model: there is no model 'tiny'", ""),
        ('upstream = "http://h/v1"\n', "a model file of that name too", "rename"),
    ],
)
def test_wrong_settings_break_their_model_alone_and_say_where_and_what_may_be(folder, library, text, words, fix):
    chat_file(folder / "m.gguf")
    chat_file(folder / "other.gguf")
    (folder / "m.toml").write_text(text)
    details = library.details("m")
    assert words in details.entry.broken
    assert str(folder / "m.toml") in details.entry.broken
    assert fix in details.fix
    assert library.find("other").broken == ""


def test_settings_without_a_model_are_shown_as_what_they_are(folder, library):
    (folder / "gone.toml").write_text("context = 4096\n")
    assert "no model of that name" in library.find("gone").broken


def test_files_that_settings_name_count_from_where_the_settings_lie(folder, library):
    chat_file(folder / "sub/m.gguf")
    (folder / "sub/t.jinja").write_text("{{ messages }}")
    (folder / "sub/m.toml").write_text('template = "t.jinja"\n')
    assert library.find("m").settings.template == str(folder / "sub/t.jinja")


def test_a_file_that_settings_name_may_come_later(folder, library):
    chat_file(folder / "m.gguf")
    (folder / "m.toml").write_text('template = "elsewhere/t.jinja"\n')
    assert library.find("m").broken
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere/t.jinja").write_text("{{ messages }}")
    assert library.find("m").broken == ""


def test_a_draft_model_is_found_and_its_memory_counted(folder, library):
    chat_file(folder / "big.gguf")
    chat_file(folder / "Small-Q8_0.gguf")
    alone = library.find("big").needed
    (folder / "big.toml").write_text('draft = "small"\n')
    entry = library.find("big")
    assert entry.settings.draft == "small-q8_0"
    assert entry.needed == alone + library.find("small").needed


def test_a_model_on_another_server_is_an_entry(folder, library):
    text = (
        'upstream = "http://127.0.0.1:11434/v1"\nupstream_model = "qwen3:32b"\nkey_env = "OFFICE_KEY"\nparallel = 4\n'
    )
    (folder / "Office.toml").write_text(text)
    entry = library.find("office")
    assert (entry.engine, entry.source, entry.broken) == ("upstream", "upstream", "")
    assert (entry.url, entry.upstream, entry.key) == ("http://127.0.0.1:11434/v1", "qwen3:32b", "s3cret")
    assert entry.settings.parallel == 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('upstream = "127.0.0.1:80"', "upstream: "),
        ('upstream = "http://["', "upstream: "),
        ('upstream = "http://h/v1"\nkey_env = "NOT_SET"', "NOT_SET"),
    ],
)
def test_a_wrong_address_or_a_missing_key_is_said(folder, library, text, words):
    (folder / "office.toml").write_text(text)
    assert words in library.find("office").broken


def test_a_broken_file_is_listed_with_the_reason_and_hides_nothing(folder, library):
    chat_file(folder / "good.gguf")
    whole = gguf(pairs(), TENSORS)
    (folder / "half.gguf").write_bytes(whole[:-500])
    (folder / "page.gguf").write_bytes(b"<!doctype html><title>Sign in</title>")
    (folder / "fetching.gguf.part").write_bytes(b"GGUF")
    assert listed(library) == ["good", "half", "page"]
    assert "cut off" in library.find("half").broken
    assert "web page" in library.find("page").broken
    assert library.details("half").fix


def test_a_model_in_parts_is_one_entry_and_a_lost_part_is_named(folder, library):
    (folder / "big-00001-of-00002.gguf").write_bytes(gguf({**pairs(), "split.count": 2}, TENSORS[:1]))
    assert "part 00002 is not there" in library.find("big").broken
    (folder / "big-00002-of-00002.gguf").write_bytes(gguf({"split.no": 1}, TENSORS[1:]))
    assert listed(library) == ["big"]
    assert library.find("big").broken == ""
    assert library.find("big").path.name == "big-00001-of-00002.gguf"


def test_projectors_and_adapters_are_no_models_and_a_lone_projector_joins_its_model(folder, library):
    chat_file(folder / "repo/gemma.gguf")
    projector = folder / "repo/mmproj-gemma.gguf"
    projector.write_bytes(gguf({"general.architecture": "clip", "general.type": "mmproj"}))
    (folder / "lora.gguf").write_bytes(gguf({"general.architecture": "llama", "general.type": "adapter"}))
    assert listed(library) == ["gemma"]
    assert library.find("gemma").settings.mmproj == str(projector)
    assert [(item.path.name, item.kind) for item in library.companions()] == [
        ("lora.gguf", "adapter"),
        ("mmproj-gemma.gguf", "projector"),
    ]


def test_an_embedding_model_is_run_as_one(folder, library):
    chat_file(folder / "nomic.gguf", architecture="nomic-bert")
    assert library.find("nomic").settings.embedding is True


NESTED = "[" * 100_000


def test_files_that_are_nested_without_end_are_broken_and_nothing_worse(home, folder, library):
    chat_file(folder / "m.gguf")
    (folder / "m.toml").write_text(f"context = {NESTED}")
    manifest = home / ".ollama/models/manifests/registry.example/library/odd/latest"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(f'{{"layers": {NESTED}')
    assert [bool(entry.broken) for entry in library.entries()] == [True, True]


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(junk=st.binary(max_size=200), head=st.sampled_from([b"", b"context = ", b"{", b'{"layers": [', b"GGUF\3\0\0\0"]))
def test_whatever_lies_in_the_folders_the_list_is_made(home, folder, junk, head):
    (folder / "deep").mkdir(exist_ok=True)
    manifest = home / ".ollama/models/manifests/registry.example/library/odd/latest"
    manifest.parent.mkdir(parents=True, exist_ok=True)
    chat_file(folder / "good.gguf")
    names = ("m.gguf", "good.toml", "up.toml", "deep/config.json", "deep/x.safetensors", "deep/mmproj.gguf")
    for path in (*(folder / name for name in names), manifest):
        path.write_bytes(head + junk)
    library = Library(folder, {"HOME": str(home)})
    assert "good" in listed(library)
    assert library.find("m").broken


def test_links_to_folders_are_followed_once(folder, library):
    chat_file(folder / "sub/m.gguf")
    os.symlink(folder, folder / "sub/up")
    assert listed(library) == ["m"]


def checkpoint(folder: Path) -> Path:
    folder.mkdir()
    head = json.dumps({"w": {"dtype": "F32", "shape": [16], "data_offsets": [0, 64]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + bytes(64))
    (folder / "config.json").write_text(json.dumps({"architectures": ["Qwen3ForCausalLM"], "hidden_size": 64}))
    return folder


def test_a_folder_with_a_checkpoint_is_a_model_of_the_other_engine(folder, library):
    checkpoint(folder / "Tiny-Model")
    (folder / "tiny-model.toml").write_text("context = 512\n")
    entry = library.find("tiny-model")
    assert (entry.engine, entry.path, entry.settings.context) == ("transformers", folder / "Tiny-Model", 512)
    assert entry.broken == ""
    assert entry.needed > entry.size > 64


def test_what_changes_on_the_disk_shows_at_once(folder, library):
    assert listed(library) == []
    path = chat_file(folder / "m.gguf")
    first = library.entries()
    assert [entry.name for entry in first] == ["m"]
    (folder / "m.toml").write_text("context = 1024\n")
    assert library.find("m").settings.context == 1024
    path.unlink()
    assert "no model of that name" in library.find("m").broken


def test_models_from_elsewhere_join_and_give_way_to_files_of_their_name(folder, home):
    extra = [ModelEntry("demo", "llama", source="demo"), ModelEntry("m", "llama", source="demo")]
    chat_file(folder / "m.gguf")
    library = Library(folder, {"HOME": str(home)}, extra=extra)
    assert [(entry.name, entry.source) for entry in library.entries()] == [("demo", "demo"), ("m", "library")]


def test_a_folder_that_may_not_be_read_is_passed_over(folder, library):
    chat_file(folder / "good.gguf")
    chat_file(folder / "closed/m.gguf")
    os.chmod(folder / "closed", 0)
    try:
        assert "good" in listed(library)
    finally:
        os.chmod(folder / "closed", 0o700)


def test_settings_not_given_keep_the_defaults_of_the_contract(folder, library):
    chat_file(folder / "m.gguf")
    (folder / "m.toml").write_text("")
    assert library.find("m").settings == ModelSettings(context=16_384)
