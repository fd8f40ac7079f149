"""Whatever a script destroys comes back bit for bit, and can be done again."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from undo_kit import Lab, paths_of

from lmagent.undo import UndoLimits

PLAIN = {
    "rm -rf": "rm -rf src docs empty",
    "rm -rf everything": "rm -rf ./* .hidden",
    "find -delete": "find src -type f -delete",
    "mv over": "mv -f src/a.py src/b.py",
    "mv a folder": "mv src moved",
    "sed -i": "sed -i s/content/other/ src/a.py src/b.py",
    "append in place": "echo more >> src/a.py; echo more >> node_modules/fresh.js",
    "truncate in place": ": > src/a.py",
    "same size in place": "printf CONTENT > src/a.py",
    "chmod": "chmod 600 src/a.py; chmod 755 docs/readme.md; chmod 700 src; chmod 000 src/b.py",
    "chmod a folder, then remove": "chmod 777 src; rm -rf src",
    "touch": "touch src/a.py; touch -d 2001-01-01 src/b.py; touch -h -d 2002-01-01 link",
    "link changed": "ln -sfn docs link; rm dangling; ln -s elsewhere new-link",
    "link to file": "rm link; echo now a file > link",
    "file to link": "rm src/a.py; ln -s b.py src/a.py",
    "file to folder": "rm src/a.py; mkdir -p src/a.py/deep; echo x > src/a.py/deep/x",
    "folder to file": "rm -rf src; echo x > src",
    "folder to link": "rm -rf src; ln -s docs src",
    "link to folder": "rm link; mkdir -m 711 link; echo x > link/x",
    "swap": "mv src tmp; mv docs src; mv tmp docs",
    "empty folders": "rmdir empty; mkdir -p new/a/b new/c; chmod 700 new/a",
    "read-only folder": "chmod 755 locked; rm locked/in; echo y > locked/new; chmod 555 locked",
    "new files": "mkdir -p n/m; echo 1 > n/m/1; echo 2 > n/2; ln -s m n/l; chmod 640 n/2",
    "hard link made": "ln src/a.py src/c.py; ln -f src/a.py src/b.py",
    "hard link changed": "echo more >> hard/one",
    "hard link over an equal file": "ln -f equal/one equal/two",
    "hard link chmod": "chmod 600 hard/one",
    "hard link removed": "rm hard/one; echo more >> hard/two",
    "unicode": "rm 'naïve ☃.txt'; echo x > 'ünï.txt'; mv 'with space' $'new\\nline'",
    "not UTF-8": "rm $'caf\\xe9'; echo x > $'x\\xff\\xfe'; ln -s $'\\xe9' l; echo y > 'back\\slash'; echo > $'\\\\xff'",
    "dependencies": "rm -rf node_modules target",
    "dependencies replaced": "rm -rf node_modules; mkdir -p node_modules/p; echo new > node_modules/p/i.js",
    "dependencies edited by rename": "sed -i s/x/y/ node_modules/p/i.js; mv target/big target/bigger",
    "dependencies chmod": "chmod 600 node_modules/p/i.js; chmod 700 node_modules/p",
}


def furnish(lab: Lab) -> None:
    """A workspace with a bit of everything."""
    lab.write("src/a.py", "content")
    lab.write("src/b.py", "content of b", 0o755)
    lab.write("src/deep/er/c.py", "c" * 5000, 0o600)
    lab.write("docs/readme.md", "read me", 0o444)
    lab.write(".hidden", "hidden")
    lab.write("naïve ☃.txt", "snow")
    lab.write("with space", "")
    lab.write("locked/in", "in")
    lab.write("hard/one", "hard")
    os.link(lab.workspace / "hard/one", lab.workspace / "hard/two")
    lab.write("equal/one", "equal", 0o644)
    lab.write("equal/two", "equal", 0o600, age=50)
    lab.write("node_modules/p/i.js", "x" * 100)
    lab.write("node_modules/p/bin/run", "y" * 100, 0o755)
    lab.write("node_modules/fresh.js", "z", age=-60)  # counts as just written however slow the machine is
    lab.write("target/big", b"\0" * 2_000_000)
    lab.write(os.fsdecode(b"caf\xe9"), "coffee")
    (lab.workspace / "empty").mkdir(mode=0o750)
    (lab.workspace / "link").symlink_to("src")
    (lab.workspace / "dangling").symlink_to("nowhere")
    (lab.workspace / "absolute").symlink_to("/etc/passwd")
    (lab.workspace / "locked").chmod(0o555)


@pytest.mark.parametrize("limits", [UndoLimits(), UndoLimits(small_copies=0)], ids=["copies", "links"])
@pytest.mark.parametrize("name", PLAIN)
def test_a_script_is_taken_back_and_done_again_bit_for_bit(tmp_path: Path, name: str, limits: UndoLimits) -> None:
    lab = Lab(tmp_path, limits)
    furnish(lab)
    first = lab.picture()
    changes = lab.call(PLAIN[name])
    second = lab.picture()
    assert changes
    assert first != second
    undone = lab.restore(changes)
    assert not undone.refused
    assert lab.picture() == first
    redone = lab.restore(changes, "after")
    assert not redone.refused
    assert lab.picture() == second
    assert not lab.restore(changes).refused
    assert lab.picture() == first
    assert list(undone.paths) == paths_of(changes)


@pytest.mark.parametrize("name", PLAIN)
def test_a_later_process_can_take_a_script_back(tmp_path: Path, name: str) -> None:
    lab = Lab(tmp_path)
    furnish(lab)
    first = lab.picture()
    changes = lab.call(PLAIN[name])
    lab.snapshots.close()
    lab.snapshots = lab.another()
    assert not lab.restore(changes).refused
    assert lab.picture() == first


def test_all_scripts_in_a_row_are_taken_back_at_once(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    furnish(lab)
    first, changes = lab.picture(), []
    scripts = ["append in place", "chmod", "touch", "link changed", "hard link changed", "new files", "swap"]
    for name in [*scripts, "folder to file", "rm -rf everything"]:
        changes += lab.call(PLAIN[name].replace("node_modules/fresh.js", "src/a.py"))
    last = lab.picture()
    assert not lab.restore(changes).refused
    assert lab.picture() == first
    assert not lab.restore(changes, "after").refused
    assert lab.picture() == last


@pytest.mark.long
def test_ten_thousand_files_come_back(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    for number in range(10_000):
        top = "node_modules" if number % 2 else "src"
        path = lab.workspace / top / f"{number % 97}" / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"file {number}\n")
    first = lab.picture()
    changes = lab.call("rm -rf src node_modules")
    assert len(changes) == 10_000 + 2 + 2 * 97
    assert not lab.restore(changes).refused
    assert lab.picture() == first
    assert not lab.restore(changes, "after").refused
    assert lab.picture() == {}


GIT = {
    "clean": "git clean -fdxq",
    "reset": "git reset -q --hard HEAD~1",
    "commit": "echo more >> tracked; git add -A; git commit -qm more",
    "checkout": "git checkout -q -b other HEAD~1",
    "gc": "git gc -q --prune=now",
    "init away": "rm -rf .git; git init -q",
    "amend and gc": "git commit -q --amend -m other; git reflog expire --expire=now --all; git gc -q --prune=now",
    "stash": "echo more >> tracked; git stash -q",
}


@pytest.mark.parametrize("name", GIT)
def test_what_git_does_is_taken_back_and_done_again(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "test")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "test@example.org")
    monkeypatch.setenv("HOME", str(tmp_path))
    lab = Lab(tmp_path)
    lab.do("git init -q; echo 1 > tracked; echo '*.log' > .gitignore; git add -A; git commit -qm one")
    lab.do(
        "echo 2 >> tracked; mkdir d; echo 3 > d/also; git add -A; git commit -qm two; touch x.log; mkdir new; >new/f"
    )
    first = lab.picture()
    changes = lab.call(GIT[name])
    second = lab.picture()
    assert not lab.restore(changes).refused
    assert lab.picture() == first
    fsck = subprocess.run(["git", "fsck", "--strict"], cwd=lab.workspace, capture_output=True, check=False)
    assert fsck.returncode == 0
    assert not lab.restore(changes, "after").refused
    assert lab.picture() == second
