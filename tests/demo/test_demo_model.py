"""The demo model: the file is the one that was packed, and it does what its card says in the real loop."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anyio
import pytest
from testkit.engine import EngineServer

from lmagent import demo
from lmagent.core.errors import LmagentError

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from demo_model import drive, heldout
from demo_model.tokenizer import Tokenizer

REQUESTS, SEED = 40, 17
"""The requests that are tried: of the numbers to draw with, one whose requests the training has not seen."""

UNSEEN = heldout.Seen(frozenset(), frozenset(), frozenset())
"""To draw without a look at the training, which takes a quarter of a minute to repeat."""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineServer]:
    pytest.importorskip("xllamacpp", reason="the demo model was NOT run: the package xllamacpp is missing")
    copy = tmp_path_factory.mktemp("model") / demo.NAME  # the engine's log goes beside the file
    copy.write_bytes(demo.model_path().read_bytes())
    with EngineServer(copy) as server:
        yield server


def test_the_packed_file_is_small_and_has_the_packed_checksum():
    assert demo.model_path().stat().st_size <= 3_000_000


def test_a_damaged_file_is_refused(tmp_path, monkeypatch):
    content = demo.model_path().read_bytes()
    (tmp_path / demo.NAME).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    (tmp_path / f"{demo.NAME}.sha256").write_bytes(demo.model_path().with_suffix(".gguf.sha256").read_bytes())
    monkeypatch.setattr(demo, "_FOLDER", tmp_path)
    with pytest.raises(LmagentError, match="damaged"):
        demo.model_path()


def test_a_missing_file_is_an_error_with_a_way_out(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "_FOLDER", tmp_path)
    with pytest.raises(LmagentError, match="cannot be read") as failure:
        demo.model_path()
    assert "pip install" in failure.value.fix


@pytest.mark.long
def test_requests_to_judge_by_are_not_in_the_training():
    known = heldout.seen()
    cases = [*heldout.cases(300, known), *heldout.cases(REQUESTS, UNSEEN, SEED)]
    assert len(known.texts) > 10_000
    assert not {case.request.text for case in cases} & known.texts
    pieces = {piece for case in cases for piece in (case.request.path, case.request.words, case.request.command)}
    assert not (pieces - {"", "."}) & known.pieces


def test_the_vocabulary_holds_no_token_of_a_blank_and_letters():
    """Else what is copied would fall into other tokens where no blank stands before it."""
    tokenizer = Tokenizer()
    for text in ("notes.txt", "listing_2.md", "'saffron", "src/main.py", "file", "directory-7"):
        assert tokenizer.encode(f" {text}")[1:] == tokenizer.encode(text)


@pytest.mark.engine
def test_unseen_requests_are_carried_out_in_the_real_loop(engine, tmp_path):
    cases = list(heldout.cases(REQUESTS, UNSEEN, SEED))
    judge = partial(drive.judge, cases, engine.base_url, tmp_path / "ws")
    verdicts = anyio.run(judge)
    wrong = [(verdict.case.request.text, verdict.wrong, verdict.answer) for verdict in verdicts if verdict.wrong]
    assert len(wrong) <= REQUESTS * 0.1, wrong  # the exact share is bench/demo.py's to measure
