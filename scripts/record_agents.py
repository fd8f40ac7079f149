"""Record the cassettes of the example agents with the scripted server: `scripts/record_agents.py`.

They are honest about the program and not about a model: the replies are written here, the tools really run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from lmagent.projects.starting import EXAMPLES
from lmagent.testing import ScriptedServer, call, say

NAME = "name-of-the-agent"

SCRIPTS = {
    "conversational": [call("roll_dice", count=2), say("Here are your two dice. Shall I roll again?")],
    "task-oriented": [
        call("count_words", text="one two three"),
        call("write", path="count.txt", content="3\n"),
        say("The text has 3 words; I wrote that to count.txt."),
    ],
    "knowledge": [
        call("grep", pattern="closed"),
        call("cite", file="opening-hours.md", line=3),
        say("The library is closed on Sundays [opening-hours.md, line 3]."),
    ],
    "creative": [
        call("pick_words", count=3),
        call("write", path="story.md", content="The lantern went out at noon.\n"),
        say("I began a story about a lantern in story.md."),
    ],
}


def main() -> int:
    for kind, script in SCRIPTS.items():
        with TemporaryDirectory() as folder, ScriptedServer(script) as server:
            env = {**os.environ, "LLM_URL": server.base_url, "HOME": folder, "AGENT_DATA_DIR": f"{folder}/data"}
            for words in (["init", NAME, "--type", kind], ["test", NAME, "--update"]):
                subprocess.run([sys.executable, "-m", "lmagent", "agent", *words], cwd=folder, env=env, check=True)
            for made in (Path(folder) / NAME / "tests" / "cassettes").glob("*.jsonl"):
                target = EXAMPLES / kind / "tests" / "cassettes" / made.name
                target.parent.mkdir(exist_ok=True)
                target.write_text(made.read_text(encoding="utf-8").replace(NAME, "$NAME"), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
