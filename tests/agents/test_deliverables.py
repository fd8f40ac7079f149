"""Deliverables: what a sub-agent says it has brought is looked for on the disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from agents_kit import report, use
from test_limits_of_sub_agents import delegating, played

from lmagent.agents.report import faults, kept
from lmagent.core import events as ev
from lmagent.core.work import ChildResult, Deliverable
from lmagent.testing.script import call, say

FILE = {"deliverable_type": "file", "deliverable_path": "a.txt"}


def told(seen: dict[str, Any]) -> list[str]:
    return [event.content for event in seen["child"] if isinstance(event, ev.ToolFinished)]


def test_a_file_that_was_there_before_and_is_untouched_was_not_delivered(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old\n")
    result, seen = played(tmp_path, delegating(report(artifacts=["a.txt"]), **FILE))
    assert (result.status, result.artifacts) == ("partial", ())
    assert "was there before and you have not changed it" in result.error
    assert sum("Not reported" in text for text in told(seen)) == 1, "it is told once, while it can still set it right"


def test_it_can_set_right_what_it_is_told(tmp_path: Path) -> None:
    script = delegating(report(artifacts=["a.txt"]), call("write", path="a.txt", content="x\n"), report(), **FILE)
    result, _ = played(tmp_path, script)
    assert result.status == "ok"


def test_a_file_of_that_name_elsewhere_is_not_it(tmp_path: Path) -> None:
    script = delegating(call("write", path="sub/a.txt", content="x\n"), report(artifacts=["sub/a.txt"]), **FILE)
    result, _ = played(tmp_path, script)
    assert result.status == "partial"
    assert "a.txt does not exist" in result.error
    assert result.artifacts == ("sub/a.txt",)


def test_what_a_command_changed_counts(tmp_path: Path) -> None:
    script = delegating(call("shell", command="echo x > a.txt"), report(artifacts=["a.txt"]), **FILE)
    result, _ = played(tmp_path, script)
    assert result.status == "ok", result.error


def test_where_changes_are_not_kept_a_newer_file_counts(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("old\n")
    os.utime(tmp_path / "b.txt", (0, 0))
    script = delegating(call("shell", command="echo x > a.txt"), report(artifacts=["a.txt", "b.txt"]), **FILE)
    result, _ = played(tmp_path, script, undo_mb=0)
    assert (result.status, result.artifacts) == ("ok", ("a.txt",)), result.error


def test_a_file_that_it_wrote_and_did_not_name_is_among_its_artifacts_all_the_same(tmp_path: Path) -> None:
    result, _ = played(tmp_path, delegating(call("write", path="b.txt", content="x\n"), report(summary="Nothing.")))
    assert (result.status, result.artifacts) == ("ok", ("b.txt",))


def test_without_a_report_the_files_it_changed_are_its_artifacts(tmp_path: Path) -> None:
    script = delegating(call("write", path="a.txt", content="x\n"), say("Wrote it."))
    result, _ = played(tmp_path, script)
    assert (result.status, result.artifacts) == ("partial", ("a.txt",))


def test_a_brief_for_a_path_outside_begins_nothing(tmp_path: Path) -> None:
    from test_delegating import refused

    content, begun = refused(tmp_path, use("delegate", objective="x", deliverable_path="../../etc/passwd"))
    assert "not a path of a file in the workspace" in content
    assert not begun


@pytest.mark.parametrize(
    ("form", "content", "fault"),
    [
        ("json", '{"a": 1}', ""),
        ("json", "{", "no valid json"),
        ("jsonl", '{"a": 1}\n{"a": 2}\n', ""),
        ("jsonl", '{"a": 1}\n{', "no valid jsonl"),
        ("csv", "\n \n", "is empty"),
        ("markdown", "# Title\n", ""),
        ("markdown", "", "is empty"),
    ],
)
def test_a_file_has_to_follow_its_format(form: str, content: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text(content)
    found = faults(
        tmp_path, Deliverable("file", "x", path="a", format=form), ChildResult("c", "ok", "s"), lambda _: True
    )
    assert (fault in found[0]) if fault else found == []


@pytest.mark.parametrize(
    ("wanted", "data", "fault"),
    [
        (Deliverable("data", "x"), {"a": 1}, ""),
        (Deliverable("data", "x"), None, "data is empty"),
        (Deliverable("data", "x", schema={"required": ["b"]}), {"a": 1}, "'b' is a required property"),
        (Deliverable("data", "x", schema={"type": "array"}), [1], ""),
        (Deliverable("data", "x", format="json"), "{", "no valid json"),
        (Deliverable("data", "x", format="json", schema={"type": "object"}), '{"a": 1}', ""),
        (Deliverable("data", "x", schema={"type": "object"}), '{"a": 1}', ""),
        (Deliverable("data", "x", schema={"type": "object"}), "[1]", "is not of type 'object'"),
        (Deliverable("data", "x", schema={"type": "object"}), "{", "is not of type 'object'"),
        (Deliverable("data", "x", schema={"$ref": "#/nowhere"}), 1, "the schema, which is at fault"),
        (Deliverable("data", "x", schema={"$ref": "#"}), 1, "the schema, which is at fault"),
    ],
)
def test_data_has_to_be_there_and_to_follow_its_schema(wanted: Deliverable, data: Any, fault: str) -> None:
    found = faults(Path("/nowhere"), wanted, ChildResult("c", "ok", "s", data=data), lambda _: True)
    assert (fault in found[0]) if fault else found == []


@pytest.mark.parametrize(
    ("content", "fault"), [('{"a": 1}', ""), ("# Title\n", "no valid json"), ("[1]", "is not of type 'object'")]
)
def test_a_file_with_a_schema_is_json_where_nothing_else_is_said(content: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text(content)
    wanted = Deliverable("file", "x", path="a", schema={"type": "object"})
    found = faults(tmp_path, wanted, ChildResult("c", "ok", "s"), lambda _: True)
    assert (fault in found[0]) if fault else found == []


def test_a_report_needs_words_and_files_need_names(tmp_path: Path) -> None:
    empty = ChildResult("c", "ok", " ")
    assert faults(tmp_path, Deliverable("report", "x"), empty, lambda _: True)
    assert faults(tmp_path, Deliverable("files", "x"), empty, lambda _: True)


def test_links_and_places_outside_are_no_artifacts(tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "secret").write_text("s")
    os.symlink(tmp_path / "secret", tmp_path / "ws" / "link")
    (tmp_path / "ws" / "real").write_text("r")
    result = ChildResult("c", "ok", "s", artifacts=("link", "../secret", "real", "none", "real"))
    assert kept(tmp_path / "ws", result, lambda _: True).artifacts == ("real",)
