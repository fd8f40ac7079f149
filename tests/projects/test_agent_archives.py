"""Archives of projects: the same bytes everywhere, no key inside, and nothing unpacked that is not as it says."""

from __future__ import annotations

import gzip
import io
import os
import re
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmagent.app.agentproject import abilities
from lmagent.core.errors import ConfigError, StoreError
from lmagent.projects.archive import build, unpack
from lmagent.projects.load import load_folder

AGENT = "name: Weather\nenv:\n  WEATHER_KEY: {secret: true}\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "weather"
    (root / "tools").mkdir(parents=True)
    (root / "prompts").mkdir()
    (root / "agent.yaml").write_text(AGENT)
    (root / "prompts" / "system.yaml").write_text("version: 3\ncontent: Be brief.\n")
    (root / "tools" / "sky.sh").write_text("#!/bin/sh\necho blue\n")
    (root / "tools" / "sky.sh").chmod(0o755)
    return root


def built(root: Path, target: Path, **env: str) -> Path:
    build(load_folder(root), target, env)
    return target


def names(path: Path) -> list[str]:
    with tarfile.open(path) as archive:
        return archive.getnames()


def test_a_project_gives_the_same_bytes_at_another_place_and_time(project: Path, tmp_path: Path) -> None:
    first = built(project, tmp_path / "a.tar.gz").read_bytes()
    other = tmp_path / "elsewhere" / "copy"
    shutil.copytree(project, other)
    for path in other.rglob("*"):
        os.utime(path, (1, 1))
    assert built(other, other / "b.tar.gz").read_bytes() == first
    assert built(other, other / "b.tar.gz").read_bytes() == first  # the archive is no part of itself


def test_an_archive_has_the_project_and_nothing_that_was_made_in_it(project: Path, tmp_path: Path) -> None:
    for name in ("node_modules/x/index.js", "tools/__pycache__/a.pyc", ".env", ".lmagent/sessions/s", "data/out.txt"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("x")
    (project / ".env.example").write_text("WEATHER_KEY=\n")
    archive = built(project, tmp_path / "a.tar.gz")
    assert names(archive) == ["manifest.json", ".env.example", "agent.yaml", "prompts/system.yaml", "tools/sky.sh"]


def test_an_archive_is_unpacked_as_it_was_built(project: Path, tmp_path: Path) -> None:
    archive = built(project, tmp_path / "a.tar.gz")
    folder = unpack(archive, tmp_path / "agents")
    manifest = build(load_folder(project), tmp_path / "a.tar.gz", {})
    assert (manifest.name, manifest.prompts) == ("weather", {"prompts/system.yaml": "3"})
    assert re.fullmatch("weather-[0-9a-f]{12}", folder.name)
    assert (folder / "agent.yaml").read_text() == AGENT
    assert os.access(folder / "tools" / "sky.sh", os.X_OK)
    assert unpack(archive, tmp_path / "agents") == folder
    assert built(folder, tmp_path / "again.tar.gz").read_bytes() == archive.read_bytes()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("tools/a.py", "KEY = 'sk-" + "a1" * 20 + "'\n", r"tools/a\.py contains a key \(sk-a1a…, line 1\)"),
        ("README.md", "\n\n-----BEGIN RSA PRIVATE KEY-----\n", r"README\.md contains a key .* line 3"),
        ("tests/t.yaml", "message: hunter22\n", r"contains the value of WEATHER_KEY"),
        ("notes.txt", "from-env-file\n", r"contains the value of OTHER in \.env"),
    ],
)
def test_a_project_with_a_secret_in_a_file_is_not_built(
    project: Path, tmp_path: Path, name: str, content: str, said: str
) -> None:
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).write_text(content)
    (project / ".env").write_text("# OTHER=no\nexport OTHER='from-env-file'\n")
    target = tmp_path / "a.tar.gz"
    target.write_text("an older archive")
    with pytest.raises(ConfigError, match=said):
        built(project, target, WEATHER_KEY="hunter22")
    assert target.read_text() == "an older archive"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("requirements.txt", "# ok\nrequests>=2\n", "which version of requests>=2"),
        ("package.json", '{"dependencies": {"left-pad": "1"}}', "there is no package-lock.json"),
        ("package.json", "{", "package.json cannot be read"),
    ],
)
def test_packages_of_tools_must_be_named_exactly(project: Path, tmp_path: Path, name: str, content: str, said) -> None:
    (project / name).write_text(content)
    with pytest.raises(ConfigError, match=said) as wrong:
        built(project, tmp_path / "a.tar.gz")
    assert wrong.value.fix


def test_links_and_special_files_are_no_part_of_a_project(project: Path, tmp_path: Path) -> None:
    (project / "tools" / "passwd").symlink_to("/etc/passwd")
    with pytest.raises(ConfigError, match="tools/passwd is a link"):
        built(project, tmp_path / "a.tar.gz")
    (project / "tools" / "passwd").unlink()
    os.mkfifo(project / "tools" / "pipe")
    with pytest.raises(ConfigError, match="tools/pipe is no regular file"):
        built(project, tmp_path / "a.tar.gz")


