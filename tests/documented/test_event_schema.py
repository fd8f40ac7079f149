"""The JSON Schema of events holds for what a run prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from jsonschema import Draft202012Validator

from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "events.schema.json").read_text(encoding="utf-8"))


def test_every_event_that_a_run_prints_follows_the_schema(tmp_path: Path) -> None:
    with ScriptedServer(
        [call("write", path="a.txt", content="hello\n"), call("read", path="no.txt"), say("Done.")]
    ) as server:
        run = subprocess.run(
            [
                sys.executable,
                "-m",
                "lmagent",
                "--json",
                "--permission",
                "auto",
                "--base-url",
                server.base_url,
                "Write a.txt",
            ],
            cwd=tmp_path,
            env={**os.environ, "HOME": str(tmp_path), "LLM_MODEL": "scripted"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    events = [json.loads(line) for line in run.stdout.splitlines()]
    assert {"session.created", "text.delta", "tool.finished", "files.changed", "turn.finished"} <= {
        e["type"] for e in events
    }
    checker = Draft202012Validator(SCHEMA)
    assert [(event["type"], fault.message) for event in events for fault in checker.iter_errors(event)] == []
    assert list(checker.iter_errors({**events[0], "type": "nothing.known"})) != []
