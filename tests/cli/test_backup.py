"""`lmagent backup` and `lmagent restore`: everything comes back, no key leaves, and nothing is overwritten."""

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from lmagent.store.lock import hold

CONFIG = 'llm_model = "qwen"\nllm_api_key = "sk-of-the-server"\n'
SERVERS = {"mcpServers": {"notes": {"command": "notes", "env": {"NOTES_TOKEN": "sk-of-notes"}}}}


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def used(program):
    """A workspace with a session, a memory, settings and files that must not travel."""
    own, data, config = (
        program.workspace / ".lmagent",
        program.home / ".local/share/lmagent",
        program.home / ".config/lmagent",
    )
    put(own / "sessions/20260101_000000_aaaaaa/events.jsonl", '{"type":"session.created"}\n')
    put(own / "sessions/20260101_000000_aaaaaa/lock", "")
    put(own / "sessions/20260101_000000_aaaaaa/blobs/ab12", "the whole output")
    put(own / "memory/MEMORY.md", "- the staging server is heron\n")
    put(own / "mcp.json", json.dumps(SERVERS))
    put(own / "state.db", "made again")
    put(own / ".env", "LLM_API_KEY=sk-of-env\n")
    put(data / "memory/USER.md", "- prefers tabs\n")
    put(data / "web/token", "sk-of-the-page")
    put(data / "mcp/logins/a.json", "sk-of-a-login")
    put(config / "config.toml", CONFIG)
    put(config / ".env", "LLM_API_KEY=sk-of-env\n")
    return program


def backup(program) -> Path:
    done = program.run("backup", str(program.home / "b.tar.gz"))
    assert done.returncode == 0, done.stderr
    return program.home / "b.tar.gz"


def contents(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}


def test_a_backup_holds_sessions_memories_and_settings_and_no_key(used):
    path = backup(used)
    found = contents(path)
    assert sorted(found) == [
        "config/config.toml",
        "data/memory/USER.md",
        "manifest.json",
        "workspace/mcp.json",
        "workspace/memory/MEMORY.md",
        "workspace/sessions/20260101_000000_aaaaaa/blobs/ab12",
        "workspace/sessions/20260101_000000_aaaaaa/events.jsonl",
    ]
    assert found["config/config.toml"] == b'llm_model = "qwen"\n'
    assert b"NOTES_TOKEN" in found["workspace/mcp.json"]
    assert not [name for name, content in found.items() if b"sk-" in content]
    assert path.stat().st_mode & 0o777 == 0o600


def test_all_of_it_comes_back_on_another_machine(used, tmp_path: Path):
    path, before = backup(used), contents(backup(used))
    home, folder = tmp_path / "new-home", tmp_path / "new-work"
    home.mkdir()
    folder.mkdir()
    done = used.run("restore", str(path), "-w", str(folder), env={"HOME": str(home)})
    assert done.returncode == 0, done.stderr
    assert "6 files restored" in done.stdout
    assert (folder / ".lmagent/memory/MEMORY.md").read_bytes() == before["workspace/memory/MEMORY.md"]
    assert (home / ".local/share/lmagent/memory/USER.md").read_text() == "- prefers tabs\n"
    again = used.run("restore", str(path), "-w", str(folder), env={"HOME": str(home)})
    assert "0 files restored, 6 were the same" in again.stdout


def test_what_differs_is_kept_aside_and_only_if_that_was_asked_for(used):
    path, memory = backup(used), used.workspace / ".lmagent/memory/MEMORY.md"
    memory.write_text("- newer\n")
    refused = used.run("restore", str(path))
    assert (refused.returncode, memory.read_text()) == (1, "- newer\n")
    assert "workspace/memory/MEMORY.md" in refused.stderr
    assert "--replace" in refused.stderr
    done = used.run("restore", str(path), "--replace")
    assert done.returncode == 0, done.stderr
    assert memory.read_text() == "- the staging server is heron\n"
    (kept,) = used.workspace.glob(".lmagent/replaced/*/memory/MEMORY.md")
    assert kept.read_text() == "- newer\n"
    assert contents(backup(used)) == contents(path), "it is in no backup"
    assert "sk-of-the-server" in (used.home / ".config/lmagent/config.toml").read_text(), "settings were the same"


def test_only_one_part_is_restored_if_that_is_wanted(used, tmp_path: Path):
    path = backup(used)
    (tmp_path / "new-home").mkdir()
    used.run("restore", str(path), "--only", "user", env={"HOME": str(tmp_path / "new-home")})
    assert (tmp_path / "new-home/.config/lmagent/config.toml").exists()


def test_a_session_in_use_is_not_replaced(used):
    path, session = backup(used), used.workspace / ".lmagent/sessions/20260101_000000_aaaaaa"
    (session / "events.jsonl").write_text("newer\n")
    lock = hold(session / "lock", session.name)
    try:
        done = used.run("restore", str(path), "--replace")
    finally:
        lock.release()
    assert done.returncode == 1
    assert "is in use; nothing was restored" in done.stderr
    assert (session / "events.jsonl").read_text() == "newer\n"