# --- archives from elsewhere ------------------------------------------------------------------------------------------


def member(name: str, content: bytes = b"x", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def changed(archive: Path, *added: tuple[tarfile.TarInfo, bytes], without: str = "", last: bool = True) -> Path:
    """Write an archive's files, and others, into another archive."""
    target = archive.with_name("changed.tar.gz")
    with tarfile.open(archive) as old, tarfile.open(target, "w:gz") as new:
        kept = [(info, old.extractfile(info).read()) for info in old if info.name != without]  # type: ignore[union-attr]
        for info, content in (*kept, *added) if last else (*added, *kept):
            new.addfile(info, io.BytesIO(content))
    return target


def headers(count: int) -> Iterator[bytes]:
    for number in range(count):
        yield tarfile.TarInfo(f"f{number}").tobuf()


def refused(path: Path, tmp_path: Path) -> str:
    with pytest.raises(StoreError) as wrong:
        unpack(path, tmp_path / "agents")
    left = list((tmp_path / "agents").rglob("*")) if (tmp_path / "agents").exists() else []
    assert left == []
    return wrong.value.message


@pytest.mark.parametrize(
    ("added", "said"),
    [
        (member("../evil"), "'../evil', which no project has"),
        (member("/etc/evil"), "'/etc/evil', which no project has"),
        (member("tools/../../evil"), "which no project has"),
        (member("tools\\evil"), "which no project has"),
        (member("link", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "'link', which no project has"),
        (member("hard", b"", type=tarfile.LNKTYPE, linkname="agent.yaml"), "'hard', which no project has"),
        (member("device", b"", type=tarfile.CHRTYPE), "'device', which no project has"),
        (member("pipe", b"", type=tarfile.FIFOTYPE), "'pipe', which no project has"),
        (member("agent.yaml", b"name: other"), "'agent.yaml', which no project has"),
        (member("more.txt"), "more.txt is not as its manifest says"),
        (member("x" * 300), "which no project has"),
    ],
    ids=lambda value: value[0].name[:20] if isinstance(value, tuple) else "",
)
def test_an_archive_with_something_else_is_refused(
    project: Path, tmp_path: Path, added: tuple[tarfile.TarInfo, bytes], said: str
) -> None:
    archive = built(project, tmp_path / "a.tar.gz")
    assert said in refused(changed(archive, added), tmp_path)


def test_a_changed_or_missing_file_is_noticed(project: Path, tmp_path: Path) -> None:
    archive = built(project, tmp_path / "a.tar.gz")
    assert "files are missing" in refused(changed(archive, without="tools/sky.sh"), tmp_path)
    other = changed(archive, member("tools/sky.sh", b"rm -rf /\n"), without="tools/sky.sh")
    assert "tools/sky.sh is not as its manifest says" in refused(other, tmp_path)
    first = changed(archive, member("readme", b"x"), last=False)
    assert "does not begin with a manifest.json" in refused(first, tmp_path)


def test_an_archive_of_a_million_files_or_of_ten_gigabytes_is_refused_by_its_headers(
    project: Path, tmp_path: Path
) -> None:
    archive = built(project, tmp_path / "a.tar.gz")
    with tarfile.open(archive) as old:
        listed = old.extractfile("manifest.json").read()  # type: ignore[union-attr]
    begin = member("manifest.json", listed)[0].tobuf() + listed + b"\0" * (-len(listed) % 512)
    big = tarfile.TarInfo("big")
    big.size = 10_000_000_000
    name = tarfile.TarInfo("long")
    name.type, name.size = tarfile.GNUTYPE_LONGNAME, 8_000_000_000
    cases = {"is larger than": begin + big.tobuf(), "not as its manifest": begin + b"".join(headers(5000))}
    cases["a header is too large"] = begin + name.tobuf(tarfile.GNU_FORMAT)
    for said, content in cases.items():
        path = tmp_path / "bad.tar.gz"
        path.write_bytes(gzip.compress(content + b"\0" * 2048))
        assert said in refused(path, tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"not gzip", b"not tar" * 100, b"\0" * 4096], ids=["empty", "text", "words", "zeros"]
)
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.tar.gz"
    for written in (content, gzip.compress(content)):
        path.write_bytes(written)
        assert "is not unpacked" in refused(path, tmp_path)


def test_what_an_agent_may_do_is_shown_before_it_is_run(project: Path) -> None:
    (project / "agent.yaml").write_text(
        AGENT + "api: {url: 'http://far.example/v1', key_env: MY_KEY}\nnetwork: {hosts: [api.example.org]}\n"
        "permissions: {mode: auto, allow: [shell]}\ntools: [{name: sky, path: tools/sky.sh}, read]\n"
    )
    assert list(abilities(load_folder(project))) == [
        "agent        Weather: Weather",
        "model        that of your settings at http://far.example/v1",
        "key          the value of MY_KEY is sent to http://far.example/v1",
        "tools        read",
        "own tools    sky: they run in the sandbox",
        "unasked      shell, mode auto: it asks nothing",
        "network      api.example.org",
        "variables    WEATHER_KEY: its own tools get their values",
    ]
