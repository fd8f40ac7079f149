"""The models of LM Studio and Ollama: found where these keep them, and used in place."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
from madegguf import TENSORS, chat_file, gguf, pairs

from lmagent.modelserver.library.library import Library


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
    return Library(folder, {"HOME": str(home), "USERPROFILE": str(home)})


def listed(library: Library) -> list[str]:
    return [entry.name for entry in library.entries()]


def ollama(home: Path, name: str, content: bytes, *, namespace: str = "library", **layers: bytes) -> Path:
    """Put a model where Ollama keeps its own."""
    root = home / ".ollama/models"
    (root / "blobs").mkdir(parents=True, exist_ok=True)
    model, _, tag = name.partition(":")
    listed = []
    for kind, blob in {"model": content, **layers}.items():
        digest = hashlib.sha256(blob).hexdigest()
        (root / "blobs" / f"sha256-{digest}").write_bytes(blob)
        kind = f"application/vnd.ollama.image.{kind}"
        listed.append({"mediaType": kind, "digest": f"sha256:{digest}", "size": len(blob)})
    manifest = root / "manifests/registry.example" / namespace / model / (tag or "latest")
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": listed}))
    return root / "blobs" / f"sha256-{hashlib.sha256(content).hexdigest()}"


def test_lm_studio_is_found_where_it_was_moved(tmp_path, home, library):
    chat_file(tmp_path / "disk/studio/models/pub/repo/Moved.gguf")
    chat_file(home / ".lmstudio/models/pub/repo/Old.gguf")
    (home / ".lmstudio-home-pointer").write_text(f"{tmp_path}/disk/studio\n")
    assert listed(library) == ["moved", "old"]
    (home / ".lmstudio-home-pointer").write_bytes(b"\xff\0nonsense")
    assert listed(library) == ["old"]


def test_ollamas_models_are_used_in_place(home, folder, library):
    blob = ollama(home, "qwen3:8b", gguf(pairs(), TENSORS), params=b'{"num_ctx": 8192}', template=b"{{ .Prompt }}")
    ollama(home, "llava", gguf(pairs("llama"), TENSORS), projector=gguf({"general.architecture": "clip"}))
    assert listed(library) == ["llava", "qwen3:8b"]
    entry = library.find("qwen3:8b")
    assert (entry.path, entry.source, entry.settings.context) == (blob, "ollama", 8192)
    assert library.find("llava:latest").settings.mmproj
    (folder / "qwen3-8b.toml").write_text("context = 2048\n")  # a colon is no letter of a file's name everywhere
    assert library.find("qwen3:8b").settings.context == 2048


def test_ollamas_folder_may_lie_elsewhere(tmp_path, folder, home):
    ollama(home, "qwen3", gguf(pairs(), TENSORS))
    (home / ".ollama/models").rename(tmp_path / "moved")
    assert Library(folder, {"HOME": str(home)}).entries() == []
    assert listed(Library(folder, {"HOME": str(home), "OLLAMA_MODELS": str(tmp_path / "moved")})) == ["qwen3"]


def test_a_broken_model_of_ollama_says_how_to_fetch_it_again(home, library):
    ollama(home, "lost", gguf(pairs(), TENSORS)).unlink()
    cut = ollama(home, "cut", gguf(pairs("llama"), TENSORS))
    cut.write_bytes(cut.read_bytes()[:-9])
    manifests = home / ".ollama/models/manifests/registry.example/library"
    (manifests / "odd").mkdir()
    (manifests / "odd/latest").write_text("not json")
    (manifests / "evil").mkdir()
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:../../../secret"}
    (manifests / "evil/latest").write_text(json.dumps({"layers": [layer]}))
    broken = {entry.name: entry.broken for entry in library.entries()}
    assert "ollama pull lost" in broken["lost"]
    assert "ollama pull cut" in broken["cut"]
    assert "cannot be read" in broken["odd"]
    assert "is missing" in broken["evil"]


def test_a_link_into_another_programs_folder_is_one_model(home, folder, library):
    real = chat_file(home / ".lmstudio/models/pub/repo/Model.gguf")
    os.symlink(real, folder / "mine.gguf")
    assert [(entry.name, entry.source) for entry in library.entries()] == [("mine", "library")]
