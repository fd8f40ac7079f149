"""The page's files as they are sent: typed, compressed, asked for again only when they changed."""

from __future__ import annotations

import gzip
import re

import pytest
from serving_kit import lab

from lmagent.gateway.http import static
from lmagent.gateway.http.guard import POLICY


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with lab(tmp_path_factory.mktemp("page"), static.ROUTES) as made:
        yield made.anyone


def test_the_page_has_nothing_inline_and_nothing_from_elsewhere(running):
    page = running.ask("GET", "/")
    assert page.status == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"] == POLICY
    text = page.body.decode()
    assert not re.search(r"<script(?![^>]*\ssrc=)", text)
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", text)
    assert not re.search(r"(?:src|href)=\"(?!/static/|data:)", text)


def test_all_that_the_page_names_is_there(running):
    for path in re.findall(r'(?:src|href)="(/static/[^"]+)"', running.ask("GET", "/").body.decode()):
        assert running.ask("GET", path).status == 200, path
    assert running.ask("GET", "/favicon.ico").headers["content-type"] == "image/svg+xml"


def test_every_file_of_the_page_is_sent_as_what_it_is(running):
    sent = 0
    for file in static.WEB.rglob("*"):
        if file.is_file() and file.suffix in static.TYPES:
            name = file.relative_to(static.WEB).as_posix()
            answer = running.ask("GET", f"/static/{name}")
            assert answer.status == 200, name
            assert answer.body == static.find(name).content
            assert answer.headers["content-type"].startswith(static.TYPES[file.suffix].partition(";")[0])
            assert answer.headers["x-content-type-options"] == "nosniff"
            sent += 1
    assert sent > 10


def test_a_browser_that_has_it_is_told_so_and_one_that_can_gets_it_compressed(running):
    whole = running.ask("GET", "/static/app.js")
    packed = running.ask("GET", "/static/app.js", headers={"Accept-Encoding": "br, gzip;q=0.8"})
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == whole.body
    assert len(packed.body) < len(whole.body)
    assert (
        "content-encoding" not in running.ask("GET", "/static/app.js", headers={"Accept-Encoding": "gzip;q=0"}).headers
    )
    for known in (whole.headers["etag"], f'"x", W/{whole.headers["etag"]}'):
        again = running.ask("GET", "/static/app.js", headers={"If-None-Match": known})
        assert (again.status, again.body, again.headers["cache-control"]) == (304, b"", "no-cache")
    assert running.ask("GET", "/static/app.js", headers={"If-None-Match": '"other"'}).status == 200


def test_a_file_that_changed_is_sent_anew(running, tmp_path, monkeypatch):
    monkeypatch.setattr(static, "WEB", tmp_path)
    (tmp_path / "a.js").write_text("first")
    first = running.ask("GET", "/static/a.js")
    (tmp_path / "a.js").write_text("second one")
    second = running.ask("GET", "/static/a.js", headers={"If-None-Match": first.headers["etag"]})
    assert (first.body, second.status, second.body) == (b"first", 200, b"second one")


@pytest.mark.parametrize(
    "name", ["session/wire.d.ts", "nothing.js", "vendor", "vendor/", "", ".", "a.py", "x.js.bak", "VENDOR.LOCK"]
)
def test_what_is_no_file_of_the_page_is_not_there(running, tmp_path, name):
    answer = running.ask("GET", f"/static/{name}")
    assert (answer.status, answer.code) == (404, "not_found")
