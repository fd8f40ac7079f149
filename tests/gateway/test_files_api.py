"""Files over HTTP: what lies in the workspace, as text or as it is, and nothing that lies elsewhere may act."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from gateway_kit import Answer, Running, gateway
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from images_kit import png

SCRIPTS = {
    "page.html": b"<!doctype html><script>alert(1)</script>",
    "picture.svg": b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>',
    "code.js": b"alert(1)",
    "page.xhtml": b'<html xmlns="http://www.w3.org/1999/xhtml"><script>alert(1)</script></html>',
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with gateway(tmp_path_factory.mktemp("files")) as started:
        fill(started.workspace)
        yield started


def fill(root: Path) -> None:
    (root / "a.txt").write_text("héllo\n" * 3)
    (root / "folder" / "deep").mkdir(parents=True)
    (root / "folder" / "deep" / "needle.py").write_text("x = 1\n")
    (root / "outside").symlink_to("/etc")
    (root / "secret").symlink_to("/etc/passwd")
    (root / "inside").symlink_to("a.txt")
    os.mkfifo(root / "pipe")
    (root / "to-pipe").symlink_to("pipe")
    (root / "utf16.txt").write_bytes("\ufeffgrüße".encode("utf-16-le"))
    (root / "image.png").write_bytes(png(3, 2))
    (root / "program").write_bytes(b"\x7fELF\0\0\0\0" * 10)
    for name, content in SCRIPTS.items():
        (root / name).write_bytes(content)
    os.close(os.open(os.fsencode(root) + b"/caf\xe9.txt", os.O_CREAT | os.O_WRONLY))
    Path(os.fsdecode(os.fsencode(root) + b"/caf\xe9.txt")).write_text("odd name")
    (root / "caf\\xea.txt").write_text("a backslash")
    with (root / "huge.log").open("wb") as stream:
        stream.write(b"the beginning\n" * 1000)
        stream.truncate(2 << 30)


def ask(running: Running, route: str, path: str, **query: object) -> Answer:
    more = "".join(f"&{name}={value}" for name, value in query.items())
    return running.ask("GET", f"{route}?path={quote(path, safe='')}{more}")


def test_a_folder_is_listed_with_folders_first_and_nothing_of_ours(running: Running) -> None:
    running.ask("POST", "/api/sessions", {})  # makes .lmagent
    assert (running.workspace / ".lmagent").is_dir()
    entries = ask(running, "/api/files", "").json["entries"]
    names = [entry["name"] for entry in entries]
    assert names[0] == "folder"
    assert ".lmagent" not in names
    kinds = {entry["name"]: entry["kind"] for entry in entries}
    assert (kinds["folder"], kinds["a.txt"], kinds["outside"], kinds["pipe"]) == ("folder", "file", "link", "other")
    text = next(entry for entry in entries if entry["name"] == "a.txt")
    assert text["size"] == 21
    assert text["modified"] == pytest.approx((running.workspace / "a.txt").stat().st_mtime)
    deep = ask(running, "/api/files", "folder/deep").json
    assert (deep["path"], [entry["name"] for entry in deep["entries"]]) == ("folder/deep", ["needle.py"])


def test_a_folder_of_very_many_says_that_there_are_more(running: Running) -> None:
    many = running.workspace / "many"
    many.mkdir()
    for number in range(2005):
        (many / f"{number:04}").touch()
    listed = ask(running, "/api/files", "many").json
    assert (len(listed["entries"]), listed["more"]) == (2000, True)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("../", 403),
        ("folder/../../x", 403),
        ("/etc/passwd", 403),
        ("secret", 403),
        ("outside/passwd", 403),
        (".lmagent", 403),
        (".LMAGENT/sessions", 403),
        ("folder/.lmagent./x", 403),
        ("nothing", 404),
        ("a.txt/x", 400),
        ("folder", 400),
        ("pipe", 400),
        ("to-pipe", 400),
        ("a\0b", 403),
        ("x" * 5000, 403),
    ],
)
@pytest.mark.parametrize("route", ["/api/files/text", "/api/files/raw"])
def test_what_is_no_file_of_the_workspace_is_refused_with_a_reason(
    running: Running, route: str, path: str, status: int
) -> None:
    answer = ask(running, route, path)
    assert answer.status == status, answer.body
    assert answer.json["error"]["message"]
    assert b"root:" not in answer.body


def test_text_comes_in_parts_that_cut_no_character(running: Running) -> None:
    whole, at = "", 0
    while True:
        part = ask(running, "/api/files/text", "a.txt", offset=at, limit=4).json
        whole, at = whole + part["text"], part["next"]
        if not part["more"]:
            break
    assert whole == "héllo\n" * 3
    assert ask(running, "/api/files/text", "utf16.txt").json["text"] == "grüße"
    assert ask(running, "/api/files/text", "inside").json["text"] == "héllo\n" * 3


def test_behind_the_end_of_a_file_there_is_nothing_and_farther_than_files_go_is_an_error(running: Running) -> None:
    (running.workspace / "short.txt").write_text("short")
    part = ask(running, "/api/files/text", "short.txt", offset=2**53).json
    assert (part["text"], part["next"], part["size"], part["more"]) == ("", 2**53, 5, False)
    for offset in (2**53 + 1, 2**63 - 1, 10**30):
        assert ask(running, "/api/files/text", "short.txt", offset=offset).status == 400


def test_two_gigabytes_are_shown_by_their_beginning(running: Running) -> None:
    part = ask(running, "/api/files/text", "huge.log", limit=28).json
    assert part["text"] == "the beginning\n" * 2
    assert (part["size"], part["more"], part["kind"]) == (2 << 30, True, "text")


def test_what_is_no_text_is_said_to_be_none(running: Running) -> None:
    image = ask(running, "/api/files/text", "image.png").json
    assert (image["kind"], image["binary"], image["text"]) == ("image", True, "")
    assert ask(running, "/api/files/text", "program").json["kind"] == "binary"


def test_a_name_that_is_no_utf8_is_shown_and_opened(running: Running) -> None:
    names = [entry["name"] for entry in ask(running, "/api/files", "").json["entries"]]
    assert "caf\\xe9.txt" in names
    assert ask(running, "/api/files/text", "caf\\xe9.txt").json["text"] == "odd name"
    assert ask(running, "/api/files/text", "caf\\xea.txt").json["text"] == "a backslash"
    raw = ask(running, "/api/files/raw", "caf\\xe9.txt")
    assert (raw.status, raw.body) == (200, b"odd name")


@pytest.mark.parametrize("name", SCRIPTS)
def test_nothing_is_served_that_could_act_in_our_origin(running: Running, name: str) -> None:
    raw = ask(running, "/api/files/raw", name)
    assert raw.body == SCRIPTS[name]
    assert raw.headers["content-type"].startswith("text/plain")
    assert raw.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in raw.headers["content-security-policy"]


def test_images_come_as_such_and_the_rest_to_be_saved(running: Running) -> None:
    image = ask(running, "/api/files/raw", "image.png")
    assert (image.headers["content-type"], image.body) == ("image/png", png(3, 2))
    assert image.headers["content-disposition"].startswith("inline")
    program = ask(running, "/api/files/raw", "program")
    assert program.headers["content-type"] == "application/octet-stream"
    assert program.headers["content-disposition"].startswith("attachment")


def test_a_name_cannot_break_out_of_the_header(running: Running) -> None:
    name = 'evil"; filename=x.html\r\nX-Evil: 1 ü.txt'
    (running.workspace / name).write_text("x")
    raw = ask(running, "/api/files/raw", name)
    assert raw.status == 200
    assert "x-evil" not in raw.headers
    assert raw.headers["content-disposition"].count('"') == 2


def test_files_are_found_by_a_part_of_their_name(running: Running) -> None:
    def found(words: str) -> list[str]:
        return running.ask("GET", f"/api/find?q={quote(words)}&limit=5").json["paths"]

    assert found("@needle") == ["folder/deep/needle.py"]
    assert found("deep/nee") == ["folder/deep/needle.py"]
    assert found("ndlpy") == ["folder/deep/needle.py"]
    assert found("qqqqq") == []
    assert len(found("")) == 5


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.text(max_size=30) | st.sampled_from(["..", ".", "~", "%2e%2e", "..\\", "//", "a.txt/..", "./.lmagent"]))
def test_any_path_is_answered_and_none_leads_out(running: Running, path: str) -> None:
    for route in ("/api/files", "/api/files/text", "/api/files/raw"):
        answer = running.ask("GET", f"{route}?path={quote(path.encode('utf-8', 'replace'), safe='')}")
        assert answer.status in (200, 400, 403, 404), answer.body
        if answer.status != 200:
            assert json.loads(answer.body)["error"]["message"]
