"""Without sub-agents: the flag takes the tools away, whatever the settings say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from lmagent.testing import ScriptedServer
from lmagent.testing.script import say


def test_the_flag_takes_the_tools_away(tmp_path: Path) -> None:
    for flag, offered in (((), True), (("--no-sub-agents",), False)):
        with ScriptedServer([say("Hello.")]) as server:
            done = subprocess.run(
                [sys.executable, "-m", "lmagent", "-w", str(tmp_path), "--base-url", server.base_url, *flag, "hi"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env={**os.environ, "HOME": str(tmp_path)},
                cwd=tmp_path,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, done.stderr.decode()
            assert ("- delegate" in str(server.chats[0].body)) == offered
            assert ("- decompose" in str(server.chats[0].body)) == offered
