"""Folders and settings that somebody made to break the list of models, or that broke by themselves."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from madegguf import TENSORS, chat_file, gguf, pairs, text, value

from lmagent.modelserver.library.foreign import lmstudio_folders, ollama_folder
from lmagent.modelserver.library.gguf import read_header
from lmagent.modelserver.library.library import Library
from lmagent.modelserver.spec import ModelServerError


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return chat_file(tmp_path / "models/good.gguf").parent


@pytest.fixture
def library(folder: Path, home: Path) -> Library:
    return Library(folder, {"HOME": str(home)})


def reasons(library: Library) -> dict[str, str]:
    return {entry.name: entry.broken for entry in library.entries()}


def test_pipes_and_devices_are_no_models_and_nobody_waits_for_them(folder, home, library):
    manifests = home / ".ollama/models/manifests/host/space/model"
    manifests.mkdir(parents=True)
    (folder / "checkpoint").mkdir()
    for place in (folder / "a.gguf", folder / "good.toml", folder / "checkpoint/config.json", manifests / "latest"):
        os.mkfifo(place)
    os.mkfifo(home / ".lmstudio-home-pointer")
    os.symlink("/dev/zero", folder / "b.toml")
    os.symlink("/dev/zero", folder / "checkpoint/model.safetensors")
    assert reasons(library) == {"good": ""}
    for path in (folder / "a.gguf", Path("/dev/zero")):
        with pytest.raises(ModelServerError, match="a pipe, a socket or a device"):
            read_header(path)


def test_a_link_in_a_circle_is_a_broken_model_and_hides_no_other(folder, library):
    for number in range(4):  # whatever the order is in which the folder gives its entries
        name = f"loop{number}.gguf"
        os.symlink(folder / name, folder / name)
    there = reasons(library)
    assert there.pop("good") == ""
    assert len(there) == 4
    assert all("cannot be read" in why for why in there.values())


@contextmanager
def somebody_else() -> Iterator[None]:
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_folders_of_other_programs_that_may_not_be_read_are_as_if_they_were_not_there(tmp_path):
    closed = tmp_path / "closed"
    (closed / ".lmstudio/models").mkdir(parents=True)
    (closed / "ollama/manifests").mkdir(parents=True)
    closed.chmod(0)
    env = {"HOME": str(closed), "OLLAMA_MODELS": str(closed / "ollama")}
    with somebody_else():
        assert lmstudio_folders(env) == []
        assert ollama_folder(env) is None


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("context = " + "9" * 5000, "cannot be read as settings"),
        ("context = 0x" + "f" * 5000, "context: Expected `int` <= "),
        ('template = "~nosuchuser/x"', "as template, and there is no such file"),
        ('mmproj = "a\\u0000b"', "as mmproj, and there is no such file"),
        ('flash_attention = "' + "x" * 5000 + '"', "flash_attention: "),
        ("context = [" + "1, " * 100 + "]", "context: Expected `int`, got `array`"),
    ],
)
def test_settings_that_cannot_even_be_shown_break_their_model_alone(folder, library, setting, words):
    shutil.copy(folder / "good.gguf", folder / "other.gguf")
    (folder / "good.toml").write_text(setting)
    there = reasons(library)
    assert words in there["good"]
    assert there["other"] == ""
    assert reasons(library) == there


def test_a_header_that_the_engine_refuses_is_broken_in_the_list_already(folder, library):
    head = struct.pack("<IQQ", 3, 0, 2)
    twice = text("general.architecture") + value("llama")
    (folder / "twice.gguf").write_bytes(b"GGUF" + head + twice + twice)
    for number, alignment in enumerate((0, 3, True, -1.0, "x" * 1000)):
        made = gguf({**pairs(), "general.alignment": alignment}, TENSORS)
        (folder / f"alignment{number}.gguf").write_bytes(made)
    there = reasons(library)
    assert "general.architecture is there twice" in there["twice"]
    for number in range(5):
        assert "power of two" in there[f"alignment{number}"]
        assert len(there[f"alignment{number}"]) < 120


def test_a_quantised_cache_is_refused_where_no_block_of_it_fits_a_head(folder, library):
    chat_file(folder / "wide.gguf", attention__key_length=64, attention__value_length=96)
    for name in ("good", "wide"):  # the heads of the one have 16 numbers
        (folder / f"{name}.toml").write_text('cache_type_k = "q8_0"\n')
    there = reasons(library)
    assert "multiple of 32 numbers; they have 16" in there["good"]
    assert there["wide"] == ""
