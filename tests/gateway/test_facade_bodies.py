"""Large requests to the facade: a photo is served, a novel is refused, and nobody else waits meanwhile."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from gateway_kit import Answer, Running, gateway
from hypothesis import given
from hypothesis import strategies as st
from images_kit import jpeg

from lmagent.core.messages import Image, Text
from lmagent.gateway.facade_text import MAX_IMAGES, MAX_TEXT, read_completion
from lmagent.testing.script import say

AGENT = "agent/lmagent"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with gateway(tmp_path_factory.mktemp("facade"), lambda _: say("Seen.")) as started:
        yield started


def photo(size: int) -> str:
    """A photo of so many bytes, as a data: URL."""
    data = jpeg(4000, 3000)
    return f"data:image/jpeg;base64,{base64.b64encode(data + bytes(size - len(data))).decode()}"


def looking(*urls: str, text: str = "look") -> dict[str, Any]:
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return {"model": AGENT, "messages": [{"role": "user", "content": [{"type": "text", "text": text}, *images]}]}


def complete(running: Running, body: Any) -> Answer:
    return running.ask("POST", "/v1/chat/completions", body, timeout=120)


def too_large(answer: Answer) -> bool:
    error = answer.json["error"]
    assert (answer.status, error["code"], error["type"]) == (413, "too_large", "invalid_request_error")
    assert error["message"]
    return True


def test_what_openai_lets_be_null_may_be_null(running: Running) -> None:
    nothing = ("stream", "stream_options", "n", "tools", "tool_choice", "response_format", "logprobs", "temperature")
    body = {"model": "agent/lmagent", "messages": [{"role": "user", "content": "hi"}], **dict.fromkeys(nothing)}
    assert running.ask("POST", "/v1/chat/completions", body).json["object"] == "chat.completion"


def test_two_megabytes_of_text_are_too_large(running: Running) -> None:
    body = {"model": AGENT, "messages": [{"role": "user", "content": "x" * 2_000_000}]}
    assert too_large(complete(running, body))
    assert too_large(complete(running, {**body, "messages": [{"role": "user", "content": "x" * MAX_TEXT}]}))


def test_text_that_looks_like_an_image_is_text(running: Running) -> None:
    body = {"model": AGENT, "messages": [{"role": "user", "content": photo(1_500_000)}]}
    assert too_large(complete(running, body))
    assert too_large(complete(running, looking(text=photo(1_500_000))))


def test_a_photo_of_five_megabytes_is_served(running: Running) -> None:
    url = photo(5_000_000)
    answer = complete(running, looking(url, text="x" * 900_000))
    assert (answer.status, answer.json["choices"][0]["message"]["content"]) == (200, "Seen.")
    session = answer.headers["x-session"]
    log = running.workspace / ".lmagent" / "sessions" / session / "events.jsonl"
    (said,) = [event for event in map(json.loads, log.read_text().splitlines()) if event["type"] == "input.received"]
    image = running.ask("GET", f"/api/sessions/{session}/images/{said['id']}/0")
    assert image.body == base64.b64decode(url.partition(",")[2])


def test_slashes_that_are_written_as_two_characters_are_one(running: Running) -> None:
    data = b"\xff" * 30_000 + bytes(4_000_000)
    url = "data:image/jpeg;base64," + base64.b64encode(jpeg(9, 9) + data).decode()
    body = json.dumps(looking(url)).replace("/", "\\/").encode()
    assert complete(running, body).status == 200


@pytest.mark.parametrize("size", [40_000, 5_000_000])
def test_so_are_those_that_are_written_by_their_number(running: Running, size: int) -> None:
    data = jpeg(9, 9) + b"\xfb\xef\xbe\xff" * (size // 40) + bytes(size - size // 10)
    url = "data:image/jpeg;base64," + base64.b64encode(data).decode()
    body = json.dumps(looking(url)).replace("+", "\\u002B").replace("/", "\\u002f").replace("=", "\\u003D")
    answer = complete(running, body.encode())
    assert answer.status == 200, answer.body
    log = running.workspace / ".lmagent" / "sessions" / answer.headers["x-session"] / "events.jsonl"
    (said,) = [event for event in map(json.loads, log.read_text().splitlines()) if event["type"] == "input.received"]
    image = running.ask("GET", f"/api/sessions/{answer.headers['x-session']}/images/{said['id']}/0")
    assert image.body == data


def test_an_image_may_have_what_an_upload_may_and_all_together_a_sum(running: Running) -> None:
    assert too_large(complete(running, looking(photo(20_000_003))))
    half = photo(MAX_IMAGES // 8 * 3 + 3)
    assert too_large(complete(running, looking(half, half)))
    assert too_large(complete(running, json.dumps(looking()).encode() + b" " * 45_000_000))
    assert too_large(complete(running, {**looking(), "stop": [{}] * 400_000 + ["x"] * 1_000_000}))


@pytest.mark.long
def test_nobody_waits_while_large_requests_are_taken_in(running: Running) -> None:
    url, came = photo(20_000_000), []
    threads = [threading.Thread(target=lambda: came.append(complete(running, looking(url)).status)) for _ in range(3)]
    for thread in threads:
        thread.start()
    asked = 0
    while any(thread.is_alive() for thread in threads):
        assert running.ask("GET", "/api/me", timeout=5).status == 200
        asked += 1
        time.sleep(0.01)
    assert came == [200] * 3
    assert asked > 3


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"a": "data:x;base64,AA',
        '{"a": ";base64,AA\\',
        '{"a": ";base64,\x01"}',
        '{"a": ";base64,\\x"}',
        ";base64,",
    ],
)
def test_a_body_that_is_no_json_is_refused(running: Running, text: str) -> None:
    answer = complete(running, text.encode())
    assert (answer.status, answer.code) == (400, "invalid")
    assert complete(running, b'{"model": "\xff;base64,\xff"}').status == 400


words = st.lists(
    st.sampled_from([";base64,", "data:", "image/png", '"', "\\", "/", "AAAA", "=", "é", "\n", "0:0;", "}", "\u2028"])
    | st.text(max_size=5),
    max_size=12,
).map("".join)


@given(
    texts=st.lists(words, min_size=1, max_size=4),
    images=st.lists(st.binary(max_size=40), max_size=3),
    is_ascii=st.booleans(),
    data=st.data(),
)
def test_texts_and_images_are_read_as_they_were_sent(texts: list[str], images: list[bytes], is_ascii: bool, data: Any):
    coded = [base64.b64encode(image).decode() for image in images]
    parts = [{"type": "text", "text": text} for text in texts]
    urls = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{one}"}} for one in coded]
    said = [{"role": "system", "content": texts[0]}, {"role": "user", "content": [*parts, *urls]}]
    text = json.dumps({"model": "m", "messages": said}, ensure_ascii=is_ascii)
    try:
        text = text.replace("+", data.draw(st.sampled_from(["+", "\\u002B"])))
        body = text.replace("/", data.draw(st.sampled_from(["/", "\\/", "\\u002f"]))).encode()
    except UnicodeEncodeError:
        return
    _, found = read_completion(body)
    assert found[0].parts == (Text(texts[0]),)
    assert found[1].parts == (*map(Text, texts), *(Image("", one) for one in coded))
