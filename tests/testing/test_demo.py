from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_demo_writes_its_summary_and_says_that_the_model_is_a_recording(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {"PATH": path, "HOME": str(tmp_path), "LLM_URL": "http://127.0.0.1:9"}
    ran = subprocess.run(
        [ROOT / "scripts" / "demo.sh"], env=env, capture_output=True, text=True, timeout=30, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "There is no model here" in ran.stdout
    assert "| `todo/store.py` |" in ran.stdout
