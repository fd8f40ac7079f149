"""Pictures: one judgement of what an image is, for tools, files and uploads."""

from __future__ import annotations

import struct

import pytest

from lmagent.core.errors import ToolError
from lmagent.core.tool import ToolContext
from lmagent.tools.pictures import Picture, media_type_of, picture_of
from lmagent.tools.textfile import is_binary
from lmagent.tools.vision import load_image

PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 3, 2) + b"\x08\x02\0\0\0\0\0\0\0"
GIF = b"GIF89a" + struct.pack("<HH", 3, 2) + b"\0\0\0," + struct.pack("<HHHHB", 0, 0, 3, 2, 0) + b"\x02\x02D\x01\0;"
JPEG = b"\xff\xd8\xff\xc0" + struct.pack(">HBHHB", 17, 8, 2, 3, 3) + b"\0" * 9 + b"\xff\xd9"
WEBP = b"RIFF" + struct.pack("<I", 22) + b"WEBPVP8X" + struct.pack("<I", 10) + b"\0" * 4 + b"\x02\0\0\x01\0\0"
IMAGES = {"image/png": PNG, "image/gif": GIF, "image/jpeg": JPEG, "image/webp": WEBP}


@pytest.mark.parametrize(("kind", "data"), IMAGES.items())
def test_every_reader_of_images_agrees_on_what_one_is(tmp_path, kind, data):
    assert picture_of(data) == Picture(kind, 3, 2)
    assert is_binary(data)
    (tmp_path / "a").write_bytes(data)
    assert load_image(ToolContext("s", "c", tmp_path, {}, lambda _: None), "a").media_type == kind


@pytest.mark.parametrize(
    "text", [b"GIF89a was the format of its time", b"BM is short for bench mark", b"RIFF and WEBP"]
)
def test_a_text_that_begins_like_an_image_is_text(text):
    assert not is_binary(text)
    assert picture_of(text) is None


@pytest.mark.parametrize(("kind", "data"), IMAGES.items())
def test_a_file_that_only_begins_like_an_image_is_none(tmp_path, kind, data):
    begun = data[: 10 if kind == "image/jpeg" else 18]
    assert media_type_of(begun) == kind
    assert picture_of(begun) is None
    (tmp_path / "a").write_bytes(begun)
    with pytest.raises(ToolError, match="is no image"):
        load_image(ToolContext("s", "c", tmp_path, {}, lambda _: None), "a")
