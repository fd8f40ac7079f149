"""The official inspector's command line (npm) as a client of ours."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gateway_kit import shared
from serve_kit import Place

pytestmark = pytest.mark.long

PACKAGE = "@modelcontextprotocol/inspector@2.12.0"

KEPT = Path(__file__).parents[2] / ".cache" / "inspector"


@pytest.fixture(scope="module")
def inspector() -> str:
    """The program, which npm installs once."""
    program = KEPT / "node_modules" / ".bin" / "mcp-inspector"
    if not program.exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("npm is not installed: the inspector was NOT tried")
        KEPT.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--prefix", str(KEPT), "--no-audit", "--no-fund", PACKAGE]
        run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if run.returncode:
            pytest.skip(f"npm cannot install {PACKAGE}: the inspector was NOT tried: {run.stderr[-300:]}")
    return str(program)


def asked(inspector: str, *words: str, env: dict[str, str] | None = None) -> Any:
    run = subprocess.run(
        [inspector, "--cli", *words],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr + run.stdout
    return json.loads(run.stdout)


def test_the_inspector_lists_and_calls_our_tools_on_stdio(inspector, tmp_path):
    place = Place(tmp_path, ["--permission", "auto"])
    command = [sys.executable, *place.arguments]
    listed = asked(inspector, *command, "--method", "tools/list", env=place.env)
    assert {"read", "shell", "delegate"} <= {tool["name"] for tool in listed["tools"]}
    given = ["--method", "tools/call", "--tool-name", "write"]
    given += ["--tool-arg", "path=made.txt", "--tool-arg", "content=by the inspector"]
    written = asked(inspector, *command, *given, env=place.env)
    assert not written.get("isError")
    assert (place.workspace / "made.txt").read_text() == "by the inspector"


def test_the_inspector_calls_our_tools_over_http(inspector):
    with shared(options=("--mcp-serve",)) as running:
        (running.workspace / "a.txt").write_text("alpha\n")
        where = [f"{running.url}/mcp", "--transport", "http"]
        where += ["--header", f"Authorization: {running.headers['Authorization']}"]
        given = ["--method", "tools/call", "--tool-name", "read", "--tool-arg", "path=a.txt"]
        assert "alpha" in asked(inspector, *where, *given)["content"][0]["text"]
