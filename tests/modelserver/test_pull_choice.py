"""Which files of a repository are meant."""

from __future__ import annotations

import pytest

from lmagent.modelserver.library.hub import HubFile
from lmagent.modelserver.library.pull import WantedModel, choose, wanted
from lmagent.modelserver.library.quant import quant_in
from lmagent.modelserver.library.suggestions import SUGGESTIONS, recommended
from lmagent.modelserver.spec import ModelServerError


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Qwen/Qwen3-8B-GGUF", WantedModel("Qwen/Qwen3-8B-GGUF")),
        ("Qwen/Qwen3-8B-GGUF:Q8_0", WantedModel("Qwen/Qwen3-8B-GGUF", "Q8_0")),
        ("hf.co/Qwen/Qwen3-8B-GGUF:q8_0", WantedModel("Qwen/Qwen3-8B-GGUF", "q8_0")),
        ("https://huggingface.co/Qwen/Qwen3-8B-GGUF/", WantedModel("Qwen/Qwen3-8B-GGUF")),
        ("https://huggingface.co/Qwen/Qwen3-8B-GGUF/tree/main", WantedModel("Qwen/Qwen3-8B-GGUF")),
        ("https://huggingface.co/a/b/blob/main/x-Q8_0.gguf", WantedModel("a/b", "x-Q8_0.gguf")),
        ("https://mirror.example/a/b/resolve/main/sub/x.gguf?download=true", WantedModel("a/b", "sub/x.gguf")),
        ("qwen3-8b", WantedModel("Qwen/Qwen3-8B-GGUF", "Q4_K_M")),
        ("QWEN3-8B:Q8_0", WantedModel("Qwen/Qwen3-8B-GGUF", "Q8_0")),
    ],
)
def test_the_ways_of_naming_a_repository(name, meant):
    assert wanted(name) == meant


@pytest.mark.parametrize("name", ["", "llama", "a/b/c", "../x", "a/..", "a b/c", "a/b?x=1", "-x/y", "a/b#c"])
def test_what_is_no_name_is_refused_with_the_names_that_are(name):
    with pytest.raises(ModelServerError) as error:
        wanted(name)
    assert "OWNER/REPO" in error.value.fix
    assert "qwen3-8b" in error.value.fix


@pytest.mark.parametrize(
    ("name", "quant"),
    [
        ("Qwen3-8B-Q4_K_M.gguf", "Q4_K_M"),
        ("model.q8_0.gguf", "Q8_0"),
        ("Model-UD-Q4_K_XL-00001-of-00002.gguf", "Q4_K_XL"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("m-fp16.gguf", "F16"),
        ("m-IQ3_XXS.gguf", "IQ3_XXS"),
        ("m-BF16-00001-of-00002.gguf", "BF16"),
        ("Q4_K_M-something-else.gguf", "Q4_K_M"),
        ("plain.gguf", ""),
    ],
)
def test_a_files_name_gives_its_quantisation(name, quant):
    assert quant_in(name) == quant


def files(*names: str) -> list[HubFile]:
    return [HubFile(name, 1000 + place) for place, name in enumerate(names)]


MANY = files(
    "m-BF16.gguf", "m-Q8_0.gguf", "m-Q4_K_M.gguf", "m-UD-Q4_K_XL.gguf", "m-Q4_K_S.gguf", "m-Q6_K.gguf",
    "mmproj-m-F16.gguf", "imatrix_unsloth.gguf", "README.md",
)  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        ("", "m-Q4_K_M"),
        ("Q8_0", "m-Q8_0"),
        ("q8_0", "m-Q8_0"),
        ("m-Q6_K.gguf", "m-Q6_K"),
        ("UD-Q4_K_XL", "m-UD-Q4_K_XL"),
        ("q4", "m-Q4_K_M"),
        ("bf16", "m-BF16"),
    ],
)
def test_what_was_asked_for_is_chosen_and_else_the_best(asked, chosen):
    choice = choose("a/b", MANY, asked)
    assert choice.chosen.name == chosen
    assert len(choice.others) == 5
    assert [file.name for file in choice.projectors] == ["mmproj-m-F16.gguf"]


def test_the_only_model_is_the_best_whatever_it_is_called():
    assert choose("a/b", files("odd.gguf"), "").chosen.name == "odd"


def test_a_quantisation_that_is_not_there_lists_those_that_are():
    with pytest.raises(ModelServerError, match="has no 'Q2_K'") as error:
        choose("a/b", MANY, "Q2_K")
    assert "Q4_K_M" in error.value.fix
    assert "Q8_0" in error.value.fix


def test_several_models_in_one_repository_have_to_be_told_apart():
    both = files("small-Q4_K_M.gguf", "large-Q4_K_M.gguf")
    with pytest.raises(ModelServerError, match="several models") as error:
        choose("a/b", both, "")
    assert "small-Q4_K_M" in error.value.fix
    assert choose("a/b", both, "large").chosen.name == "large-Q4_K_M"
    assert choose("a/b", both, "large-Q4_K_M.gguf").chosen.name == "large-Q4_K_M"


def test_a_repository_that_lost_a_part_is_refused():
    with pytest.raises(ModelServerError, match="2 of the 3 parts"):
        choose("a/b", files("m-Q4_0-00001-of-00003.gguf", "m-Q4_0-00003-of-00003.gguf"), "")


@pytest.mark.parametrize(("there", "words"), [(["model.safetensors"], "has no GGUF"), (["README.md"], "has no GGUF")])
def test_a_repository_without_a_gguf_says_where_to_look(there, words):
    with pytest.raises(ModelServerError, match=words) as error:
        choose("a/b", files(*there), "")
    assert "a/b-GGUF" in error.value.fix


def test_suggestions_are_names_that_can_be_pulled_and_fit_the_memory():
    for suggestion in SUGGESTIONS:
        assert wanted(suggestion.name) == WantedModel(suggestion.repo, suggestion.quant)
        assert suggestion.download < suggestion.memory * 1.0737
    assert recommended(0) == []
    order = [(not item.tools, -item.memory) for item in recommended(16 << 30)]
    assert order == sorted(order)
    assert all(item.memory <= 12 for item in recommended(16 << 30))
