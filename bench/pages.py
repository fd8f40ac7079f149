"""Lines of files that are lost between two pages of `read`, by tokenizer, window and reads in a reply.

    python bench/pages.py [--quick]

A mind behind a scripted server reads files to their end: it believes the header of every page and goes on where that
says. The server counts tokens as the tokenizer would. Lost is a line that a header claims and the page does not hold,
and a line that no page holds.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.core.commands import Submit
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.testing import ScriptedServer
from lmagent.testing.loopback import Received
from lmagent.testing.script import Behaviour, Counts, calls, reply, tool

RATIOS = (2.5, 3.2, 4.0)
WINDOWS = (8192, 16384, 32768, 65536, 262144)
READS = (1, 3, 10)
LINES = 300
HEADER = re.compile(r"\[(?P<path>[^\n]+?): lines (?P<first>\d+)-(?P<last>\d+) of (?P<total>\d+)(?P<rest>[^\n]*)\]\n")


def text_of(number: int, lines: int) -> list[str]:
    """Lines of a file that look like code; now and then a long one."""
    return [
        f"{'    ' * (line % 4)}value_{number}_{line} = compute({line * 7919 % 10007}, 'name {line}')"
        + (" # " + "remark " * 40 if line % 97 == 0 else "")
        for line in range(1, lines + 1)
    ]


@dataclass
class Reader:
    """A mind that reads files, so many in a reply, and remembers what it was shown.

    Attributes:
        files: the lines of each file.
        ratio: bytes a token.
        reads: calls in a reply.
        seen: the numbers of the lines that pages held, by file.
        lost: lines that a header claimed and the page did not hold, or held otherwise.
        pages: how many pages it read.
    """

    files: dict[str, list[str]]
    ratio: float
    reads: int
    seen: dict[str, set[int]] = field(default_factory=dict)
    lost: int = 0
    pages: int = 0
    _next: dict[str, int] = field(default_factory=dict)
    _asked: dict[str, str] = field(default_factory=dict)

    def __call__(self, received: Received) -> Behaviour:
        """The mind's reply."""
        body = received.body
        size = sum(len(str(message.get("content") or "").encode()) for message in body["messages"])
        size += sum(len(call["function"]["arguments"]) for call in _calls(body["messages"]))
        counts = Counts(int((size + len(json.dumps(body.get("tools") or []))) / self.ratio), 20)
        for message in body["messages"]:
            if message["role"] == "tool":
                self._look(str(message["tool_call_id"]), str(message["content"]))
        if body.get("tool_choice") == "none" or not body.get("tools"):
            return reply(text="Some pages were read.", usage=counts)
        unread = [path for path in self.files if self._next.get(path, 1) > 0][: self.reads]
        wanted = tuple(tool("read", path=path, offset=self._next.get(path, 1)) for path in unread)
        if not wanted:
            return reply(text="All files were read to their end.", usage=counts)
        self._asked = dict.fromkeys(unread, "")
        return reply(calls=calls(*wanted).calls, usage=counts)

    def _look(self, call: str, content: str) -> None:
        """Take in a page, the first time that it is shown."""
        page = HEADER.match(content)
        if page is None or page["path"] not in self._asked or self._asked[page["path"]]:
            return
        path, first, last = page["path"], int(page["first"]), int(page["last"])
        if first != self._next.get(path, 1):
            return  # an earlier page of it
        self._asked[path] = call
        self.pages += 1
        rows = dict(_rows(content[page.end() :]))
        held = {at for at in range(first, last + 1) if rows.get(at) == self.files[path][at - 1]}
        self.lost += last - first + 1 - len(held)
        self.seen.setdefault(path, set()).update(held)
        further = re.search(r"continue with offset=(\d+)", page["rest"])
        self._next[path] = int(further[1]) if further else 0

    def missing(self) -> int:
        """Lines that no page held."""
        return sum(
            len(set(range(1, len(lines) + 1)) - self.seen.get(path, set())) for path, lines in self.files.items()
        )


def _calls(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for message in messages:
        yield from message.get("tool_calls") or ()


def _rows(body: str) -> Iterator[tuple[int, str]]:
    for row in body.split("\n"):
        if found := re.match(r" *(\d+)\t(.*)", row):
            yield int(found[1]), found[2]


async def play(folder: Path, files: dict[str, list[str]], ratio: float, window: int, reads: int) -> Reader:
    """Read files to their end, so many in a reply."""
    (folder / "src").mkdir(parents=True)
    for path, rows in files.items():
        (folder / path).write_text("\n".join(rows) + "\n", encoding="utf-8")
    reader = Reader(files, ratio, reads)
    with ScriptedServer(reader) as server:
        flags = {"llm_url": server.base_url, "permission_mode": "auto", "sandbox": "off", "context_window": window}
        host = await open_host(HostOptions(folder, flags), say=lambda _: None)
        try:
            session = await host.new_session()
            await session.send(Submit(message=user("Read all files in src.")))
            await run_until_idle(session)
        finally:
            await host.aclose()
    return reader


def main() -> int:
    """Print the table; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one window")
    windows = (8192,) if parser.parse_args().quick else WINDOWS
    rows = list[dict[str, Any]]()
    for ratio in RATIOS:
        for window in windows:
            for reads in READS:
                files = {f"src/file_{number}.py": text_of(number, LINES) for number in range(reads)}
                with tempfile.TemporaryDirectory() as home:
                    os.environ["HOME"] = home
                    reader = anyio.run(play, Path(home) / "workspace", files, ratio, window, reads)
                found = {"lost": reader.lost, "never_shown": reader.missing(), "pages": reader.pages}
                rows.append({"bytes_per_token": ratio, "window": window, "reads": reads, **found})
    ok = not any(row["lost"] or row["never_shown"] for row in rows)
    print(json.dumps({"ok": ok, "lines": LINES, "runs": rows}))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
