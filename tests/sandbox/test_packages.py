"""The registries of this machine: found in the user's own files, asked about before anything is sent, no further."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from testkit.registries import Registries, registries

from lmagent.sandbox.packages import PackageHosts, configured, find_registries

INDEX, NPM = "https://index.test/simple", "https://npm.test/"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".config/pip/pip.conf", f"[global]\nindex-url = {INDEX}\n"),
        (".pip/pip.conf", f"[install]\nindex-url: {INDEX}\n"),
        (".config/uv/uv.toml", f'index-url = "{INDEX}"\n'),
        (".config/uv/uv.toml", f'[[index]]\nurl = "https://more.test"\n[[index]]\nurl = "{INDEX}"\ndefault = true\n'),
    ],
)
def test_an_index_is_found_in_the_users_files(tmp_path: Path, name: str, text: str):
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text(text)
    (tmp_path / ".npmrc").write_text(f"fund = false\nregistry={NPM}\n//npm.test/:_authToken=secret\n")
    assert configured({"HOME": str(tmp_path)}) == (NPM, INDEX)


def test_a_variable_wins_over_a_file_and_what_is_no_address_is_passed_over(tmp_path: Path):
    (tmp_path / ".npmrc").write_text("registry=${NOWHERE}\n")
    for file in ("pip", "uv"):
        (tmp_path / ".config" / file).mkdir(parents=True)
    (tmp_path / ".config/pip/pip.conf").write_text("no ini\n")
    (tmp_path / ".config/uv/uv.toml").write_text("index = 3\n")
    env = {"HOME": str(tmp_path), "PIP_CONFIG_FILE": "/dev/null"}
    assert configured({**env, "PIP_INDEX_URL": "/a/folder", "UV_DEFAULT_INDEX": "name=https://x"}) == ("", "")
    assert configured({**env, "NPM_CONFIG_REGISTRY": NPM, "UV_INDEX_URL": INDEX}) == (NPM, INDEX)


@pytest.fixture
def local():
    with registries() as found:
        yield found


def bare(tmp_path: Path, **env: str) -> dict[str, str]:
    """An environment without programs that could be asked."""
    return {"HOME": str(tmp_path), "PATH": "", **env}


def patterns(packages: PackageHosts, *places: str, allowed: bool = True) -> tuple[list[str | None], list[str]]:
    """The patterns of hosts, asked for one after the other in a session, and the hosts that the user was asked for."""
    asked: list[str] = []

    async def ask(host: str, port: int) -> bool:
        asked.append(f"{host}:{port}")
        return allowed

    async def main() -> list[str | None]:
        opener = packages.opener("s1", ask)
        split = [place.rpartition(":") for place in places]
        return [await opener.pattern(host, int(port)) for host, _, port in split]

    return anyio.run(main), asked


def test_hosts_of_files_are_looked_up_only_once_the_index_was_allowed(tmp_path: Path, local: Registries):
    env = bare(tmp_path, PIP_INDEX_URL=local.index)
    packages = PackageHosts(env, tmp_path, listed=False)
    assert patterns(packages, local.files) == ([None], [])
    assert patterns(packages, local.place, allowed=False) == ([""], [local.place])
    assert local.asked == []
    assert patterns(packages, local.place, local.files, "other.test:443") == (
        [local.place, local.files, None],
        [local.place, local.files],
    )
    assert local.asked == ["/simple/pip/"]
    assert packages.opener("s1", None).loopback == ("127.0.0.1",)  # type: ignore[arg-type]


def test_listed_registries_are_not_asked_about_and_other_ports_of_them_are_no_registries(tmp_path: Path):
    env = bare(tmp_path, npm_config_registry="http://8.8.8.8/npm/")
    packages = PackageHosts(env, tmp_path, listed=True)
    assert patterns(packages, "8.8.8.8:80", "8.8.8.8:443", "8.8.4.4:80") == (["8.8.8.8:80", None, None], [])


def program(folder: Path, name: str, output: str) -> Path:
    """A program on PATH that prints a text."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{output}'\n")
    path.chmod(0o755)
    return path


def test_a_usual_registry_stays_on_the_internet_wherever_its_name_leads(tmp_path: Path, local: Registries):
    tools, workspace = tmp_path / "tools", tmp_path / "workspace"
    workspace.mkdir()
    program(tools, "npm", "http://localhost.:4873/")
    program(tools, "pip", "Base URL of the Python Package Index (default https://usual.test/simple).")
    env = bare(tmp_path, PATH=str(tools))
    found, _ = patterns(PackageHosts(env, workspace, listed=False), "usual.test:443", "localhost:4873")
    assert found == ["usual.test:443", None]
    assert find_registries(env, workspace, "uvx").env["PIP_INDEX_URL"] == "https://usual.test/simple"


def test_a_public_index_cannot_name_this_machine_for_its_files(tmp_path: Path, local: Registries):
    from lmagent.sandbox.packages import _hosts_of_files  # the page is on loopback here, so it is told what it is

    assert _hosts_of_files(local.index, near=False) == ()
    assert _hosts_of_files(local.index, near=True) == (local.files,)


def test_the_programs_of_the_workspace_are_not_asked(tmp_path: Path):
    program(tmp_path / "workspace" / "bin", "npm", "https://planted.test/")
    packages = PackageHosts(bare(tmp_path, PATH=str(tmp_path / "workspace/bin")), tmp_path / "workspace", listed=True)
    assert patterns(packages, "planted.test:443") == ([None], [])


def test_certificates_that_commands_see_are_passed_on(tmp_path: Path):
    env = bare(tmp_path, PIP_CERT="/etc/ssl/certs/ca.crt", SSL_CERT_FILE="/home/me/own.crt", PIP_INDEX_URL=INDEX)
    assert PackageHosts(env, tmp_path, listed=False).env == {
        "PIP_CERT": "/etc/ssl/certs/ca.crt",
        "PIP_INDEX_URL": INDEX,
        "UV_DEFAULT_INDEX": INDEX,
    }
