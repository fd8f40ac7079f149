from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LMAGENT = Path(sys.executable).with_name("lmagent")


def run(tmp_path: Path, *argv: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    path = f"{LMAGENT.parent}{os.pathsep}{os.environ['PATH']}"
    env = {"PATH": path, "HOME": str(tmp_path), "LLM_URL": "http://127.0.0.1:9", **env}
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, check=False)


def test_the_example_cassette_plays_back_the_main_job(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    shutil.copytree(ROOT / "examples" / "demo" / "workspace", workspace)
    task = "Summarise all Python files in this workspace into SUMMARY.md"
    cassette = ROOT / "examples" / "demo" / "cassette.jsonl"
    flags = ("--permission", "auto", "--model", "demo-model", "--workspace", workspace, "--replay", cassette)
    ran = run(tmp_path, LMAGENT, task, *flags)
    assert ran.returncode == 0, ran.stderr
    assert "| `todo/store.py` |" in (workspace / "SUMMARY.md").read_text()


@pytest.mark.engine
def test_the_demo_does_real_chores_with_the_model_that_comes_along_and_says_what_it_is(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="the demo was NOT tested: the package xllamacpp is missing")
    ran = run(tmp_path, ROOT / "scripts" / "demo.sh")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "The model is a toy" in ran.stdout
    assert "write shopping.txt" in ran.stderr
    assert "shell printf" in ran.stderr or "shopping.txt" in ran.stdout


@pytest.mark.engine
def test_the_demo_does_a_task_of_ones_own_in_a_folder_of_ones_own(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="the demo was NOT tested: the package xllamacpp is missing")
    folder = tmp_path / "mine"
    folder.mkdir()
    ran = run(tmp_path, LMAGENT, "demo", "-w", folder, "Write apples to fruit.txt")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert (folder / "fruit.txt").read_text().strip() == "apples"


def test_without_the_engine_the_demo_says_how_to_get_it(tmp_path: Path) -> None:
    block = tmp_path / "block"
    block.mkdir()
    code = "import importlib.util as u; f = u.find_spec\n"
    code += "u.find_spec = lambda n, *a: f(n, *a) if n != 'xllamacpp' else None"
    (block / "sitecustomize.py").write_text(code)
    ran = run(tmp_path, LMAGENT, "demo", PYTHONPATH=str(block))
    assert ran.returncode == 1
    assert "pip install 'lmagent[local]'" in ran.stderr


@pytest.mark.engine
def test_the_demo_model_does_a_task_of_the_agent_when_it_is_asked_for_by_name(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="the demo was NOT tested: the package xllamacpp is missing")
    folder = tmp_path / "mine"
    folder.mkdir()
    flags = ("-w", folder, "--permission", "auto", "Write apples to fruit.txt")
    ran = run(tmp_path, LMAGENT, *flags, LLM_URL="", LLM_MODEL="lmagent-demo", LLM_TEMPERATURE="0")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "lmagent-demo runs here, on the built-in engine" in ran.stderr
    assert (folder / "fruit.txt").read_text().strip() == "apples"
