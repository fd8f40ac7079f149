"""Uploads: only what is an image by its own bytes and size is kept, and a message takes it along."""

from __future__ import annotations

import base64
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from gateway_kit import Running, gateway
from hypothesis import given
from hypothesis import strategies as st
from images_kit import gif, jpeg, png, webp

from lmagent.core.messages import Image, Message, Part, Text
from lmagent.gateway.api.uploads import taken
from lmagent.gateway.http.errors import Refusal
from lmagent.tools.pictures import MOST_PIECES, Picture, picture_of

IMAGES = {
    "png": (png(7, 5), "image/png"),
    "gif": (gif(7, 5), "image/gif"),
    "gif behind a comment": (gif(7, 5, before=b"!\xfe\x03abc\x02de\0!\xff\0"), "image/gif"),
    "jpeg": (jpeg(7, 5), "image/jpeg"),
    "jpeg behind a thumbnail": (jpeg(7, 5, before=3), "image/jpeg"),
    "webp, extended": (webp(b"VP8X", 7, 5), "image/webp"),
    "webp, lossless": (webp(b"VP8L", 7, 5), "image/webp"),
    "webp, lossy": (webp(b"VP8 ", 7, 5), "image/webp"),
}
NO_IMAGES = {
    "svg": b'<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>',
    "html": b"<html>",
    "nothing": b"",
    "a gif without a frame": b"GIF89a\x07\0\x05\0\0\0\0<script>alert(1)</script>",
    "a torn png": png(7, 5)[:20],
    "a png without a size": png(0, 5),
    "a jpeg without a frame": b"\xff\xd8\xff\xe0\0\x04ab\xff\xd9",
    "a jpeg that goes round": b"\xff\xd8" + b"\xff\xe0\0\0" * 1000,
    "bmp": b"BM" + b"\0" * 60,
}
NO_END = {
    "a jpeg of nothing but filling": b"\xff\xd8" + b"\xff" * 19_999_998,
    "a jpeg of empty segments": b"\xff\xd8" + b"\xff\xe0\0\x02" * 4_999_999,
    "a jpeg of lonely markers": b"\xff\xd8" + b"\xff\x01" * 9_999_999,
    "a gif of empty extensions": b"GIF89a" + b"\0" * 7 + b"!\xfe\0" * 6_666_662,
    "a gif of tiny comments": b"GIF89a" + b"\0" * 7 + b"!\xfe" + b"\x01a" * 9_999_992,
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with gateway(tmp_path_factory.mktemp("uploads")) as started:
        yield started


def folder(running: Running) -> Path:
    return running.folder / "data" / "web" / "uploads"


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_is_kept_under_an_id_that_nobody_guesses(running: Running, name: str) -> None:
    content, media_type = IMAGES[name]
    answer = running.ask("POST", "/api/uploads", content, {"Content-Type": "text/html"})
    assert answer.status == 201, answer.body
    assert len(answer.json["id"]) == 32
    assert answer.json == {
        "id": answer.json["id"],
        "media_type": media_type,
        "width": 7,
        "height": 5,
        "size": len(content),
    }
    kept = folder(running) / answer.json["id"]
    assert kept.read_bytes() == content
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder(running).stat().st_mode) == 0o700


@pytest.mark.parametrize("name", NO_IMAGES)
def test_what_is_no_image_is_refused_whatever_it_is_called(running: Running, name: str) -> None:
    answer = running.ask("POST", "/api/uploads", NO_IMAGES[name], {"Content-Type": "image/png"})
    assert (answer.status, answer.code) == (415, "no_image")


def test_an_image_that_unpacks_to_too_much_is_refused(running: Running) -> None:
    claimed = png(1, 1)[:16] + (50_000).to_bytes(4) * 2 + png(1, 1)[24:]
    hidden = gif(65_535, 65_535, screen=(1, 1))
    for bomb in (claimed, gif(65_535, 65_535), hidden, jpeg(10_000, 5_001), webp(b"VP8X", 1 << 24, 9)):
        answer = running.ask("POST", "/api/uploads", bomb)
        assert (answer.status, answer.code) == (413, "too_many_pixels")
    assert running.ask("POST", "/api/uploads", jpeg(10_000, 5_000)).status == 201


