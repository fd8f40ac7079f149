"""What the guard takes for harmless is harmless to git, whatever the text."""

import random
import subprocess
from pathlib import Path

import pytest
from gitguard_kit import Ground, checked

from lmagent.sandbox.git.repo import gitlinks

WORDS = r"""[core] [core ] [user] [branch·"x·y"] [remote·"b\"c\\"] [color··"b"] [user·"b"·] fsmonitor name hooksPath
fetch a_b 9a = ·=· ·· \n \q " "a·b" ;·y value v·w ! [ { [include] path"""
PIECES = [word.replace("·", " ").encode() for word in WORDS.split()]
PIECES += [b"\n", b"\n", b"\r\n", b"\r", b"\t", b"\\\n", b"# x\n", b"\v", b"\f", b"\x1b", b"\xef\xbb\xbf", b"\xff"]
KEYS = ("name", "path", "fetch", "fsmonitor", "hookspath", "v", "value")
HARMLESS = {"user.name", "user.b.name", "remote.fetch", 'remote.b"c\\.fetch'}
HARMLESS |= {f"{section}.{key}" for section in ("branch.x y", "color", "color.b") for key in KEYS}


@pytest.mark.parametrize("seed", range(4))
def test_a_config_that_is_left_alone_has_only_harmless_settings_for_git(seed: int, tmp_path: Path):
    dice = random.Random(seed)
    ground = Ground(tmp_path / "g")
    ground.git("init", "-q", "new", check=True)
    outside, inside = tmp_path / "new", ground.ws / "new"
    inside.rename(outside)
    left = 0
    for _ in range(100):
        data = b"[user]\n" * dice.randint(0, 1) + b"".join(dice.choices(PIECES, k=dice.randint(1, 8)))
        (outside / ".git/config").write_bytes(data)
        found = checked(ground, lambda _: outside.rename(inside))
        inside.rename(outside)
        if found:
            (outside / ".git/config.lmagent-quarantine-1").unlink()
            continue
        left += 1
        command = ["git", "config", "-z", "--list", "--no-includes", "-f", outside / ".git/config"]
        listed = subprocess.run(command, capture_output=True).stdout.decode("utf-8", "replace")
        names = {item.partition("\n")[0] for item in listed.split("\0") if item}
        assert names <= HARMLESS, data
    assert left


@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize("kind", ["sha1", "sha256"])
def test_gitlinks_are_found_in_an_index(version: str, kind: str, tmp_path: Path):
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
    found = gitlinks((ground.ws / ".git/index").read_bytes())
    assert found >= {"dir/sub", "dir/file-xx-sub", "ä b"}
    assert not any(name.startswith("dir/file-x") and "sub" not in name for name in found)
