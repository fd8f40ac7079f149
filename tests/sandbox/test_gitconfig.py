import random
import subprocess
from pathlib import Path

import pytest
from gitguard_kit import Ground

from lmagent.sandbox.git.config import ConfigDamagedError, parse
from lmagent.sandbox.git.index import IndexDamagedError, gitlinks

WORDS = r"""[core] [core ] [diff.X] [diff.Foo·"Bar"] [diff·"x·y"] [a·"b\"c\\"] [a··"b"] [a·"b"·] fsmonitor textConv
a-b a_b 9a = ·=· ·· \n \q " "a·b" ;·y value v·w ! [ {"""
PIECES = [word.replace("·", " ").encode() for word in WORDS.split()]
PIECES += [
    b"\n",
    b"\n",
    b"\r\n",
    b"\r",
    b"\t",
    b"\\\n",
    b"# x\n",
    b"\v",
    b"\f",
    b"\x1b",
    b"\xef\xbb\xbf",
    b"\xff",
    b"\xc3\xa4",
]


def _as_git_reads(path: Path) -> list[tuple[str, str | None]] | None:
    done = subprocess.run(["git", "config", "-z", "--list", "--no-includes", "-f", path], capture_output=True)
    if done.returncode:
        return None
    items = done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1]
    return [(key, value if mark else None) for key, mark, value in (item.partition("\n") for item in items)]


def _squeezed(text: str | None) -> str | None:
    return None if text is None else " ".join(text.replace("\r", " ").split(" "))


@pytest.mark.parametrize("seed", range(8))
def test_a_config_says_to_us_what_it_says_to_git(seed: int, tmp_path: Path):
    dice = random.Random(seed)
    file = tmp_path / "config"
    read = 0
    for _ in range(60):
        data = b"[core]\n" * dice.randint(0, 1) + b"".join(dice.choices(PIECES, k=dice.randint(1, 12)))
        file.write_bytes(data)
        git = _as_git_reads(file)
        try:
            ours = [(entry.name, entry.value) for entry in parse(data)]
        except ConfigDamagedError:
            assert git is None, data
            continue
        if git is None:
            continue  # keys before any section: git lists them as an error; refusing less than git shows more
        read += 1
        assert [(k, _squeezed(v)) for k, v in ours] == [(k, _squeezed(v)) for k, v in git], data
    assert read


@pytest.mark.parametrize("version", ["2", "3", "4"])
@pytest.mark.parametrize("kind", ["sha1", "sha256"])
def test_gitlinks_are_read_from_every_version_of_the_index(version: str, kind: str, tmp_path: Path):
    ground = Ground(tmp_path / "g")
    ground.git("init", "-q", f"--object-format={kind}", check=True)
    commit = "1" * (40 if kind == "sha1" else 64)
    for number in range(30):
        ground.write(f"dir/file-{'x' * number}", "")
    ground.git("add", ".", check=True)
    for path in ("dir/sub", "dir/file-xx-sub", "ä b"):
        ground.git("update-index", "--add", "--cacheinfo", f"160000,{commit},{path}", check=True)
    if version == "3":
        ground.write("new", "")
        ground.git("add", "-N", "new", check=True)
    else:
        ground.git("update-index", "--index-version", version, check=True)
    assert gitlinks((ground.ws / ".git/index").read_bytes()) == {"dir/sub", "dir/file-xx-sub", "ä b"}


@pytest.mark.parametrize("cut", [1, 11, 12, 40, 75, 100])
def test_a_damaged_index_is_an_error(cut: int, tmp_path: Path):
    ground = Ground(tmp_path / "g")
    ground.repo()
    data = (ground.ws / ".git/index").read_bytes()
    with pytest.raises(IndexDamagedError):
        gitlinks(data[:cut])
