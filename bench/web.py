"""The page in Chromium: what it weighs, a long answer streamed, a long conversation shown and scrolled back.

    python bench/web.py [--quick]

The page's files are served as the gateway serves them; the view, the older blocks and the stream of one long answer
come from here, at a pace that no model has, so that the page alone is measured. The main thread's tasks are traced, in
processor time; script time is Chromium's own, frames are counted in the page. The last line is the figures as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from lmagent.core import events as ev
from lmagent.core.messages import Message, Text, ToolCall, user
from lmagent.core.view import View, reduce
from lmagent.gateway.http.static import WEB, find

JS_KB, ONE_KB, SCRIPT_S, BUSY_S, FRAME_MS, HISTORY_S, CODE_MS = 75.0, 100.0, 3.0, 5.0, 50.0, 0.25, 100.0
"""Bars: gzip of what a conversation loads, and of all modules as one file; script and main thread for 5,000 chunks of
an answer, the latter also of one that is a single paragraph; 95th percentile; CPU until 1,000 messages can be read; CPU
of the longest task of colouring code."""

LATE = ("highlight.js", "katex.js", "mermaid.js", "formula.js", "diagram.js", "drawing.js", "worker.js")
"""Modules that are no part of the page as one file: the highlighter, maths and diagrams, which are fetched when an
answer has some, and the service worker, which runs beside the page."""

TANGLED = {
    "csharp": "unsigned ",
    "markdown": "[ ",
    "typescript": "<a>\n",
    "shell": "$a\n",
    "python": "x = f(1)  # one\n",
}
"""What keeps the highlighter busy, by language: each but the last takes it the square of its length. Found by trying
pieces of all languages; in one go, 50 kB of the first take 5 s."""

RATE = 300
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-headless-shell") or ""

PARAGRAPH = """## Part {n}

