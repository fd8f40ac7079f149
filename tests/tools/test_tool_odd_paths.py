"""Paths that are none, and the name that the sandbox has for the workspace."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmagent.core.errors import ToolError
from lmagent.tools.beneath import Beneath

CALLS = [
    ("read", {"path": "{}"}),
    ("write", {"path": "{}", "content": "x"}),
    ("edit", {"path": "{}", "search": "a", "replace": "b"}),
    ("ls", {"path": "{}"}),
    ("mkdir", {"path": "{}"}),
    ("glob", {"pattern": "{}/*"}),
    ("glob", {"pattern": "*{}"}),
    ("grep", {"pattern": "x", "paths": ["{}"]}),
    ("grep", {"pattern": "x", "glob": "/{}"}),
]


def filled(arguments: dict, path: str) -> dict:
    return {
        name: [path] if isinstance(value, list) else value.replace("{}", path) if isinstance(value, str) else value
        for name, value in arguments.items()
    }


@pytest.mark.parametrize("path", ["a\0b", "\0", "a\ud800"])
@pytest.mark.parametrize(("tool", "arguments"), CALLS)
def test_what_can_be_no_path_is_refused_in_words_for_the_model(hands, tool, arguments, path) -> None:
    call = filled(arguments, path)
    refusal = hands.refused(tool, **call)
    assert "Write it" in refusal.message
    assert "\0" not in hands.summary(tool, **call)
    if tool in ("write", "edit"):
        assert "Write it" in hands.refused_unasked(tool, **call).message
    if hands.targets(tool, **call) != (".",):
        with pytest.raises(ToolError, match="Write it"):
            hands.request(tool, **call)


def test_every_tool_takes_the_sandboxs_name_for_the_workspace(hands, workspace: Path) -> None:
    hands("write", path="/workspace/src/a.py", content="one\n")
    assert (workspace / "src/a.py").read_text() == "one\n"
    hands("edit", path="/workspace/src/a.py", search="one", replace="two")
    assert "two" in hands("read", path="/workspace/src/a.py").content
    assert "a.py" in hands("ls", path="/workspace/src").content
    assert hands("glob", pattern="/workspace/src/*.py").content == "src/a.py"
    assert "src/a.py\n1:two" in hands("grep", pattern="two", paths=["/workspace"], glob="/workspace/src/*.py").content
    hands.refused("read", path="/workspaces/src/a.py")


def test_the_name_is_none_where_the_workspace_really_lies_there(tmp_path: Path, monkeypatch) -> None:
    place = tmp_path / "workspace"
    (place / "proj").mkdir(parents=True)
    (place / "proj/a").write_text("mine")
    monkeypatch.setattr("lmagent.policy.paths.ALIAS", str(place))
    with Beneath(place / "proj") as files:
        assert files.read_bytes(f"{place}/proj/a") == b"mine"
        with pytest.raises(ToolError, match="outside the workspace"):
            files.read_bytes(f"{place}/a")