def test_settings_whose_keys_cannot_be_found_are_left_out(used):
    (used.workspace / ".lmagent/mcp.json").write_text('{"mcpServers": {"a": {"env": {"T": "sk-1"}},} // comment')
    done = used.run("backup", str(used.home / "b.tar.gz"))
    assert done.returncode == 0
    assert "left out" in done.stderr
    assert "mcp.json" in done.stderr
    assert "workspace/mcp.json" not in contents(used.home / "b.tar.gz")


def test_keys_in_other_shapes_and_places_are_no_keys_of_a_backup_either(used):
    own = used.workspace / ".lmagent"
    odd = {"env": ["T=sk-list"], "headers": "Bearer sk-text", "oauth": {"client": {"secret": "sk-inner"}}}
    put(own / "mcp.json", json.dumps({"servers": {"a": {"command": "a", **odd}}}))
    put(own / "skills/a/.env", "K=sk-of-a-skill\n")
    assert not [name for name, content in contents(backup(used)).items() if b"sk-" in content or b"Bearer" in content]


def test_a_file_whose_name_cannot_be_shown_is_left_out_and_named(used):
    put(used.workspace / ".lmagent/memory" / os.fsdecode(b"\xff.md"), "x")
    put(used.workspace / ".lmagent/memory/\x1b[31m.md", "x")
    done = used.run("backup", str(used.home / "b.tar.gz"))
    assert done.returncode == 0
    assert done.stderr.count("left out: ") == 2
    assert "\x1b" not in done.stderr
    assert "workspace/memory/MEMORY.md" in contents(used.home / "b.tar.gz")


def test_a_name_that_is_too_long_here_is_said_in_one_line(used):
    with tarfile.open(used.home / "b.tar.gz", "w:gz") as archive:
        entry, digest = f"workspace/memory/{'x' * 300}", hashlib.sha256(b"").hexdigest()
        listed = json.dumps({"lmagent_backup": 1, "made": 0, "files": {entry: digest}}).encode()
        for name, content in ((entry, b""), ("manifest.json", listed)):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    done = used.run("restore", str(used.home / "b.tar.gz"))
    assert done.returncode == 1
    assert "has no place here: File name too long" in done.stderr


@pytest.mark.long
def test_a_restore_that_is_killed_is_continued_by_the_same_command(used):
    memory = used.workspace / ".lmagent/memory"
    for number in range(400):
        put(memory / f"{number}.md", f"old {number}\n")
    path = backup(used)
    for number in range(400):
        put(memory / f"{number}.md", f"new {number}\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "lmagent", "restore", "--replace", str(path)],
        cwd=used.workspace,
        env={**os.environ, "HOME": str(used.home)},
        stdout=subprocess.DEVNULL,
    )
    while not [*used.workspace.glob(".lmagent/replaced/*/memory/399.md")] and process.poll() is None:
        time.sleep(0.001)
    process.kill()
    assert process.wait() == -9, "it was killed before its end"
    done = used.run("restore", str(path), "--replace")
    assert done.returncode == 0, done.stderr
    assert {(memory / f"{number}.md").read_text() for number in range(400)} == {f"old {at}\n" for at in range(400)}
    kept = used.workspace.glob(".lmagent/replaced/*/memory/*.md")
    assert {file.read_text() for file in kept} == {f"new {at}\n" for at in range(400)}


STRANGE = {
    "outside": ["workspace/../../evil"],
    "a list of trust": ["data/trusted.json"],
    "keys": ["config/.env"],
    "keys of a skill": ["workspace/skills/a/.env"],
    "a token": ["data/web/token"],
    "a name that a terminal obeys": ["workspace/a\x1b[2Jb"],
}


def damaged(path: Path, how: str) -> Path:
    content = path.read_bytes()
    if how == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif how == "no archive":
        path.write_bytes(b"hello")
    else:
        members = contents(path)
        members |= {"evil": {how: b"x"}, "changed": {"workspace/memory/MEMORY.md": b"- other\n"}}.get(how, {})
        members |= dict.fromkeys(STRANGE.get(how, ()), b"x")
        with tarfile.open(path, "w:gz") as archive:
            for name, data in members.items():
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
            if how == "link":
                link = tarfile.TarInfo("workspace/link")
                link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
                archive.addfile(link)
    return path


@pytest.mark.parametrize("how", ["cut", "no archive", "changed", "link", *STRANGE])
def test_a_backup_that_is_not_whole_restores_nothing(used, tmp_path: Path, how):
    path = damaged(backup(used), how)
    (tmp_path / "new-work").mkdir()
    done = used.run("restore", str(path), "-w", str(tmp_path / "new-work"))
    assert done.returncode == 1
    assert "cannot be restored" in done.stderr
    assert not [*(tmp_path / "new-work").rglob("*.md")]
    assert not (tmp_path / "evil").exists()


def test_nothing_is_written_through_a_link(used, tmp_path: Path):
    path, elsewhere = backup(used), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "new-work/.lmagent").mkdir(parents=True)
    (tmp_path / "new-work/.lmagent/memory").symlink_to(elsewhere)
    done = used.run("restore", str(path), "-w", str(tmp_path / "new-work"))
    assert done.returncode == 1
    assert "is a link; nothing was restored" in done.stderr
    assert not [*elsewhere.iterdir()]