The answer goes on with **part {n}**, which has `code`, a [link](https://example.org/{n}) and words enough to fill a
line or two of a usual window, as answers do.

- first of {n}
- second, with *stress*

| file | lines |
|---|---:|
| `src/part_{n}.py` | {n} |

```python
def part_{n}(values):
    return sum(value * {n} for value in values)
```

"""


def answer(length: int) -> str:
    """A long answer in Markdown, of about so many characters."""
    text = ""
    number = 0
    while len(text) < length:
        number += 1
        text += PARAGRAPH.format(n=number)
    return text + "The very end."


def paragraph(length: int) -> str:
    """An answer of one paragraph that does not end, with the marks that answers have."""
    words = "The answer goes on with **part {n}**, has `code_{n}` and a [link](https://example.org/{n}), and no end. "
    text = ""
    number = 0
    while len(text) < length:
        number += 1
        text += words.format(n=number)
    return text + "The very end."


def history() -> View:
    """A conversation of 1,000 messages: 250 questions, 500 answers, 250 calls and their results."""
    view = View()
    for number in range(250):
        said = Message("assistant", (Text(f"Looking at **{number}**."), ToolCall(f"c{number}", "read", "{}")))
        for event in (
            ev.InputReceived(id=f"i{number}", message=user(f"Question {number}?"), delivery="submit"),
            ev.MessageAdded(message=user(f"Question {number}?"), origin="input", input=f"i{number}"),
            ev.MessageAdded(message=said, origin="model"),
            ev.ToolFinished(call_id=f"c{number}", tool="read", status="ok", content="x = 1\n" * 150, duration=0.2),
            ev.MessageAdded(message=Message("assistant", (Text(PARAGRAPH.format(n=number)),)), origin="model"),
        ):
            view = reduce(view, event)
    return view


def code_of(session: str) -> View:
    """A conversation with one block of code: 50 kB of what the session is called after; empty for other names."""
    unit = TANGLED.get(session)
    if unit is None:
        return View()
    code = (unit * (50_000 // len(unit)))[:49_900]
    said = Message("assistant", (Text(f"```{session}\n{code}\n```\n"),))
    return reduce(View(), ev.MessageAdded(message=said, origin="model"))


class Gateway:
    """What the page asks of a gateway: `stream` and `paragraph` are empty and are told much, `history` is long."""

    def __init__(self, chunks: int) -> None:
        self.texts = {"stream": answer(chunks * 4), "paragraph": paragraph(chunks * 4)}
        self.count = chunks
        self.history = history()

    def app(self) -> Starlette:
        """The application."""
        empty = {"caller": "page", "version": "", "workspace": "", "model": "m", "mode": "normal", "endpoint": ""}
        fixed: dict[str, Any] = {
            "/api/me": {**empty, "models_url": False},
            "/api/models": {"models": [], "current": "m", "provider": "", "endpoint": ""},
            "/api/slash": {"commands": []},
            "/api/sessions": {"sessions": []},
            "/api/setup": {"complete": True},
        }
        routes = [Route(path, _always(value)) for path, value in fixed.items()]
        routes += [
            Route("/", self.file),
            Route("/static/{name:path}", self.file),
            Route("/api/sessions/{id}/view", self.view),
            Route("/api/sessions/{id}/blocks", self.blocks),
            WebSocketRoute("/api/socket", self.socket),
        ]
        return Starlette(routes=routes)

    async def file(self, request: Request) -> Response:
        file = find(request.path_params.get("name", "index.html"))
        if not file.packed:
            return Response(file.content, media_type=file.media)
        return Response(file.packed, media_type=file.media, headers={"content-encoding": "gzip"})

    async def view(self, request: Request) -> Response:
        view = self.history if request.path_params["id"] == "history" else code_of(request.path_params["id"])
        first = max(0, len(view.blocks) - int(request.query_params["last"]))
        cut = msgspec.structs.replace(view, blocks=view.blocks[first:])
        body = {"seq": 1, "view": cut, "first": first, "total": len(view.blocks)}
        return Response(msgspec.json.encode(body), media_type="application/json")

    async def blocks(self, request: Request) -> Response:
        before = int(request.query_params["before"])
        first = max(0, before - int(request.query_params["count"]))
        body = {"blocks": self.history.blocks[first:before], "first": first}
        return Response(msgspec.json.encode(body), media_type="application/json")

    async def socket(self, socket: WebSocket) -> None:
        """Answers what the page wants to watch; only the sessions with a text are told anything."""
        await socket.accept()
        async with asyncio.TaskGroup() as tasks:
            try:
                async for said in socket.iter_json():
                    if said["type"] != "unwatch":
                        await socket.send_json({"type": "watching", "id": said["id"]})
                    if (text := self.texts.get(said.get("session"))) is not None:
                        tasks.create_task(self.streamed(socket, said["id"], text))
            except WebSocketDisconnect:
                return

    async def streamed(self, socket: WebSocket, id: str, text: str) -> None:
        async def tell(event: ev.Event) -> None:
            head = f'{{"type":"events","id":"{id}","events":['
            await socket.send_text(head + ev.encode(event).decode() + "]}")

        await tell(ev.StepStarted(seq=2, step=1, model="m", prompt_bytes=0, prompt_tokens=10))
        begun = time.monotonic()
        size = len(text) / self.count
        for number in range(self.count):
            await asyncio.sleep(max(0.0, begun + number / RATE - time.monotonic()))
            await tell(ev.TextDelta(text=text[round(number * size) : round((number + 1) * size)]))
        said = Message("assistant", (Text(text),))
        await tell(ev.MessageAdded(seq=3, message=said, origin="model"))
        await tell(ev.TurnFinished(seq=4, outcome="done"))


def _always(value: object) -> Any:
    async def handler(_: Request) -> JSONResponse:
        return JSONResponse(value)

    return handler


@contextmanager
def serving(app: Starlette) -> Iterator[str]:
    """The application on a free port; its address."""
    config = uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


def weight(asked: list[str]) -> dict[str, float]:
    """Kilobytes (1,000 bytes) as they go over the wire: what a conversation takes, and with every panel opened.

    The last also compressed as one file, which is what the page is beside pages that come as one; without what is
    fetched for a single use (`LATE`).
    """
    modules = {path for path in WEB.rglob("*.js") if path.name not in LATE}
    loaded = {WEB / url.partition("/static/")[2] for url in asked if "/static/" in url}
    sheets = {*WEB.glob("styles/*.css"), WEB / "index.html"}

    def sent(paths: set[Path]) -> list[bytes]:
        return [find(str(path.relative_to(WEB))).content for path in sorted(paths)]

    def packed(paths: set[Path]) -> float:
        return round(sum(len(gzip.compress(content, 9)) for content in sent(paths)) / 1000, 1)

    return {
        "js_gzip_kb": packed(modules & loaded),
        "js_gzip_kb_with_every_panel": packed(modules),
        "js_gzip_kb_as_one_file": round(len(gzip.compress(b"".join(sent(modules)), 9)) / 1000, 1),
        "css_html_gzip_kb": packed(sheets),
        "modules": len(modules & loaded),
    }


FRAMES = """() => {
  window.gaps = [];
  let last = performance.now();
  const tick = (now) => { window.gaps.push(now - last); last = now; requestAnimationFrame(tick); };
  requestAnimationFrame(tick);
}"""


class Task(NamedTuple):
    """A task of the page's main thread, in seconds of processor time and of the clock."""

    busy: float
    took: float


@contextmanager
def traced(page: Any) -> Iterator[list[Task]]:
    """Follow the page's main thread; the list is filled at the end.

    Performance.getMetrics counts the time in which other programs run, also where it is asked for thread ticks.
    """
    cdp = page.context.new_cdp_session(page)
    events: list[dict[str, Any]] = []
    ended: list[object] = []
    tasks: list[Task] = []
    cdp.on("Tracing.dataCollected", lambda data: events.extend(data["value"]))
    cdp.on("Tracing.tracingComplete", lambda data: ended.append(data))
    categories = {"includedCategories": ["toplevel"], "excludedCategories": ["*"]}
    cdp.send("Tracing.start", {"transferMode": "ReportEvents", "traceConfig": categories})
    yield tasks
    cdp.send("Tracing.end")
    while not ended:
        page.wait_for_timeout(50)
    cdp.detach()
    mains = {(event["pid"], event["tid"]) for event in events if event.get("args", {}).get("name") == "CrRendererMain"}
    for event in events:
        whole = event["ph"] == "X" and event["name"] == "ThreadControllerImpl::RunTask" and "tdur" in event
        if whole and (event["pid"], event["tid"]) in mains:
            tasks.append(Task(event["tdur"] / 1e6, event["dur"] / 1e6))


def busy(tasks: list[Task]) -> float:
    """Seconds of the main thread."""
    return round(sum(task.busy for task in tasks), 2)


def script(cdp: Any) -> float:
    """Seconds of script so far."""
    return next(
        row["value"] for row in cdp.send("Performance.getMetrics")["metrics"] if row["name"] == "ScriptDuration"
    )


def stream(page: Any, cdp: Any, url: str, session: str, text: str) -> dict[str, Any]:
    """Stream a long answer twice: to measure what it costs, and then to count frames, which costs as much again."""
    ready(page, url, session)
    before = script(cdp)
    with traced(page) as tasks:
        until_streamed(page, session)
    after = script(cdp)
    shown = page.locator(".markdown").inner_text()
    lost = [number for number in range(1, text.count("## Part ") + 1) if f"def part_{number}(" not in shown]
    ready(page, f"{url}/?again", session)
    page.evaluate(FRAMES)
    until_streamed(page, session)
    gaps = sorted(page.evaluate("window.gaps"))
    return {
        f"{session}_script_s": round(after - before, 2),
        f"{session}_main_thread_s": busy(tasks),
        f"{session}_frames": len(gaps),
        f"{session}_frame_p50_ms": round(statistics.median(gaps), 1),
        f"{session}_frame_p95_ms": round(gaps[int(len(gaps) * 0.95)], 1),
        f"{session}_parts_lost": len(lost),
    }


def ready(page: Any, url: str, session: str) -> None:
    """Load the page anew, before anything is streamed."""
    page.goto(f"{url}{'&' if '?' in url else '/?'}{session}")
    page.get_by_role("textbox", name="Message").wait_for()


def until_streamed(page: Any, session: str) -> None:
    """Open the session, and wait until all of its answer is shown."""
    page.evaluate(f"location.hash = '#/s/{session}'")
    page.get_by_text("The very end.").wait_for(timeout=180_000)
    page.locator("[data-state=done]").wait_for(timeout=60_000)


def long_history(page: Any, url: str) -> dict[str, Any]:
    """Show the long conversation, then go back to its first word."""
    page.goto(url)
    page.get_by_role("textbox", name="Message").wait_for()
    with traced(page) as showing:
        page.evaluate("location.hash = '#/s/history'")
        page.get_by_text("Part 249").first.wait_for()
        page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    first = page.locator(".bubble").get_by_text("Question 0?", exact=True)
    with traced(page) as back:
        steps = 0
        while not first.count() and steps < 400:
            page.locator(".transcript").evaluate("(place) => { place.scrollTop = 0; }")
            page.wait_for_timeout(30)
            steps += 1
    return {
        "history_cpu_s": busy(showing),
        "history_back_cpu_s": busy(back),
        "history_back": first.count() == 1 and page.locator(".bubble").count() == 250,
    }


def tangled(page: Any, url: str) -> dict[str, Any]:
    """Measure the longest task in which code is coloured that was made to keep the highlighter busy."""
    longest: dict[str, float] = {}
    took = 0.0
    for language in TANGLED:
        page.goto(f"{url}/?{language}")
        page.get_by_role("textbox", name="Message").wait_for()
        page.evaluate("import('/static/vendor/highlight.js')")  # loading it is no colouring
        with traced(page) as tasks:
            page.evaluate(f"location.hash = '#/s/{language}'")
            page.locator(".code").wait_for()
            page.wait_for_timeout(3000)
        longest[language] = round(max(task.busy for task in tasks) * 1000, 1)
        took = max(took, *(task.took for task in tasks))
    return {
        "code_longest_task_ms": max(longest.values()),
        "code_longest_task_by_language": longest,
        "code_longest_task_by_the_clock_ms": round(took * 1000, 1),
    }


def main() -> int:
    """Measure; returns the exit code."""
    parser = argparse.ArgumentParser(description="Measure the page.")
    parser.add_argument("--quick", action="store_true", help="1,500 chunks instead of 5,000")
    quick = parser.parse_args().quick
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("playwright is not installed", file=sys.stderr)
        return 3
    gateway = Gateway(1500 if quick else 5000)
    figures: dict[str, Any] = {"chunks": gateway.count}
    asked: list[str] = []
    with serving(gateway.app()) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage", "--enable-precise-memory-info"]
        )
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        cdp = page.context.new_cdp_session(page)
        cdp.send("Performance.enable")
        for session, text in gateway.texts.items():
            figures |= stream(page, cdp, url, session, text)
        figures |= long_history(page, url)
        figures |= tangled(page, url)
        browser.close()
    figures |= weight(asked)
    figures["requests_elsewhere"] = sum(not one.startswith((url, "blob:", "data:")) for one in asked)
    figures["ok"] = (
        figures["js_gzip_kb"] <= JS_KB
        and figures["js_gzip_kb_as_one_file"] <= ONE_KB
        and not figures["requests_elsewhere"]
        and figures["stream_script_s"] <= SCRIPT_S
        and max(figures["stream_main_thread_s"], figures["paragraph_main_thread_s"]) <= BUSY_S
        and max(figures["stream_frame_p95_ms"], figures["paragraph_frame_p95_ms"]) <= FRAME_MS
        and not figures["stream_parts_lost"]
        and figures["history_cpu_s"] <= HISTORY_S
        and figures["history_back"]
        and figures["code_longest_task_ms"] <= CODE_MS
    )
    print(json.dumps(figures))
    return 0 if figures["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
