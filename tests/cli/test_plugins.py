"""Plugins: the example of docs/extending.md is installed and run, and a plugin that does not fit names itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from program import clear

from lmagent.testing import ScriptedServer, call, say

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/plugin"
WORDY = {"/v1/models": {"object": "list", "data": [{"id": "w", "owned_by": "wordy", "max_words": 5_000}]}}


def placed(site: Path, code: Path | str, group: dict[str, str]) -> str:
    """Put a package where an installer would; return the PYTHONPATH by which it is found."""
    info = site / "placed-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: placed\nVersion: 1.0\n")
    lines = "".join(f"{name} = {value}\n" for name, value in group.items())
    (info / "entry_points.txt").write_text(f"[lmagent.plugins]\n{lines}")
    if isinstance(code, Path):
        shutil.copytree(code, site, dirs_exist_ok=True)
    else:
        (site / "faulty.py").write_text(code)
    return str(site)


@pytest.fixture
def example(tmp_path: Path) -> dict[str, str]:
    group = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]["entry-points"]["lmagent.plugins"]
    return {"PYTHONPATH": placed(tmp_path / "site-packages", EXAMPLE / "src", group)}


def works(program, env: dict[str, str]) -> None:
    """Use the example's tool, command and kind of server, through the real program."""
    listed = program.run("tool", "list", "-w", str(program.workspace), env=env)
    assert "count_words" in listed.stdout, listed.stderr
    script = [call("use_tool", name="count_words", arguments={"path": "a.txt"}), say("Counted.")]
    with ScriptedServer(script, routes=WORDY) as server:
        run = program.task(server, "--permission", "normal", "count", env=env)
        assert (run.returncode, "Counted." in run.stdout) == (0, True), run.stderr
        said = server.chats[-1].messages
        assert said[-1]["content"] == "a.txt has 1 words."
        assert "- count_words(path): Count the words of a file." in str(said)
        lines = "/words one two three\n/words\n/status\n/help\n"
        talk = program.run(
            "chat", "--plain", "-w", str(program.workspace), "--base-url", server.base_url, stdin=lines, env=env
        )
    assert "3 words" in talk.stdout
    assert "/words counts the words of a text, and there is none" in talk.stdout
    assert "Wordy" in talk.stdout
    assert "20,000" in talk.stdout
    assert "/words TEXT" in talk.stdout


def test_the_example_brings_a_tool_a_command_and_a_kind_of_server(program, example) -> None:
    works(program, example)


@pytest.mark.long
def test_the_example_is_built_and_installed_by_an_installer(program, tmp_path) -> None:
    site = tmp_path / "venv/site-packages"
    uv = os.environ.get("UV") or shutil.which("uv") or str(ROOT / ".cache/uv/bin/uv")
    if not Path(uv).exists():
        pytest.skip("needs uv")
    shutil.copytree(EXAMPLE, tmp_path / "plugin")
    command = [uv, "pip", "install", "-q", "--python", sys.executable, "--target", str(site), str(tmp_path / "plugin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "error sending request" in done.stderr:
        pytest.skip("needs a package index, for the build backend")
    assert done.returncode == 0, done.stderr
    works(program, {"PYTHONPATH": str(site)})


@pytest.mark.long
def test_the_example_uses_only_typed_names(tmp_path) -> None:
    pyright = Path(sys.executable).with_name("pyright")
    if not pyright.exists():
        pytest.skip("needs pyright")
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict", "extraPaths": ["src"]}')
    shutil.copytree(EXAMPLE / "src", tmp_path / "src")
    done = subprocess.run(
        [str(pyright), "--pythonpath", sys.executable], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


TOOL = """\
from lmagent.core.tool import Tool
from msgspec import Struct
class None_(Struct): pass
async def run(arguments, context): raise RuntimeError("broken inside")
def register(registry):
    registry.tool(Tool({!r}, "x", None_, "read", run))
"""
COMMAND = """\
from lmagent.app.registry import SlashCommand
async def run(context, text): ...
def register(registry):
    registry.command(SlashCommand({!r}, "", "x", run))
"""
DIALECT = """\
from lmagent.providers.dialects.vllm import VLLM
def register(registry):
    registry.dialect(VLLM({!r}, "x"))
"""


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import no_such_module", "failed to load: ModuleNotFoundError: No module named 'no_such_module'"),
        ("register = 5", "failed to load: TypeError"),
        ("", "failed to load: AttributeError"),
        ("import sys\nsys.exit('bye')", "failed to load: SystemExit: bye"),
        ("def register(registry): 1 / 0", "failed to load: ZeroDivisionError"),
        *(
            (TOOL.format(name), f"two tools are named '{name}'")
            for name in ("read", "bash", "use_tool", "skill", "vision")
        ),
        *((COMMAND.format(name), f"two commands are named /{name}") for name in ("undo", "skills", "clear")),
        *((DIALECT.format(name), f"two dialects are named '{name}'") for name in ("ollama", "generic")),
    ],
)
def test_a_plugin_that_fails_or_takes_a_name_names_itself_in_one_line(program, tmp_path, code, why) -> None:
    env = {"PYTHONPATH": placed(tmp_path / "site-packages", code, {"odd": "faulty:register"})}
    run = program.run("tool", "list", "-w", str(program.workspace), env=env)
    assert run.returncode == 1
    (line, *fix) = clear(run).splitlines()
    assert line.startswith("lmagent: the plugin 'odd' (faulty:register) ")
    assert why in line
    assert fix


def test_a_tool_of_a_plugin_that_fails_reports_it_to_the_model_and_the_turn_ends_well(program, tmp_path) -> None:
    env = {"PYTHONPATH": placed(tmp_path / "site-packages", TOOL.format("odd"), {"odd": "faulty:register"})}
    with ScriptedServer([call("odd"), say("It is broken.")]) as server:
        run = program.task(server, "do it", env=env)
        assert run.returncode == 0, run.stderr
        assert server.chats[-1].messages[-1]["content"] == "odd failed: RuntimeError: broken inside"
