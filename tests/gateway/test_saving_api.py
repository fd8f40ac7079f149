"""What the user writes into the workspace: sent or edited, guarded as the agent's own writes, and known to undo."""

from __future__ import annotations

import io
import os
import zipfile
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

import pytest
from gateway_kit import Answer, Running, shared, until

from lmagent.testing.script import call, say


def begin(running: Running) -> str:
    return running.ask("POST", "/api/sessions", {}).json["session"]


def send(running: Running, session: str, path: str, data: bytes, **query: str) -> Answer:
    more = "".join(f"&{name}={value}" for name, value in query.items())
    return running.ask("POST", f"/api/sessions/{session}/files?path={quote(path, safe='')}{more}", data)


def edit(running: Running, session: str, path: str, text: str, over: str = "", **more: object) -> Answer:
    return running.ask(
        "POST", f"/api/sessions/{session}/files/text", {"path": path, "text": text, "over": over, **more}
    )


def opened(running: Running, path: str) -> dict:
    return running.ask("GET", f"/api/files/edit?path={quote(path, safe='')}").json


def undo(running: Running, session: str) -> None:
    assert running.ask("POST", f"/api/sessions/{session}/commands", {"type": "undo"}).status == 202


def test_a_file_that_is_sent_is_in_the_workspace_and_undo_takes_it_back():
    data = bytes(range(256)) * 1000
    with shared() as running:
        session = begin(running)
        answer = send(running, session, "new/data.bin", data)
        assert (answer.status, answer.json["size"], answer.json["changed"]) == (201, len(data), True)
        assert (running.workspace / "new" / "data.bin").read_bytes() == data
        assert running.recorded("files.changed")[0]["by"] == "web"
        assert "created new/data.bin" in running.ask("GET", f"/api/sessions/{session}/diff").json["text"]
        undo(running, session)
        assert not (running.workspace / "new" / "data.bin").exists()


def test_a_name_that_is_taken_is_refused_until_the_user_wants_it_replaced():
    with shared() as running:
        (running.workspace / "a.txt").write_text("mine\n")
        session = begin(running)
        refused = send(running, session, "a.txt", b"theirs\n")
        assert (refused.status, refused.code) == (409, "exists")
        assert (running.workspace / "a.txt").read_text() == "mine\n"
        assert send(running, session, "a.txt", b"theirs\n", over="any").status == 201
        undo(running, session)
        assert (running.workspace / "a.txt").read_text() == "mine\n"


def test_an_edited_text_is_saved_only_over_what_the_user_has_seen():
    with shared() as running:
        path = running.workspace / "notes.md"
        path.write_text("one\n")
        session = begin(running)
        seen = opened(running, "notes.md")
        assert seen["text"] == "one\n"
        path.write_text("changed elsewhere\n")
        refused = edit(running, session, "notes.md", "two\n", seen["sha256"])
        assert (refused.status, refused.code) == (409, "changed")
        assert path.read_text() == "changed elsewhere\n"
        assert edit(running, session, "notes.md", "two\n", opened(running, "notes.md")["sha256"]).status == 201
        assert path.read_text() == "two\n"
        path.unlink()
        assert edit(running, session, "notes.md", "three\n", sha256(b"two\n").hexdigest()).code == "gone"
        assert edit(running, session, "notes.md", "three\n", "any").status == 201
        assert path.read_text() == "three\n"


def test_an_edit_keeps_the_encoding_the_line_ends_and_the_mode_of_its_file():
    with shared() as running:
        session = begin(running)
        for name, data in (("dos.txt", b"one\r\ntwo\r\n"), ("wide.txt", "\ufeffgrüße\r\n".encode("utf-16-le"))):
            path = running.workspace / name
            path.write_bytes(data)
            path.chmod(0o750)
            seen = opened(running, name)
            assert "\r" not in seen["text"]
            assert edit(running, session, name, seen["text"] + "more\n", seen["sha256"]).status == 201
            assert path.read_bytes() == data + ("more\r\n".encode("utf-16-le") if name == "wide.txt" else b"more\r\n")
            assert path.stat().st_mode & 0o777 == 0o750


def test_a_file_that_cannot_be_edited_without_harm_says_why():
    with shared() as running:
        for data, why in (
            (b"\x7fELF\0\0", "it is no text"),
            (b"a\nb\r\n", "different ways"),
            (b"a" * 1_000_001, "larger than 1,000,000"),
        ):
            (running.workspace / "odd").write_bytes(data)
            answer = running.ask("GET", "/api/files/edit?path=odd")
            assert (answer.status, answer.code) == (415, "not_editable")
            assert why in answer.json["error"]["message"]


FORBIDDEN = {
    "../out.txt": 403,
    "/etc/out.txt": 403,
    "to-outside/x": 403,
    "inside": 403,
    "linked/x": 403,
    ".git/config": 403,
    ".lmagent/x": 403,
    "folder": 400,
    "folder/": 400,
    "pipe": 400,
    "locked.txt": 403,
    "a.txt/x": 400,
    "x" * 300: 403,
    "a\0b": 400,
}


