"""`lmagent models …` as a process."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from fakehub import REPO, FakeHub
from madegguf import TENSORS, chat_file, gguf, pairs

from lmagent.modelserver.engine.devices import ask_engine

CONTENT = gguf(pairs(), TENSORS)


@dataclass
class Program:
    """`lmagent models` with a home of its own."""

    home: Path
    env: dict[str, str]

    @property
    def folder(self) -> Path:
        return self.home / "data/models"

    def run(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "lmagent", "models", *arguments],
            env={**self.env, **more},
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def good(self, *arguments: str, **more: str) -> str:
        run = self.run(*arguments, **more)
        assert run.returncode == 0, run.stderr
        return run.stdout

    def bad(self, *arguments: str, **more: str) -> str:
        run = self.run(*arguments, **more)
        assert run.returncode == 1, run.stdout
        assert "Traceback" not in run.stderr, run.stderr
        assert "→" in run.stderr
        return run.stderr


@pytest.fixture
def program(tmp_path: Path) -> Program:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LLM", "LM_", "XDG", "HF_"))}
    home = {"HOME": str(tmp_path), "AGENT_DATA_DIR": str(tmp_path / "data"), "NO_COLOR": "1", "COLUMNS": "200"}
    return Program(tmp_path, {**kept, **home})


def test_an_empty_library_says_how_to_begin(program):
    assert "models recommend" in program.good("list")
    assert program.good("ls", "--json") == ""
    assert "nor any other" in program.bad("show", "x")


def test_models_are_listed_with_what_is_wrong_and_what_to_do(program):
    chat_file(program.folder / "Good-Q4_K_M.gguf")
    (program.folder / "half.gguf").write_bytes(CONTENT[:-400])
    (program.folder / "mmproj-x.gguf").write_bytes(gguf({"general.architecture": "clip"}))
    text = program.good("list")
    assert "good-q4_k_m" in text
    assert "Q4_K_M" in text
    assert "✗ half" in text
    assert "cut off" in text
    assert "mmproj-x.gguf is no model by itself" in text
    rows = {row["name"]: row for row in map(json.loads, program.good("ls", "--json").splitlines())}
    assert set(rows) == {"good-q4_k_m", "half"}
    good = rows["good-q4_k_m"]
    assert (good["quantisation"], good["context"], good["kind"], good["fits"]) == ("Q4_K_M", 16_384, "chat", True)
    assert rows["half"]["broken"]


def test_a_model_is_shown_with_its_settings_and_without_a_key(program):
    chat_file(program.folder / "m.gguf")
    (program.folder / "m.toml").write_text("context = 40960\n")
    text = program.good("show", "m")
    for words in ("qwen3", "32,768 tokens", "40,960", "knows tools and thoughts", "m.toml (context)"):
        assert words in text
    row = json.loads(program.good("info", "M.gguf", "--json"))
    assert row["facts"]["kv_heads"] == [2, 2]
    assert row["settings"]["context"] == 40_960
    (program.folder / "office.toml").write_text('upstream = "http://h:1/v1"\nkey_env = "OFFICE_KEY"\n')
    for arguments in (["show", "office"], ["show", "office", "--json"], ["list"], ["list", "--json"]):
        text = program.good(*arguments, OFFICE_KEY="s3cret-key")
        assert "http://h:1/v1" in text
        assert "s3cret-key" not in text


def test_a_name_from_a_file_cannot_play_with_the_terminal(program):
    program.folder.mkdir(parents=True)
    made = {**pairs(), "general.name": "a\x1b[2Jb\x1b]0;title\x07"}
    (program.folder / "m.gguf").write_bytes(gguf(made, TENSORS))
    assert "\x1b" not in program.good("show", "m")


@pytest.mark.parametrize("word", ["pull", "download", "get"])
def test_a_model_is_pulled_by_every_word_for_it(program, word):
    with FakeHub({"Model-Q4_K_M.gguf": CONTENT, "Model-Q8_0.gguf": CONTENT, "mmproj-F16.gguf": CONTENT}) as hub:
        run = program.run(word, REPO, **hub.env)
    assert run.returncode == 0, run.stderr
    assert "fetched model-q4_k_m" in run.stdout
    assert "there are also Q8_0" in run.stderr
    assert "--with-mmproj" in run.stderr
    assert "hf_secret" not in run.stdout + run.stderr
    assert [json.loads(line)["name"] for line in program.good("list", "--json").splitlines()] == ["model-q4_k_m"]


def test_a_quiet_pull_says_only_what_came_of_it_and_json_is_json(program):
    with FakeHub({"Model-Q4_K_M.gguf": CONTENT}) as hub:
        run = program.run("pull", REPO, "--quiet", **hub.env)
        assert (run.returncode, run.stderr) == (0, "")
        row = json.loads(program.good("pull", REPO, "--json", **hub.env))
    assert (row["name"], row["fetched"], row["broken"]) == ("model-q4_k_m", False, "")


def read_all(fd: int) -> str:
    """What was written to a terminal, until nobody has it open."""
    said = b""
    while True:
        try:
            piece = os.read(fd, 4096)
        except OSError:
            break
        if not piece:
            break
        said += piece
    return said.decode()


def test_on_a_terminal_a_pull_shows_a_bar(program):
    ours, theirs = pty.openpty()
    env = {**program.env, "TERM": "xterm"}
    with FakeHub({"Model-Q4_K_M.gguf": CONTENT}, cuts=[4000]) as hub:
        command = [sys.executable, "-m", "lmagent", "models", "pull", REPO]
        with subprocess.Popen(command, env={**env, **hub.env}, stdout=subprocess.PIPE, stderr=theirs) as process:
            os.close(theirs)
            said = read_all(ours)
            assert process.stdout is not None
            assert b"fetched model-q4_k_m" in process.stdout.read()
    os.close(ours)
    assert process.returncode == 0
    assert "Model-Q4_K_M.gguf" in said
    assert "100%" in said
    assert "Traceback" not in said


@pytest.mark.long
def test_an_interrupted_pull_says_that_it_can_be_resumed(program):
    with FakeHub({"Model-Q4_K_M.gguf": CONTENT * 40}, slow=0.3) as hub:
        command = [sys.executable, "-m", "lmagent", "models", "pull", REPO]
        with subprocess.Popen(command, env={**program.env, **hub.env}, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            while "Model-Q4_K_M.gguf: 0 of" not in process.stderr.readline():
                pass
            process.send_signal(signal.SIGINT)
            said = process.stderr.read()
    assert process.returncode == 130
    assert "the same command resumes it" in said
    assert "Traceback" not in said


def test_a_pull_that_fails_is_one_clear_error(program):
    with FakeHub({}) as hub:
        assert "no GGUF" in program.bad("pull", REPO, **hub.env)
        env = hub.env
    assert "cannot be reached" in program.bad("pull", REPO, **env)
    assert "is not the name of a repository" in program.bad("pull", "nonsense")
    assert not program.folder.exists()


@pytest.mark.parametrize("way", ["--copy", "--move", "--link", ""])
def test_a_file_is_taken_in(program, way):
    source = chat_file(program.home / "downloads/Some Model.gguf")
    size = source.stat().st_size
    assert "imported mine" in program.good("import", str(source), *filter(None, [way]), "--name", "mine")
    assert source.exists() == (way != "--move")
    assert (program.folder / "mine.gguf").is_symlink() == (way == "--link")
    assert json.loads(program.good("list", "--json"))["size"] == size
    if way != "--move":
        assert "already" in program.bad("import", str(source), "--name", "mine")


def test_a_model_in_parts_is_taken_in_as_a_whole(program):
    for number in (1, 2):
        part = program.home / f"big-{number:05}-of-00002.gguf"
        part.write_bytes(gguf({**pairs(), "split.no": number - 1, "split.count": 2}, TENSORS))
    program.good("import", str(program.home / "big-00002-of-00002.gguf"), "--name", "huge")
    assert sorted(path.name for path in program.folder.iterdir()) == [
        "huge-00001-of-00002.gguf",
        "huge-00002-of-00002.gguf",
    ]
    program.good("rm", "huge")
    assert list(program.folder.iterdir()) == []


def test_what_is_broken_or_no_model_is_not_taken_in(program):
    (program.home / "half.gguf").write_bytes(CONTENT[:-300])
    assert "cut off" in program.bad("import", "half.gguf")
    assert "cannot be read" in program.bad("import", "nowhere.gguf")
    (program.home / "folder").mkdir()
    assert "is a folder, not a file" in program.bad("import", "folder")
    chat_file(program.home / "m.gguf")
    assert "no name" in program.bad("import", "m.gguf", "--name", "../x")
    assert not program.folder.exists()


def test_a_model_is_removed_with_its_settings_projector_and_empty_folders(program):
    chat_file(program.folder / "owner/repo/M.gguf")
    (program.folder / "owner/repo/mmproj-M.gguf").write_bytes(gguf({"general.architecture": "clip"}))
    (program.folder / "m.toml").write_text("context = 1024\n")
    chat_file(program.folder / "other.gguf")
    assert json.loads(program.good("rm", "m", "--json"))["removed"] == "m"
    assert [path.name for path in program.folder.iterdir()] == ["other.gguf"]


def test_a_broken_model_can_be_removed_too(program):
    program.folder.mkdir(parents=True)
    for number in (1, 3):
        (program.folder / f"big-{number:05}-of-00003.gguf").write_bytes(CONTENT)
    program.good("remove", "big")
    assert list(program.folder.iterdir()) == []


def test_models_of_other_programs_are_never_removed(program):
    theirs = chat_file(program.home / ".lmstudio/models/pub/repo/theirs.gguf")
    assert "belongs to LM Studio" in program.bad("rm", "theirs", "--yes")
    program.folder.mkdir(parents=True)
    os.symlink(theirs.parent, program.folder / "linked")
    assert "does not lie in" in program.bad("rm", "theirs", "--yes")
    (program.folder / "linked").unlink()
    program.good("import", str(theirs), "--link", "--name", "mine")
    program.good("rm", "mine")
    assert theirs.exists()


def asked(program: Program, answer: bytes, *arguments: str) -> tuple[int, str]:
    """Run it on a terminal and answer its question."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "lmagent", "models", *arguments],
        env=program.env, cwd=program.home, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        os.close(theirs)
        os.write(ours, answer)
        said = "".join(process.communicate(timeout=60))
    os.close(ours)
    return process.returncode, said


