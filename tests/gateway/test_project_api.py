"""The project over HTTP, and by slash command on the page."""

from __future__ import annotations

import json
from pathlib import Path

from gateway_kit import gateway


def test_a_project_is_created_moved_and_noted_and_wrong_moves_are_refused(tmp_path: Path) -> None:
    with gateway(tmp_path) as running:
        assert running.ask("GET", "/api/project").json["state"] == ""

        def change(operation: str, text: str):
            return running.ask("POST", "/api/project", json.dumps({"operation": operation, "text": text}).encode())

        made = change("create", "Compare the rates").json
        assert (made["goal"], made["state"], made["moves"]) == (
            "Compare the rates",
            "planning",
            ["executing", "paused"],
        )
        refused = change("state", "complete")
        assert refused.status == 409
        assert "possible from planning: executing, paused" in refused.json["error"]["message"]
        assert change("state", "executing").json["moves"] == ["reviewing", "paused"]
        assert change("note", "Bank B has no fees").json["notebook"][0].endswith("user: Bank B has no fees")
        assert change("create", "Another").status == 409
        assert change("note", "").status == 400

        file = running.workspace / "project.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "tasks": [{"id": 7, "title": "one"}]}))
        assert running.ask("GET", "/api/project").json["tasks"] == [
            {"id": "7", "title": "one", "status": "pending", "session": ""}
        ]
        file.write_text("{")
        assert "project.json is damaged" in running.ask("GET", "/api/project").json["error"]["message"]
        assert file.read_text() == "{"