def test_what_the_agent_may_not_write_the_page_may_not_either(tmp_path):
    with shared() as running:
        root = running.workspace
        (root / "folder").mkdir()
        (root / "a.txt").write_text("a")
        (root / "locked.txt").write_text("locked")
        (root / "locked.txt").chmod(0o400)
        (root / "to-outside").symlink_to(tmp_path)
        (root / "linked").symlink_to("folder")
        (root / "inside").symlink_to("a.txt")
        os.mkfifo(root / "pipe")
        session = begin(running)
        for path, status in FORBIDDEN.items():
            answer = send(running, session, path, b"x", over="any")
            assert (path, answer.status) == (path, status), answer.body
            assert answer.json["error"]["message"]
        assert (root / "a.txt").read_text() == "a"
        assert not list((root / "folder").iterdir())
        assert not running.recorded("files.changed")


def test_rules_of_the_user_hold_and_a_file_with_secrets_needs_consent():
    with shared(LMAGENT_PERMISSION_DENY="write(docs/**)") as running:
        session = begin(running)
        denied = send(running, session, "docs/a.md", b"x", sure="true")
        assert (denied.status, denied.code) == (403, "denied"), denied.body
        asked = edit(running, session, ".env", "KEY=1\n")
        assert (asked.status, asked.code) == (409, "confirm")
        assert not (running.workspace / ".env").exists()
        assert edit(running, session, ".env", "KEY=1\n", sure=True).status == 201


def test_a_file_that_is_too_large_is_refused_before_it_is_read():
    with shared() as running:
        session = begin(running)
        head = f"POST /api/sessions/{session}/files?path=big HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        head += f"Authorization: {running.headers['Authorization']}\r\nContent-Length: {2 << 30}\r\n\r\n"
        answer = running.raw(head.encode())
        assert b" 413 " in answer.split(b"\r\n")[0]
        assert b"larger than 67,108,864 bytes" in answer
        assert running.ask("GET", "/api/files").json["largest"] == 64 << 20


def test_what_the_user_changes_while_the_agent_works_is_not_taken_back_with_the_agents_turn():
    script = [call("write", path="agent.txt", content="agent\n"), say("Written.")]
    with shared(script) as running:
        session = running.ask("POST", "/api/sessions", {"mode": "auto"}).json["session"]
        said = {"role": "user", "parts": [{"type": "text", "text": "Write it."}]}
        running.ask("POST", f"/api/sessions/{session}/commands", {"type": "submit", "message": said})
        until(lambda: running.recorded("turn.finished"))
        send(running, session, "mine.txt", b"mine\n")
        running.ask("POST", f"/api/sessions/{session}/commands", {"type": "undo", "turn": True})
        assert not (running.workspace / "mine.txt").exists()
        assert (running.workspace / "agent.txt").exists()
        running.ask("POST", f"/api/sessions/{session}/commands", {"type": "undo", "turn": True})
        assert not (running.workspace / "agent.txt").exists()


def test_a_folder_is_downloaded_as_a_zip_with_all_its_files_and_nothing_of_ours():
    with shared() as running:
        root: Path = running.workspace
        (root / "src" / "deep").mkdir(parents=True)
        (root / "src" / "a.py").write_text("a = 1\n")
        (root / "src" / "deep" / "b.bin").write_bytes(bytes(range(256)) * 5000)
        (root / "src" / "link").symlink_to("/etc/passwd")
        (root / "run.sh").write_text("true\n")
        (root / "run.sh").chmod(0o755)
        begin(running)
        answer = running.ask("GET", "/api/files/zip?path=src")
        assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''src.zip"
        packed = zipfile.ZipFile(io.BytesIO(answer.body))
        assert packed.testzip() is None
        assert sorted(packed.namelist()) == ["a.py", "deep/b.bin"]
        assert packed.read("deep/b.bin") == bytes(range(256)) * 5000
        whole = zipfile.ZipFile(io.BytesIO(running.ask("GET", "/api/files/zip").body))
        assert sorted(whole.namelist()) == ["run.sh", "src/a.py", "src/deep/b.bin"]
        assert whole.getinfo("run.sh").external_attr >> 16 & 0o777 == 0o755


def test_a_folder_beyond_the_bound_is_refused_with_a_sentence():
    with shared() as running:
        for name in ("a", "b"):
            with (running.workspace / name).open("wb") as stream:
                stream.truncate(1_100_000_000)
        answer = running.ask("GET", "/api/files/zip")
        assert (answer.status, answer.code) == (413, "too_large")
        assert "more than 2,000 MB" in answer.json["error"]["message"]


def test_a_file_that_cannot_be_read_is_named_in_the_zip():
    with shared() as running:
        (running.workspace / "a.txt").write_text("a")
        (running.workspace / "b.txt").write_text("b")
        if os.geteuid() == 0:
            pytest.skip("root reads everything")
        (running.workspace / "b.txt").chmod(0)
        packed = zipfile.ZipFile(io.BytesIO(running.ask("GET", "/api/files/zip").body))
        assert "b.txt" in packed.read("LEFT-OUT.txt").decode()


def test_a_page_of_the_workspace_is_shown_without_scripts_and_without_an_origin():
    with shared() as running:
        (running.workspace / "page.html").write_text("<script>alert(1)</script><p>hello")
        answer = running.ask("GET", "/api/files/page?path=page.html")
        assert answer.headers["content-type"].startswith("text/html")
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("sandbox; default-src 'none'")
        assert "script" not in policy
