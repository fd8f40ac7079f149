"""Skills: the user allows each, a Python skill ran before it is one, and it runs in the sandbox alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from testkit.amount import mostly_long

from lmagent.core.errors import ConfigError
from lmagent.skills.python import function_in, functions_in
from lmagent.skills.standard import parse_skill
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say

SLUG = '''
def slug(title: str, sep: str = "-") -> str:
    """Return a title as a file name.

    >>> slug("Two Words")
    'two-words'
    """
    return sep.join(title.lower().split())
'''

PDF = """---
name: pdf-forms
description: >-
  Fill in PDF forms.
  Use when a task names a PDF.
---
# How
Run scripts/fill.py with the form.
"""


def lmagent(workspace: Path, *arguments: str, url: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("LLM", "XDG", "AGENT", "LMAGENT"))
    }
    more = {"LLM_URL": url} if url else {}
    return subprocess.run(
        [sys.executable, "-m", "lmagent", *arguments],
        env={**kept, "HOME": str(workspace.parent), **more, **env},
        cwd=workspace,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def listed(workspace: Path) -> dict[str, dict[str, object]]:
    rows = map(json.loads, lmagent(workspace, "skills", "list", "--json").stdout.splitlines())
    return {row["name"]: row for row in rows}


@pytest.fixture
def workspace(empty_workspace: Path) -> Path:
    (empty_workspace / "tools.py").write_text(SLUG)
    return empty_workspace


def written(folder: Path, text: str = PDF, name: str = "pdf-forms") -> Path:
    skill = folder / name
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(text)
    return skill


# --- Python skills ------------------------------------------------------------------------------------------------


def test_a_function_that_passed_its_trial_is_a_tool_once_the_user_enables_it(workspace):
    call_it = ("tool", "call", "--yes", "promote_skill", '{"file_path": "tools.py", "function_name": "slug"}')
    done = lmagent(workspace, *call_it)
    assert "passed its trial" in done.stdout, done.stdout + done.stderr
    assert "two-words" in done.stdout
    assert listed(workspace)["slug"]["state"] == "proposed"
    assert "slug" not in lmagent(workspace, "tool", "list").stdout

    assert "slug is enabled" in lmagent(workspace, "skills", "enable", "slug").stdout
    assert "slug" in lmagent(workspace, "tool", "list").stdout
    used = lmagent(workspace, "tool", "call", "--yes", "slug", '{"title": "A B C", "sep": "_"}')
    assert used.stdout.strip() == "a_b_c"
    row = listed(workspace)["slug"]
    assert (row["uses"], row["last"]["ok"]) == (1, True)


def test_a_skill_whose_code_changes_is_not_used_until_it_passes_again_and_is_enabled_again(workspace):
    lmagent(workspace, "skills", "import", "tools.py")
    lmagent(workspace, "skills", "enable", "slug")
    code = workspace / ".lmagent/skills/slug/v1.py"
    code.write_text(SLUG.replace(".lower()", ".upper()"))
    assert listed(workspace)["slug"]["state"] == "changed"
    assert "slug" not in lmagent(workspace, "tool", "list").stdout
    code.write_text("def slug(title: str) -> str:\n    '''Break.'''\n    raise RuntimeError('broken now')\n")
    failed = lmagent(workspace, "skills", "enable", "slug")
    assert failed.returncode == 1
    assert "broken now" in failed.stdout
    assert listed(workspace)["slug"]["state"] == "changed"


@pytest.mark.long
def test_a_new_version_is_a_proposal_and_the_one_before_comes_back(workspace):
    lmagent(workspace, "skills", "import", "tools.py")
    lmagent(workspace, "skills", "enable", "slug")
    (workspace / "tools.py").write_text(SLUG.replace("'two-words'", "").replace(".lower()", ".upper()"))
    lmagent(workspace, "skills", "import", "tools.py")
    assert (listed(workspace)["slug"]["version"], listed(workspace)["slug"]["state"]) == (2, "changed")
    back = lmagent(workspace, "skills", "rollback", "slug")
    assert "version 1 again (enabled)" in back.stdout
    assert lmagent(workspace, "tool", "call", "--yes", "slug", '{"title": "A B"}').stdout.strip() == "a-b"


def test_a_disabled_skill_is_no_tool(workspace):
    lmagent(workspace, "skills", "import", "tools.py")
    lmagent(workspace, "skills", "enable", "slug")
    lmagent(workspace, "skills", "disable", "slug")
    assert listed(workspace)["slug"]["state"] == "disabled"
    assert "slug" not in lmagent(workspace, "tool", "list").stdout


@pytest.mark.parametrize(
    "name",
    mostly_long(["shell", "../../x", "read_file", "Upper", "use_tool", "vision", "skill", "promote_skill", ""], kept=3),
)
def test_a_skill_takes_no_tool_s_name_and_its_name_does_not_leave_its_folder(workspace, name):
    (workspace / "tools.py").write_text(SLUG.replace("def slug", "def shell"))
    arguments = json.dumps(
        {"file_path": "tools.py", "function_name": "shell", "tool_name": name, "trial": {"title": "a"}}
    )
    done = lmagent(workspace, "tool", "call", "--yes", "promote_skill", arguments)
    assert done.returncode != 0, done.stdout
    assert not list(workspace.parent.rglob("skill.json"))


def test_functions_with_the_names_of_tools_are_not_taken_from_a_file_and_the_others_are(workspace):
    taken = ("use_tool", "vision", "skill", "read_file")
    functions = [SLUG.replace("def slug", f"def {name}").replace(">>> slug", f">>> {name}") for name in taken]
    (workspace / "tools.py").write_text("\n".join((*functions, SLUG)))
    done = lmagent(workspace, "skills", "import", "tools.py")
    assert done.stdout.count("is the name of another tool") == len(taken)
    assert list(listed(workspace)) == ["slug"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("    while True: pass", "did not end within"),
        ("    import no_such_module", "no_such_module"),
        ("    return title.no_such", "AttributeError"),
        ("    import os; os._exit(7)", "exit code 7"),
        ("    open('/etc/passwd', 'a')", "Error"),
    ],
)
def test_a_skill_that_loops_fails_or_reaches_out_ends_with_a_line_and_is_no_proposal(workspace, body, reason):
    code = f"def bad(title: str) -> str:\n    '''Fail.'''\n{body}\n"
    (workspace / "bad.py").write_text(code)
    arguments = json.dumps({"file_path": "bad.py", "function_name": "bad", "trial": {"title": "a"}})
    env = {"LMAGENT_SKILL_TIMEOUT": "2"}
    done = lmagent(workspace, "tool", "call", "--yes", "promote_skill", arguments, **env)
    assert reason in done.stdout + done.stderr
    assert listed(workspace) == {}


def test_a_skill_that_floods_is_kept_short(workspace):
    flood = "def flood() -> str:\n    '''Print.'''\n    print('x' * 10_000_000)\n    return 'y' * 10_000_000\n"
    (workspace / "flood.py").write_text(flood)
    done = lmagent(workspace, "skills", "import", "flood.py")
    assert "passed its trial" in done.stdout
    assert len(done.stdout) < 5_000


def test_a_coroutine_and_types_written_as_text_are_fine(workspace):
    code = (
        "from __future__ import annotations\n"
        "async def total(prices: list[float], note: 'str | None' = None) -> float:\n"
        "    '''Add prices.\n\n    >>> total([1.5, 2])\n    3.5\n    '''\n"
        "    return sum(prices)\n"
    )
    (workspace / "total.py").write_text(code)
    assert "3.5" in lmagent(workspace, "skills", "import", "total.py").stdout
    schema = function_in(code, "total", "total.py").schema
    assert schema["properties"] == {
        "prices": {"type": "array", "items": {"type": "number"}},
        "note": {"type": "string"},
    }
    assert schema["required"] == ["prices"]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("def f(x: int -> int:", "no valid Python"),
        ("def f(x) -> int:\n    '''Doc.'''", "has no type"),
        ("def f(x: int):\n    '''Doc.'''", "no return type"),
        ("def f(x: int) -> int:\n    return x", "no docstring"),
        ("def f(*x: int) -> int:\n    '''Doc.'''", "parameters"),
        ("class f:\n    pass", "no function 'f'"),
    ],
)
def test_a_function_without_types_or_docstring_is_refused_with_the_reason(code, reason):
    with pytest.raises(ConfigError, match=reason):
        function_in(code, "f", "f.py")


def test_private_functions_are_no_skills():
    assert functions_in("def a(): ...\ndef _b(): ...\nclass c: ...\nasync def d(): ...", "f.py") == ["a", "d"]


# --- text skills --------------------------------------------------------------------------------------------------


def test_a_text_skill_is_listed_to_the_model_and_its_text_comes_when_it_is_used(workspace):
    written(workspace / ".claude" / "skills")
    assert listed(workspace)["pdf-forms"]["state"] == "proposed"
    lmagent(workspace, "skills", "enable", "pdf-forms")
    with ScriptedServer([call("use_tool", name="skill", arguments={"name": "pdf-forms"}), say("Done.")]) as server:
        done = lmagent(workspace, "--permission", "auto", "fill in the form", url=server.url)
        assert done.returncode == 0, done.stderr
        first, second = (json.dumps(request.body) for request in server.chats[:2])
    assert "pdf-forms: Fill in PDF forms. Use when a task names a PDF." in first
    assert "Run scripts/fill.py" not in first
    assert "Run scripts/fill.py" in second


def test_other_agents_skills_are_proposals_and_a_changed_one_is_a_proposal_again(workspace):
    written(workspace / ".claude" / "skills", name="pdf-forms")
    written(workspace.parent / ".agents" / "skills", PDF.replace("pdf-forms", "mine"), name="mine")
    assert {name: row["state"] for name, row in listed(workspace).items()} == {
        "mine": "proposed",
        "pdf-forms": "proposed",
    }
    lmagent(workspace, "skills", "enable", "mine")
    (workspace.parent / ".agents/skills/mine/extra.txt").write_text("more")
    assert listed(workspace)["mine"]["state"] == "changed"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no front matter", "does not begin with"),
        ("---\nname: a\n---\n", "no description"),
        ("---\nname: [\n---\n", "no valid YAML"),
        ("---\nname: a\ndescription: 'x\u202ey'\n---\n", "hidden"),
        ("---\n- a\n---\n", "no description"),
    ],
)
def test_a_damaged_skill_is_named_with_the_reason(text, reason):
    with pytest.raises(ConfigError, match=reason):
        parse_skill(text, "SKILL.md")


def test_a_broken_skill_is_listed_and_the_session_goes_on_without_it(workspace):
    written(workspace / ".lmagent" / "skills", "nothing", name="broken")
    row = listed(workspace)["broken"]
    assert row["state"] == "broken"
    assert "SKILL.md" in row["reason"]
    with ScriptedServer([say("Hello.")]) as server:
        assert lmagent(workspace, "hello", url=server.url).returncode == 0
