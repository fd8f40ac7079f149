"""Skills and identity files over HTTP."""

from __future__ import annotations

import shutil
from pathlib import Path

from gateway_kit import Running, gateway

PDF = """---
name: pdf-forms
description: Fill in PDF forms. Use when a task names a PDF.
---
Run scripts/fill.py with the form.
"""
SLUG = '''
def slug(title: str) -> str:
    """Return a title as a file name.

    >>> slug("Two Words")
    'two-words'
    """
    return "-".join(title.lower().split())
'''


def text_skill(running: Running, folder: str = ".lmagent/skills") -> Path:
    file = running.workspace / folder / "pdf-forms" / "SKILL.md"
    file.parent.mkdir(parents=True)
    file.write_text(PDF)
    return file


def python_skill(running: Running, code: str = SLUG) -> None:
    (running.workspace / "tools.py").write_text(code)
    done = running.lmagent("skills", "import", "tools.py")
    assert done.returncode == 0, done.stdout + done.stderr


def states(running: Running) -> dict[str, str]:
    return {row["name"]: row["state"] for row in running.ask("GET", "/api/skills").json["skills"]}


def test_a_text_skill_is_listed_read_enabled_and_a_changed_one_is_no_longer_enabled(tmp_path: Path) -> None:
    with gateway(tmp_path) as running:
        assert running.ask("GET", "/api/skills").json == {"skills": []}
        file = text_skill(running, ".claude/skills")
        shown = running.ask("GET", "/api/skills/pdf-forms").json
        assert (shown["kind"], shown["state"], shown["trial"]) == ("text", "proposed", None)
        assert "scripts/fill.py" in shown["content"]
        assert running.ask("POST", "/api/skills/pdf-forms/test").json["ok"] is True
        assert states(running) == {"pdf-forms": "proposed"}
        enabled = running.ask("POST", "/api/skills/pdf-forms/enable", {"digest": shown["digest"]}).json
        assert (enabled["ok"], enabled["skill"]["state"]) == (True, "enabled")
        file.write_text(PDF + "And send it.")
        assert states(running) == {"pdf-forms": "changed"}
        answer = running.ask("POST", "/api/skills/pdf-forms/enable", {"digest": shown["digest"]})
        assert (answer.status, answer.code) == (409, "changed")
        assert running.ask("POST", "/api/skills/pdf-forms/disable").json["state"] == "disabled"


def test_a_python_skill_shows_its_trial_and_is_a_tool_of_the_gateway_once_it_is_enabled(tmp_path: Path) -> None:
    with gateway(tmp_path) as running:
        python_skill(running)
        shown = running.ask("GET", "/api/skills/slug").json
        assert (shown["kind"], shown["state"], shown["version"]) == ("python", "proposed", 1)
        assert shown["trial"]["arguments"] == {"title": "Two Words"}
        assert 'return "-".join' in shown["content"]
        tried = running.ask("POST", "/api/skills/slug/test", timeout=60).json
        assert (tried["ok"], tried["text"]) == (True, "two-words")
        assert running.ask("GET", "/api/skills/slug").json["runs"][0]["ok"] is True
        tools = running.ask("GET", "/api/tools").json["tools"]
        assert "slug" not in [tool["name"] for tool in tools]
        assert running.ask("POST", "/api/skills/slug/enable", {}, timeout=60).json["ok"] is True
        tools = running.ask("GET", "/api/tools").json["tools"]
        assert "slug" in [tool["name"] for tool in tools]


def test_the_version_before_comes_back_with_the_decision_about_it(tmp_path: Path) -> None:
    with gateway(tmp_path) as running:
        python_skill(running)
        answer = running.ask("POST", "/api/skills/slug/rollback")
        assert (answer.status, answer.code) == (409, "no_earlier_version")
        assert running.ask("POST", "/api/skills/slug/enable", {}, timeout=60).json["ok"] is True
        python_skill(running, SLUG.replace("title.lower()", "title.casefold()"))
        assert states(running) == {"slug": "changed"}
        back = running.ask("POST", "/api/skills/slug/rollback").json
        assert (back["version"], back["state"]) == (1, "enabled")


def test_a_skill_whose_trial_fails_is_not_enabled_and_the_reason_is_in_the_answer(tmp_path: Path) -> None:
    with gateway(tmp_path) as running:
        python_skill(running)
        (running.workspace / ".lmagent/skills/slug/v1.py").write_text("def slug(title):\n    return title[99]\n")
        answer = running.ask("POST", "/api/skills/slug/enable", {}, timeout=60).json
        assert (answer["ok"], answer["skill"]["state"]) == (False, "proposed")
        assert "IndexError" in answer["text"]


def test_a_broken_or_missing_skill_is_named_and_nothing_is_allowed(tmp_path: Path) -> None:
    with gateway(tmp_path) as running:
        folder = running.workspace / ".lmagent/skills/odd"
        folder.mkdir(parents=True)
        (folder / "skill.json").write_text("{")
        (row,) = running.ask("GET", "/api/skills").json["skills"]
        assert (row["state"], "damaged" in row["reason"]) == ("broken", True)
        answer = running.ask("POST", "/api/skills/odd/enable", {}).json
        assert (answer["ok"], answer["skill"]["state"]) == (False, "broken")
        for verb in ("test", "enable", "disable", "rollback"):
            answer = running.ask("POST", f"/api/skills/nothing/{verb}", {})
            assert (answer.status, answer.code) == (404, "not_found")
        assert running.anyone.ask("POST", "/api/skills/odd/enable", {}).status == 401


def test_a_skill_with_the_name_of_a_tool_that_may_come_later_is_broken_and_is_not_offered(tmp_path: Path) -> None:
    with gateway(tmp_path) as running:
        python_skill(running)
        skills = running.workspace / ".lmagent/skills"
        for name in ("vision", "use_tool"):
            shutil.copytree(skills / "slug", skills / name)
            manifest = skills / name / "skill.json"
            manifest.write_text(manifest.read_text().replace('"tool":"slug"', f'"tool":"{name}"'))
            answer = running.ask("POST", f"/api/skills/{name}/enable", {}).json
            assert (answer["ok"], answer["text"]) == (False, "its name is another tool's")
        assert states(running) == {"slug": "proposed", "use_tool": "broken", "vision": "broken"}
        assert "vision" not in [tool["name"] for tool in running.ask("GET", "/api/tools").json["tools"]]


def test_the_identity_files_have_their_sizes_and_what_is_wrong_with_them(tmp_path: Path) -> None:
    with gateway(tmp_path) as running:
        assert running.ask("GET", "/api/identity").json == {"files": [], "nested": []}
        (running.workspace / "SOUL.md").write_text("Be brief.\n")
        (running.workspace / "AGENTS.md").write_text("x" * 5000)
        (running.workspace / "USER.md").symlink_to("SOUL.md")
        (running.workspace / "lib").mkdir()
        (running.workspace / "lib" / "AGENTS.md").write_text("Here.")
        found = running.ask("GET", "/api/identity").json
        rows = {row["name"]: row for row in found["files"]}
        assert (rows["SOUL.md"]["size"], rows["SOUL.md"]["advice"]) == (10, "")
        assert "5,000 bytes" in rows["AGENTS.md"]["advice"]
        assert "not sent" in rows["USER.md"]["advice"]
        assert found["nested"] == ["lib/AGENTS.md"]
