"""A workspace that holds this program's own configuration: the agent can neither read nor write it, nor make it."""

from __future__ import annotations

import shutil
from pathlib import Path

import anyio
import pytest

from lmagent.app.confined import Confined
from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.config.settings import Settings
from lmagent.core.errors import SandboxError, ToolError, WorkspaceError
from lmagent.core.messages import ToolCall
from lmagent.core.sandbox import Exec
from lmagent.core.tool import ToolContext
from lmagent.engine.toolbox import Toolbox
from lmagent.tools.registry import builtin_tools

CONFIG = ".config/lmagent/config.toml"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder that is the workspace."""
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "AGENT_DATA_DIR", "LMAGENT_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


def shell(workspace: Path, script: str) -> str:
    async def main() -> str:
        confined, said = Confined(workspace, Settings()), bytearray()
        try:
            sandbox = await confined.get()
            running = await sandbox.start(Exec(("/bin/bash", "-c", script)), lambda _, piece: said.extend(piece))
            await running.wait()
        finally:
            await confined.aclose()
        return said.decode()

    return anyio.run(main)


def use(workspace: Path, name: str, arguments: str) -> str:
    async def main() -> str:
        invocation = Toolbox(builtin_tools(None)).resolve(ToolCall("c", name, arguments))  # type: ignore[arg-type]
        context = ToolContext("s", "c", workspace, {}, lambda _: None)
        return (await invocation.tool.run(invocation.arguments, context)).content

    return anyio.run(main)


needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: it is not installed")


@needs_bubblewrap
@pytest.mark.parametrize("there", [True, False])
def test_no_command_reads_writes_makes_or_moves_it(home, there):
    if there:
        (home / CONFIG).parent.mkdir(parents=True)
        (home / CONFIG).write_text('llm_api_key = "secret"\n')
    attacks = f"""
    cat {CONFIG}; mkdir -p .config/lmagent; echo 'sandbox = "off"' >{CONFIG}
    rm -rf .config .local; mv .config .c2; mv .local .l2; mkdir -p .config/lmagent; echo 'sandbox = "off"' >{CONFIG}
    ls -A .config/lmagent; echo done; touch .config/other
    """
    said = shell(home, attacks)
    assert "secret" not in said
    assert said.rstrip().endswith("done")
    assert (home / ".config/other").exists(), "what is beside it is the workspace's"
    if there:
        assert (home / CONFIG).read_text() == 'llm_api_key = "secret"\n'
    else:
        assert not (home / CONFIG).exists()


def test_no_file_tool_reads_writes_or_finds_it(home):
    (home / CONFIG).parent.mkdir(parents=True)
    (home / CONFIG).write_text("secret = 1\n")
    (home / ".config/other").write_text("secret too\n")
    (home / "link").symlink_to(".config")
    for path in (CONFIG, f"./{CONFIG}", ".Config/LMAgent/config.toml", "link/lmagent/config.toml", f"{home}/{CONFIG}"):
        for name, arguments in (("read", ""), ("write", ', "content": "sandbox = 1"')):
            with pytest.raises(ToolError, match="own configuration"):
                use(home, name, f'{{"path": "{path}"{arguments}}}')
    assert "config.toml" not in use(home, "grep", '{"pattern": "secret"}')
    assert "lmagent" not in use(home, "glob", '{"pattern": ".config/**"}')
    assert (home / CONFIG).read_text() == "secret = 1\n"


@needs_bubblewrap
def test_a_link_on_the_way_to_it_cannot_be_covered_so_nothing_is_run(home):
    (home / "dotfiles").mkdir()
    (home / ".config").symlink_to("dotfiles")
    with pytest.raises(SandboxError, match="behind a link"):
        shell(home, "true")


def test_a_sandbox_that_cannot_cover_it_is_refused(home):
    async def main() -> None:
        await Confined(home, Settings(sandbox="landlock")).get()

    with pytest.raises(SandboxError, match="only bubblewrap can cover"):
        anyio.run(main)


def test_our_own_folder_is_no_workspace(home):
    (home / CONFIG).parent.mkdir(parents=True)

    async def main() -> None:
        await open_host(HostOptions((home / CONFIG).parent), say=print)

    with pytest.raises(WorkspaceError, match="lmagent's own folder"):
        anyio.run(main)