def test_on_a_terminal_it_asks_before_it_removes(program):
    path = chat_file(program.folder / "m.gguf")
    assert "kept m" in asked(program, b"n\n", "rm", "m")[1]
    assert path.exists()
    code, said = asked(program, b"y\n", "rm", "m")
    assert (code, path.exists()) == (0, False)
    assert str(path) in said


def test_recommendations_fit_the_machine_and_are_called_suggestions(program):
    chat_file(program.folder / "mine.gguf")
    text = program.good("recommend")
    assert "memory:" in text
    assert "GiB" not in text
    assert "already here, and fits: mine" in text
    answer = json.loads(program.good("recommend", "--json"))
    assert all(item["memory"] * 2**30 <= answer["memory"]["total"] for item in answer["suggestions"])
    assert "suggestions" in answer["note"]


def test_the_doctor_tells_engine_memory_and_folders(program):
    chat_file(program.home / ".lmstudio/models/pub/repo/theirs.gguf")
    run = program.run("doctor", "--json")
    answer = json.loads(run.stdout)
    assert answer["memory"]["total"] > 0
    assert [(name, count) for name, _, count in answer["folders"]] == [("the library", 0), ("LM Studio", 1)]
    assert bool(answer["engine"]["devices"]) != bool(answer["engine"]["problem"])
    assert run.returncode == (1 if answer["engine"]["problem"] else 0)
    assert "memory" in program.run("doctor").stdout


GONE = """
import runpy, sys
sys.modules["xllamacpp"] = None
runpy.run_module("lmagent.modelserver.engine.devices", run_name="__main__")
"""
CRASH = "import os, sys; sys.stderr.write('CUDA error'); sys.stderr.flush(); os.abort()"
HANG = "import time; time.sleep(60)"


def test_an_engine_that_is_not_there_crashes_or_hangs_is_a_finding_and_no_crash():
    assert "[local]" in ask_engine((sys.executable, "-c", GONE)).fix
    assert "CUDA error" in ask_engine((sys.executable, "-c", CRASH)).problem
    assert "did not answer" in ask_engine((sys.executable, "-c", HANG), seconds=0.5).problem
    assert "could not be asked" in ask_engine(("/nonexistent/python",)).problem


def test_after_a_pull_the_next_command_is_said(program):
    with FakeHub({"Model-Q4_K_M.gguf": CONTENT}) as hub:
        assert "→ lmagent -m model-q4_k_m" in program.good("pull", REPO, "-q", **hub.env).lower()
