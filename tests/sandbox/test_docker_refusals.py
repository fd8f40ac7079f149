"""Docker where something is missing: nothing runs, and the error says what to type."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile

import anyio
import pytest
from docker_kit import IMAGE, docker, engine

from lmagent.core.errors import SandboxError
from lmagent.core.sandbox import Exec
from lmagent.sandbox.docker import Docker, archive
from lmagent.sandbox.environment import SandboxRequest


@pytest.fixture(scope="module")
def env():
    with engine() as found:
        yield found


def refused(sandbox: Docker) -> SandboxError:
    with pytest.raises(SandboxError) as caught:
        anyio.run(sandbox.start, Exec(("true",)), print)
    report = anyio.run(sandbox.probe)
    assert (report.works, report.fix) == (False, caught.value.fix)
    return caught.value


def test_an_image_that_is_not_there_is_named_with_what_to_type(tmp_path, env):
    assert refused(docker(tmp_path, env, image="lmagent-sandbox:none")).fix == "lmagent sandbox image"
    assert refused(docker(tmp_path, env, image="no-such/image:1")).fix == "docker pull no-such/image:1"


def test_an_image_without_python_is_named_so(tmp_path, env):
    tar = subprocess.run(["tar", "-c", "-T", "/dev/null"], capture_output=True, check=True).stdout
    subprocess.run(["docker", "import", "-", "lmagent-empty-test"], input=tar, env=env, capture_output=True, check=True)
    try:
        assert "no python3" in refused(docker(tmp_path, env, image="lmagent-empty-test")).message
    finally:
        subprocess.run(["docker", "rmi", "-f", "lmagent-empty-test"], env=env, capture_output=True, check=False)


def test_without_the_docker_program_nothing_runs(tmp_path):
    error = refused(Docker(tmp_path, SandboxRequest(env={"PATH": str(tmp_path)}, image=IMAGE)))
    assert "not installed" in error.message


def test_a_docker_program_that_lies_in_the_workspace_is_not_used(tmp_path):
    (tmp_path / "docker").write_text("#!/bin/sh\ntouch pwned\n")
    (tmp_path / "docker").chmod(0o755)
    refused(Docker(tmp_path, SandboxRequest(env={"PATH": str(tmp_path)}, image=IMAGE)))
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("permission denied while trying to connect to the Docker daemon socket", "does not let this user in"),
        ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon", "does not run"),
        ("something else", "docker failed"),
    ],
)
def test_what_docker_says_becomes_an_error_with_a_fix(words, message, tmp_path):
    bin = tmp_path / "bin"
    (tmp_path / "ws").mkdir()
    bin.mkdir()
    (bin / "docker").write_text(f"#!/bin/sh\necho '{words}' >&2\nexit 1\n")
    (bin / "docker").chmod(0o755)
    error = refused(Docker(tmp_path / "ws", SandboxRequest(env={"PATH": f"{bin}:{os.environ['PATH']}"}, image=IMAGE)))
    assert message in error.message
    assert error.fix


@pytest.mark.parametrize("command", [Exec(("a\0b",)), Exec(()), Exec(("true",), env={"A": "\0"})])
def test_a_command_with_a_nul_is_refused(command, tmp_path):
    with pytest.raises(SandboxError, match="nothing was run"):
        anyio.run(Docker(tmp_path, SandboxRequest(env={})).start, command, print)


def host(root, *, merged: bool = True, python: bool = True):
    (root / "usr" / "bin").mkdir(parents=True)
    if merged:
        (root / "bin").symlink_to("usr/bin")
    else:
        (root / "bin").mkdir()
    if python:
        (root / "usr" / "bin" / "python3").touch()
    return root


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: the local image uses its /usr")
def test_the_local_image_is_names_and_no_programs(tmp_path):
    with tarfile.open(fileobj=io.BytesIO(archive(host(tmp_path)))) as tar:
        entries = {entry.name: entry for entry in tar}
    assert entries["bin"].linkname == "usr/bin"
    assert entries["tmp"].mode == 0o1777
    assert sum(entry.size for entry in entries.values()) < 300
    assert "home/agent" not in entries  # its mode would win over that of the tmpfs that is mounted there


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: the local image uses its /usr")
@pytest.mark.parametrize(("missing", "words"), [("merged", "merged /usr"), ("python", "python3")])
def test_a_host_that_cannot_give_its_usr_is_told_why(missing, words, tmp_path):
    with pytest.raises(SandboxError, match=words):
        archive(host(tmp_path, **{missing: False}))


def test_a_docker_program_without_an_engine_is_told_in_words_of_ours(tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    said = 'template: :1:7: executing "" at <.SecurityOptions>: reflect: indirection through nil pointer'
    (programs / "docker").write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
    (programs / "docker").chmod(0o755)
    (tmp_path / "work").mkdir()
    error = refused(Docker(tmp_path / "work", SandboxRequest(env={"PATH": str(programs)}, image=IMAGE)))
    assert error.message.startswith("the docker engine does not run; nothing was run")
    assert "template" not in error.message
    assert "systemctl start docker" in error.fix
