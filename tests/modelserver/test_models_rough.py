"""`lmagent models …` with odd names, files that are no models, and commands that must not guess."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fakehub import REPO, FakeHub
from madegguf import TENSORS, gguf, pairs
from test_models_command import CONTENT, Program, asked, program  # noqa: F401  (a fixture)

from lmagent.cli.shared import print_json as echo_json
from lmagent.modelserver.library.taking import take
from lmagent.modelserver.spec import ModelServerError

ADAPTER = gguf({"general.architecture": "llama", "general.type": "adapter"})
ODD = "m\x1b]0;gone\x07\x9b2J\u202e"


def unsafe(text: str) -> list[str]:
    return [letter for letter in text if not letter.isprintable() and letter != "\n"]


def test_a_file_of_the_hub_that_is_no_model_is_told_as_what_it_is(program):  # noqa: F811
    with FakeHub({"lora.gguf": ADAPTER}) as hub:
        assert "fetched lora.gguf: no model by itself" in program.good("pull", REPO, **hub.env)
        assert json.loads(program.good("pull", REPO, "--json", **hub.env))["kind"] == "adapter"


def test_a_hidden_file_is_taken_in_under_a_name_that_is_not(program):  # noqa: F811
    (program.home / ".secret.gguf").write_bytes(CONTENT)
    assert "imported secret" in program.good("import", ".secret.gguf")
    (program.home / "..gguf").write_bytes(gguf({**pairs(), "general.name": "Own Name"}, TENSORS))
    assert "imported own-name" in program.good("import", "..gguf")


@pytest.mark.long
def test_odd_names_reach_no_terminal_and_every_json_is_json(program):  # noqa: F811
    inner = program.folder / ODD
    inner.mkdir(parents=True)
    (inner / f"{ODD}.gguf").write_bytes(gguf({**pairs(), "general.name": ODD, "tokenizer.ggml.model": ODD}, TENSORS))
    (inner / f"{ODD}.toml").write_text("threads = 1\n")
    (program.folder / f"a{ODD}.toml").write_text("threads = 1\n")
    (program.folder / f"lora{ODD}.gguf").write_bytes(ADAPTER)
    with open(os.fsencode(program.folder) + b"/bytes\xff.gguf", "wb") as file:
        file.write(CONTENT)
    names = [json.loads(line)["name"] for line in program.good("list", "--json").splitlines()]
    assert len(names) == 3
    said = [program.good("list"), program.good("list", "--json"), program.run("doctor", "--json").stdout]
    said += [program.good("show", name, *more) for name in names for more in ([], ["--json"])]
    said += [program.good("rm", name, "--json") for name in names]
    assert [unsafe(text) for text in said] == [[]] * len(said)
    assert len(list(program.folder.rglob("*.gguf"))) == 1


@pytest.mark.parametrize("letter", ["\x7f", "\x9b", "\u202e", "\u2028", "\U000e0041"])
def test_json_that_is_printed_means_the_same_and_is_printable(letter, capsys):
    value = {letter: [f'a"{letter}\\', "ü 模型 \U0001f600"]}
    echo_json(value)
    text = capsys.readouterr().out
    assert unsafe(text) == []
    assert json.loads(text) == value


@pytest.mark.parametrize("kind", [b"", ADAPTER])
def test_a_file_with_an_odd_name_is_taken_in_under_a_plain_one(program, kind):  # noqa: F811
    (program.home / f"{ODD}.gguf").write_bytes(kind or CONTENT)
    assert unsafe(program.good("import", f"{ODD}.gguf")) == []
    (path,) = program.folder.iterdir()
    assert unsafe(path.name) == []


def test_an_error_that_quotes_an_odd_name_shows_what_is_in_it(program):  # noqa: F811
    (program.home / f"{ODD}.gguf").write_bytes(CONTENT[:-50])
    said = program.bad("import", f"{ODD}.gguf")
    assert unsafe(said) == []
    assert "\\x1b]0;gone" in said
    names = {f"{ODD}-{quant}.gguf": CONTENT for quant in ("Q4_K_M", "Q8_0")}
    with FakeHub(names) as hub:
        assert unsafe(program.bad("pull", f"{REPO}:other", **hub.env)) == []


def test_nothing_is_removed_by_a_part_of_its_name_unless_a_person_is_asked(program):  # noqa: F811
    program.folder.mkdir(parents=True)
    path = program.folder / "Qwen3-8B-Instruct.gguf"
    path.write_bytes(CONTENT)
    for more in ([], ["--yes"]):
        assert "only a part" in program.bad("rm", "qwen3-8b", *more)
    assert "kept" in asked(program, b"n\n", "rm", "qwen3-8b")[1]
    assert path.exists()
    assert program.good("rm", "QWEN3-8B-Instruct.gguf", "qwen3-8b-instruct").count("removed") == 1


def test_settings_without_a_model_can_be_removed(program):  # noqa: F811
    program.folder.mkdir(parents=True)
    (program.folder / "lost.toml").write_text("threads = 1\n")
    program.good("rm", "lost")
    assert list(program.folder.iterdir()) == []


def test_a_folder_with_other_models_in_it_is_not_removed(program):  # noqa: F811
    outer = program.folder / "outer"
    (outer / "sub").mkdir(parents=True)
    (outer / "config.json").write_text('{"model_type": "x"}')
    (outer / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    (outer / "sub/inner.gguf").write_bytes(CONTENT)
    assert "other models in it: inner" in program.bad("rm", "outer")
    program.good("rm", "inner")
    program.good("rm", "outer")
    assert list(program.folder.iterdir()) == []


@pytest.mark.parametrize("way", ["copy", "move"])
def test_of_a_model_in_parts_all_come_or_none(tmp_path, way):
    names = [f"m-{number:05}-of-00003.gguf" for number in (1, 2, 3)]
    folder = tmp_path / "models"
    (folder / f"{names[2]}.part").mkdir(parents=True)  # where the last one was to grow
    with another_disk(tmp_path) as source:
        for name in names:
            (source / name).write_bytes(CONTENT)
        with pytest.raises(ModelServerError, match="cannot be written"):
            take(source / names[0], folder, way)
        assert sorted(path.name for path in source.iterdir()) == names
        assert [path.name for path in folder.iterdir()] == [f"{names[2]}.part"]
        (folder / f"{names[2]}.part").rmdir()
        take(source / names[1], folder, way)
        assert sorted(path.name for path in folder.iterdir()) == names
        assert len(list(source.iterdir())) == (0 if way == "move" else 3)


@contextmanager
def another_disk(here: Path) -> Iterator[Path]:
    """A folder to which nothing is merely renamed."""
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == here.stat().st_dev:
        pytest.skip("there is no second file system")
    with tempfile.TemporaryDirectory(dir=shared) as place:
        yield Path(place)
