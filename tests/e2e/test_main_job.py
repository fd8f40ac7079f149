"""The main job on a checkout of this very repository: with a scripted model, and with the real llama.cpp engine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from testkit.engine import EngineServer
from testkit.forced import ForcedAnswer, ForcedCalls, Option
from testkit.gguf import build_tiny_gguf

from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, calls, say, tool

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
TASK = "Summarise all Python files in this workspace into SUMMARY.md"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    workspace = tmp_path / "checkout"
    for name in ("src", "docs", "scripts"):
        shutil.copytree(ROOT / name, workspace / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".gitignore", workspace)
    return workspace


def lmagent(workspace: Path, base_url: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lmagent", TASK, "--permission", "auto", "-w", str(workspace), "--base-url", base_url],
        env={**os.environ, "HOME": str(workspace.parent), "LLM_MODEL": "tiny", **settings},
        cwd=workspace,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=480,
        check=False,
    )


def cuts_of(workspace: Path) -> int:
    (log,) = workspace.glob(".lmagent/sessions/*/events.jsonl")
    return sum(json.loads(line)["type"] == "compaction.done" for line in log.read_text().splitlines())


def test_every_python_file_is_read_through_compactions_and_the_summary_written(checkout):
    files = sorted(str(path.relative_to(checkout)) for path in checkout.rglob("*.py"))
    assert len(files) > 100
    summary = "# Summary\n\n" + "".join(f"- {name}\n" for name in files)
    batches = [files[start : start + 4] for start in range(0, len(files), 4)]
    replies = iter(
        [
            call("glob", pattern="**/*.py"),
            *[calls(*[tool("read", path=name) for name in batch]) for batch in batches],
            call("write", path="SUMMARY.md", content=summary),
            say(f"I summarised {len(files)} files in SUMMARY.md."),
        ]
    )

    def model(received):
        return say("Files are read in order.") if received.body.get("tool_choice") == "none" else next(replies)

    with ScriptedServer(model, strict=True) as server:
        run = lmagent(checkout, server.base_url, LMAGENT_CONTEXT_WINDOW="65536")
        assert run.returncode == 0, run.stderr
        assert server.connections == 1
        cuts = cuts_of(checkout)
        assert len(server.prefix.breaks) <= 2 * cuts, "the prompt changed where no compaction says so"
    assert cuts >= 2
    assert (checkout / "SUMMARY.md").read_text() == summary
    assert f"I summarised {len(files)} files" in run.stdout


@pytest.mark.engine
def test_the_real_engine_drives_the_same_job(checkout, tmp_path):
    for package in ("xllamacpp", "gguf"):
        pytest.importorskip(package, reason=f"the real engine was NOT tested: the package {package} is missing")
    core = checkout / "src/lmagent/core"
    files = sorted(str(path.relative_to(checkout)) for path in core.glob("*.py"))[:7]  # enough for a cut
    steps = iter(
        [
            *[[Option("read", {"path": [name]})] for name in files],
            [Option("write", {"path": ["SUMMARY.md"], "content": 200})],
        ]
    )

    def plan(received):
        return ForcedAnswer() if received.body.get("tool_choice") == "none" else next(steps, ForcedAnswer())

    model = build_tiny_gguf(tmp_path / "tiny.gguf")
    with EngineServer(model, context=8192) as engine, ForcedCalls(engine.url, plan) as server:
        run = lmagent(
            checkout, server.base_url, LMAGENT_CONTEXT_WINDOW=str(engine.context), LMAGENT_TOOL_RESULT_TOKENS="1500"
        )
        assert run.returncode == 0, run.stderr
        assert all(usage["prompt_tokens"] > 0 for usage in server.usage)
        assert server.usage[1]["prompt_tokens_details"]["cached_tokens"] >= server.usage[0]["prompt_tokens"] - 8
    assert (checkout / "SUMMARY.md").read_text().strip()
    assert cuts_of(checkout) >= 1
