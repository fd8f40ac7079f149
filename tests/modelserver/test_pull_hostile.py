"""Hubs that lead elsewhere, never come to an end, or answer what is no answer: told in one go, and nothing is left."""

from __future__ import annotations

import pytest
from fakehub import FakeHub
from test_pull_models import CONTENT, FILE, HOME, Seen, left, pull, refused

from lmagent.modelserver.library.download import ATTEMPTS

PLACES = ["file:///etc/passwd", "http://[bad", "http://h:99999999/", "http://\x1b[31mx/", "gopher://x/y"]


@pytest.mark.parametrize("place", PLACES)
def test_a_redirect_to_what_is_no_address_is_refused_at_once(tmp_path, place):
    seen = Seen()
    with FakeHub({FILE: CONTENT}, refuse_files=[(302, {"Location": place}, b"")]) as hub:
        assert "redirects to" in refused(hub, tmp_path / "models", seen=seen).message
    assert seen.pauses == []
    assert left(tmp_path / "models") == []


@pytest.mark.parametrize("place", PLACES[:3])
def test_a_list_of_files_that_goes_on_nowhere_is_refused(tmp_path, place):
    with FakeHub({}, refuse=(200, {"Link": f'<{place}>; rel="next"'}, b"[]")) as hub:
        assert "redirects to" in refused(hub, tmp_path / "models").message
    assert left(tmp_path / "models") == []


def test_redirects_in_a_circle_are_not_gone_round_again(tmp_path):
    seen = Seen()
    with FakeHub({FILE: CONTENT}, loop=True) as hub:
        assert "without end" in refused(hub, tmp_path / "models", seen=seen).message
    assert seen.pauses == []
    assert left(tmp_path / "models") == []


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((403, {"X-Error-Code": "GatedRepo"}, b"{}"), "agreed to its terms"),
        ((200, {"Content-Type": "text/html; charset=utf-8"}, b"<html>log in"), "something else came in the place of"),
        ((200, {}, b"<html>log in"), "12 bytes of"),
    ],
)
def test_an_answer_in_the_place_of_the_file_leaves_nothing_behind(tmp_path, answer, words):
    with FakeHub({FILE: CONTENT}, refuse_files=[answer]) as hub:
        assert words in refused(hub, tmp_path / "models").message
    assert left(tmp_path / "models") == []


def test_a_web_page_in_the_place_of_the_rest_keeps_the_part(tmp_path):
    with FakeHub({FILE: CONTENT}, cuts=[100_000] * ATTEMPTS) as hub:
        refused(hub, tmp_path)
        hub.refuse_files = [(200, {"Content-Type": "text/html"}, b"<html>log in")]
        refused(hub, tmp_path)
        assert f"{FILE}.part" in left(tmp_path / HOME)
        hub.cuts = []
        assert pull(hub, tmp_path).paths[0].read_bytes() == CONTENT


def test_a_place_of_thousands_of_digits_is_no_place(tmp_path):
    place = (206, {"Content-Range": "bytes " + "9" * 5000 + "-1/2"}, b"")
    with FakeHub({FILE: CONTENT}, refuse_files=[place]) as hub:
        assert pull(hub, tmp_path).fetched


def test_a_server_that_begins_anew_each_time_is_given_up(tmp_path):
    seen = Seen()
    with FakeHub({FILE: CONTENT}, ranges=False, cuts=[100_000, 200_000] * 20) as hub:
        assert "are kept" in refused(hub, tmp_path, seen=seen).message
    assert len(seen.pauses) < 2 * ATTEMPTS


def test_a_folder_in_the_place_of_the_file_is_told(tmp_path):
    (tmp_path / HOME / FILE).mkdir(parents=True)
    with FakeHub({FILE: CONTENT}) as hub:
        assert "cannot be written" in refused(hub, tmp_path).message


def test_a_file_so_deep_that_it_would_never_be_listed_is_refused_before(tmp_path):
    with FakeHub({"a/b/c/d/e/f/g/m.gguf": CONTENT}) as hub:
        assert "too deep" in refused(hub, tmp_path / "models").message
        assert hub.store.requests == []
    with FakeHub({"a/b/c/d/e/f/m.gguf": CONTENT}) as hub:
        assert pull(hub, tmp_path / "models").fetched


@pytest.mark.parametrize("endpoint", ["http://h:99999999", "http://[x", "http://:80"])
def test_an_endpoint_that_only_looks_like_an_address_is_refused(tmp_path, endpoint):
    error = refused({"HF_ENDPOINT": endpoint, "NO_PROXY": "*"}, tmp_path / "models")
    assert "is no address" in error.message
