"""The locked packages of a project's tools: installed once, in the sandbox, from registries on loopback."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace
from testkit.registries import Registries, registries
from tools_kit import AgentFolder

from lmagent.app.agentpackages import Packages, installed_packages
from lmagent.app.confined import Confined
from lmagent.config.settings import Settings
from lmagent.core.errors import ConfigError
from lmagent.projects.archive import python_packages

PYTHON = "import tinypkg\ndef word() -> str:\n    return tinypkg.WORD\n"
NODE = "module.exports = { description: 'W.', execute() { require('tinypkg'); return require.resolve('tinypkg'); } };"


@pytest.fixture
def local() -> Iterator[Registries]:
    with registries() as found:
        yield found


@pytest.fixture
def agent(tmp_path: Path, local: Registries, monkeypatch: pytest.MonkeyPatch) -> AgentFolder:
    if shutil.which("pip3", path="/usr/bin") is None or shutil.which("npm") is None:
        pytest.skip("needs pip and npm")
    monkeypatch.setenv("PIP_INDEX_URL", local.index)
    monkeypatch.setenv("npm_config_registry", local.npm)
    agent = AgentFolder(tmp_path)
    for name, text in local.locks.items():
        agent.write(name, text)
    return agent


def installed(agent: AgentFolder) -> tuple[Packages, list[str]]:
    """Return the packages, and what the user is told."""
    data, said = agent.folder.parent / "data", list[str]()
    settings = Settings(agent_data_dir=data, sandbox="bubblewrap")

    async def work() -> Packages:
        confined = Confined(agent.workspace, settings)
        try:
            return await installed_packages(agent.folder, data, confined, said.append)
        finally:
            await confined.aclose()

    return anyio.run(work), said


def test_locked_packages_are_installed_once_and_tools_import_them(agent: AgentFolder, local: Registries) -> None:
    packages, said = installed(agent)
    assert said == ["installing the packages of requirements.txt …", "installing the packages of package-lock.json …"]
    agent.place = replace(agent.place, libraries=packages.libraries, modules=packages.modules)
    agent.add("tools/word.py", PYTHON)
    agent.add("tools/path.js", NODE)
    assert agent.call("word") == "installed"
    assert agent.call("path").startswith(str(packages.modules[0] / "tinypkg"))
    asked = len(local.asked)
    assert installed(agent) == (packages, [])
    assert len(local.asked) == asked
    agent.write("requirements.txt", (agent.folder / "requirements.txt").read_text() + "# the same packages\n")
    assert installed(agent) == (packages, [])
    agent.write("requirements.txt", (agent.folder / "requirements.txt").read_text().replace("==", " == "))
    again, said = installed(agent)
    assert said == ["installing the packages of requirements.txt …"]
    assert again.libraries != packages.libraries


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("requirements.txt", "--hash=", "#", "package has a hash"),
        ("requirements.txt", "sha256:", "sha256:00", "requirements.txt could not be installed"),
        ("requirements.txt", "tinypkg", "gonepkg", "gonepkg"),
        ("requirements.txt", "==1.0", ">=1.0", "does not say which version of tinypkg"),
        (
            "requirements.txt",
            "tinypkg",
            "--no-binary=:all:\ntinypkg",
            "versions and hashes: --no-binary",
        ),
        ("package-lock.json", '"integrity"', '"other"', "package-lock.json has no hash of node_modules/tinypkg"),
        ("package-lock.json", "sha512-", "sha512-0000", "package-lock.json could not be installed"),
        ("package-lock.json", "{", "", "cannot be read"),
    ],
)
def test_packages_that_are_not_locked_or_not_there_are_a_clear_error(
    agent: AgentFolder, file: str, old: str, new: str, said: str
) -> None:
    content = (agent.folder / file).read_text()
    assert old in content
    agent.write(file, content.replace(old, new, 1))
    with pytest.raises(ConfigError) as wrong:
        installed(agent)
    assert said in wrong.value.message
    assert wrong.value.fix


def test_a_project_without_locks_installs_nothing(tmp_path: Path, local: Registries) -> None:
    assert installed(AgentFolder(tmp_path)) == (Packages(), [])
    assert local.asked == []


@pytest.mark.parametrize(
    ("lock", "lines"),
    [
        ("a==1\nB_c[x,y] == 2.0.post1 # why\n# all\n\n", ["a==1", "B_c[x,y] == 2.0.post1"]),
        ("a==1 \\\n    --hash=sha256:0f \\\r\n    --hash=sha256:1e\n    # via b\n", 2),
        ("a==1 ; python_version < '4' and os_name == 'posix' --hash=sha256:0f\n", 1),
        ("-r other.txt\n", "-r other.txt"),
        ("--index-url http://elsewhere.test/simple\n", "--index-url"),
        ("a==1 --global-option=x\n", "a==1 --global-option=x"),
        ("a==1 ; python_version < '4' --no-binary=:all:\n", "--no-binary"),
        ("a==1 \\\n--no-binary=:all:\n", "--no-binary"),
        ("# coding: utf-7\n+AC0ALQ-no-binary==:all:\n", "+AC0ALQ"),
        ("a @ http://elsewhere.test/a==1.whl\n", "a @ http"),
        ("./a==1\n", "./a==1"),
        ("a==1.*\n", "a==1.*"),
        ("a===1\n", "a===1"),
    ],
)
def test_a_python_lock_has_packages_with_versions_and_hashes_alone(lock: str, lines: list[str] | int | str) -> None:
    if isinstance(lines, str):
        with pytest.raises(ConfigError) as wrong:
            python_packages(lock)
        assert lines in wrong.value.message
        return
    found = python_packages(lock)
    if isinstance(lines, int):
        assert (len(found), found[0].count("--hash=")) == (1, lines)
    else:
        assert found == lines