@pytest.mark.parametrize("name", NO_END)
def test_a_file_of_endless_pieces_is_given_up_on_before_its_end(name: str) -> None:
    looked_at = _Counting(NO_END[name])
    assert picture_of(looked_at) is None
    assert looked_at.looks < 10 * MOST_PIECES


class _Counting(bytes):
    """Bytes that count how often they are looked at."""

    looks = 0

    def __getitem__(self, key: Any) -> Any:
        self.looks += 1
        return super().__getitem__(key)


def test_a_file_that_is_too_large_is_refused_and_leaves_nothing(running: Running) -> None:
    before = len(list(folder(running).iterdir())) if folder(running).exists() else 0
    answer = running.ask("POST", "/api/uploads", png(1, 1) + b"\0" * 20_000_000)
    assert answer.status == 413
    assert running.ask("POST", "/api/uploads", png(1, 1)).status == 201
    assert len(list(folder(running).iterdir())) == before + 1


def test_uploads_need_credentials(running: Running) -> None:
    assert running.anyone.ask("POST", "/api/uploads", png(1, 1)).status == 401
    page = running.page()
    assert page.ask("POST", "/api/uploads", png(1, 1), {"X-LMAgent-Request": ""}).status == 403
    assert page.ask("POST", "/api/uploads", png(1, 1)).status == 201


def test_what_no_message_took_is_gone_after_a_day(running: Running) -> None:
    old = running.ask("POST", "/api/uploads", png(1, 1)).json["id"]
    yesterday = time.time() - 86_500
    os.utime(folder(running) / old, (yesterday, yesterday))
    running.ask("POST", "/api/uploads", png(1, 1))
    assert not (folder(running) / old).exists()


def _taken(running: Running, *parts: Part) -> Message:
    return anyio.run(taken, folder(running), Message("user", parts))


def test_a_message_takes_its_uploads_along(running: Running) -> None:
    id = running.ask("POST", "/api/uploads", png(2, 2)).json["id"]
    message = _taken(running, Text("look"), Image("image/webp", f"upload:{id}"))
    assert message.parts == (Text("look"), Image("image/png", base64.b64encode(png(2, 2)).decode()))
    assert _taken(running, *message.parts) == message


@pytest.mark.parametrize("data", ["upload:" + "0" * 32, "upload:../../x", "upload:", "no base64!", "aGVsbG8="])
def test_a_message_without_its_image_is_refused(running: Running, data: str) -> None:
    with pytest.raises(Refusal) as refused:
        _taken(running, Image("image/png", data))
    assert refused.value.status in (400, 415)


def test_what_waits_in_the_folder_is_judged_once_more(running: Running) -> None:
    id = running.ask("POST", "/api/uploads", png(2, 2)).json["id"]
    (folder(running) / id).write_bytes(b"<svg/>")
    with pytest.raises(Refusal):
        _taken(running, Image("image/png", f"upload:{id}"))
    (folder(running) / id).unlink()
    os.mkfifo(folder(running) / id)
    with pytest.raises(Refusal):
        _taken(running, Image("image/png", f"upload:{id}"))


@given(data=st.binary(max_size=80), start=st.sampled_from([content[:12] for content, _ in IMAGES.values()]))
def test_no_bytes_are_too_odd_to_be_judged(data: bytes, start: bytes) -> None:
    found = picture_of(start + data)
    assert found is None or (isinstance(found, Picture) and found.width > 0 and found.height > 0)


@given(width=st.integers(1, 16_383), height=st.integers(1, 16_383))
def test_the_size_is_read_as_it_was_written(width: int, height: int) -> None:
    for content in (gif(width, height), jpeg(width, height), *(webp(k, width, height) for k in (b"VP8X", b"VP8L"))):
        found = picture_of(content)
        assert found is not None
        assert (found.width, found.height) == (width, height)
