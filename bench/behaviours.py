"""A competent mind behind the endpoint: it sees only what it is sent, and obeys only what a `user` message says.

    python bench/behaviours.py [--quick]

Twelve small tasks are done with each of seventeen damages of each of their calls (`chores.py`). A batch of files is
worked through in windows of 8k, 16k and 32k tokens, by three tokenizers, one and five files a reply, with one SIGKILL
in the middle; and a shorter one on each server of a matrix: honest and lying ones, oddities of the wire, and templates
that refuse a user message after results. Whatever the prompt does not
hold any more is gone for the mind: it goes on from its own summary, from the calls that it still sees, or looks at what
it has written. `to_ideal` is what the server had to read against every message once, the record of each cut included;
`to_work` leaves that record out of the ideal as well.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, cast

from chores import CHORES, DAMAGES, work

from lmagent.core import events as ev
from lmagent.core.messages import Text
from lmagent.testing import ScriptedServer
from lmagent.testing.faults import overflow_llamacpp
from lmagent.testing.loopback import Received
from lmagent.testing.prefix import canonical
from lmagent.testing.quirks import HARMLESS, LOSSY, Quirk
from lmagent.testing.script import Behaviour, Counts, Reply, reply, tool
from lmagent.testing.templates import TEMPLATES, Template

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from testkit import starting
from testkit.servers.matrix import HONEST, LYING

starting.install()  # what is counted here is no time

BAR = 1.15
BARRED = (16384, 32768)
"""Windows in which the bar holds: in a smaller one a cut is most of what is read."""
WINDOWS = (8192, *BARRED)
TOKENIZERS = (2.5, 3.2, 4.0)
"""Bytes a token: dense code and scripts, code, English."""
TOGETHER = (1, 5)
"""Files that the mind reads in one reply."""
DONE_SHARE = 198 / 204
SERVED = 8192
"""Window of the servers of the matrix that have none of their own."""
TASK = (
    "The folder texts has {count} files, 001.txt to {count:03d}.txt. Each has one line that begins with `word:`. "
    "For each file, in order, append the line `NNN,WORD` to out.csv. Answer with the number of lines when it is done."
)


class Mind:
    """Works through the batch by what one request shows. `asked` counts the requests, `peak` is the largest prompt.

    Args:
        count: files of the batch.
        window: tokens that it takes; 0 leaves counting to the server.
        bytes_a_token: of its tokenizer.
        together: files that it reads in one reply.
    """

    def __init__(self, count: int, window: int, bytes_a_token: float, together: int) -> None:
        self.count, self.window, self.bytes_a_token, self.together = count, window, bytes_a_token, together
        self.asked = self.summaries = self.refused = self.peak = 0
        self.half = threading.Event()

    def __call__(self, received: Received) -> Behaviour:
        self.asked += 1
        text, wanted = self._answer(list(heard(received.messages)))
        if not self.window:
            return reply(text=text, calls=wanted)
        tokens = int(len(canonical(received.body)) / self.bytes_a_token)
        self.peak = max(self.peak, tokens)
        if tokens > self.window:
            self.refused += 1
            return overflow_llamacpp(tokens, self.window)
        return reply(text=text, calls=wanted, usage=Counts(tokens, 60))

    def _answer(self, messages: list[dict[str, Any]]) -> tuple[str, tuple[Any, ...]]:
        known, words, lost = _memory(messages)
        last = messages[-1]
        if last["role"] == "user" and "Write a summary" in _text(last):
            self.summaries += 1
            return f"The user wants a line for each file in out.csv. Appended through {known or 0:03d}. Go on.", ()
        if known is None or lost:
            return "", (tool("shell", command="touch out.csv; echo last: $(tail -n 1 out.csv)"),)
        if known >= self.count // 2:
            self.half.set()
        if known >= self.count:
            return f"Done: {known} lines.", ()
        new: list[str] = []
        while words.get(f"{known + 1:03d}"):
            known += 1
            new.append(f"{known:03d},{words[f'{known:03d}']}")
        made = [tool("shell", command=f"printf '%s\\n' {' '.join(new)} >> out.csv")] if new else []
        together = 1 if "" in words.values() else self.together
        after = range(known + 1, min(known + together, self.count) + 1)
        return "", tuple(made + [tool("read", path=f"texts/{number:03d}.txt") for number in after])


def heard(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The messages, each call with an id and its result with the same one, arguments as an object. What stands in a
    result below the line that the system text names is from the user."""
    line = re.search(r"\[message [^\]]+\]", _text(messages[0])) if messages[0]["role"] == "system" else None
    waiting: list[str] = []
    for at, message in enumerate(messages):
        if message["role"] == "tool":
            result, _, words = _text(message).partition(f"\n\n{line[0]}\n" if line else "\0")
            id = message.get("tool_call_id") or waiting.pop(0)
            yield {"role": "tool", "tool_call_id": id, "content": result}
            yield from [{"role": "user", "content": words}] if words else []
            continue
        calls = [
            {"id": call.get("id") or f"{at}.{number}", **_function(call["function"])}
            for number, call in enumerate(message.get("tool_calls") or ())
        ]
        waiting = [call["id"] for call in calls] or waiting
        yield {"role": message["role"], "content": _text(message), "tool_calls": calls}


def _function(called: dict[str, Any]) -> dict[str, Any]:
    given = called["arguments"]
    return {"name": called["name"], "arguments": json.loads(given) if isinstance(given, str) else given}


def _memory(messages: list[dict[str, Any]]) -> tuple[int | None, dict[str, str], bool]:
    """What the prompt shows: the last file of which a line was appended, words that were read, and whether an append
    has an unknown end."""
    known: int | None = None
    words: dict[str, str] = {}
    lost = False
    asked: dict[str, tuple[str, dict[str, Any]]] = {}
    for message in messages:
        text = _text(message)
        if message["role"] == "user":
            cut = "[The earlier conversation was shortened" in text
            found = re.findall(r"(?:Appended through |,w\d+ |%s\S+ )(\d+)(?:\. Go on|,w\d+ >> out)", text)
            known = int(found[-1]) if found else known if cut or known is not None else 0
            known = None if cut and not found else known
        for call in message.get("tool_calls") or ():
            asked[call["id"]] = (call["name"], call["arguments"])
        if message["role"] != "tool":
            continue
        name, arguments = asked.get(message["tool_call_id"], ("", {}))
        if name == "read" and (found := re.search(r"word: (\w+)", text)):
            words[Path(arguments["path"]).stem] = found.group(1)
        elif name == "read":
            words[Path(arguments["path"]).stem] = ""  # what the result shows has a hole where the word was
        elif name == "shell" and "tail -n 1" in arguments["command"]:
            found = re.search(r"last: (\d*)", text)
            known, lost = int(found.group(1) or 0) if found else None, False
        elif name == "shell":
            lost = lost or "nterrupted" in text or "ot run" in text
            known = known if lost else int(re.findall(r"(\d+),", arguments["command"])[-1])
    return known, words, lost


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def word_of(number: int) -> str:
    """The word of a file."""
    return f"w{number * 7919 % 100003}"


def table(count: int) -> str:
    """What the batch has to come to."""
    return "".join(f"{number:03d},{word_of(number)}\n" for number in range(1, count + 1))


def prepare(folder: Path, count: int) -> None:
    """The files of the batch, about 900 bytes each."""
    (folder / "texts").mkdir()
    for number in range(1, count + 1):
        lines = [f"entry {line} of {number}: {line * number % 9973}" for line in range(36)]
        lines[11 + number % 12] = f"word: {word_of(number)}"
        (folder / "texts" / f"{number:03d}.txt").write_text("\n".join(lines) + "\n")


def play(window: int, bytes_a_token: float, together: int, count: int) -> dict[str, Any]:
    """One batch: killed in the middle, gone on with, and judged by what stands on disk."""
    mind = Mind(count, window, bytes_a_token, together)
    with tempfile.TemporaryDirectory() as home, ScriptedServer(mind) as server:
        folder = Path(home) / "workspace"
        folder.mkdir()
        prepare(folder, count)
        environment = {**os.environ, "HOME": home, "LMAGENT_CONTEXT_WINDOW": str(window)}
        flags = ["--permission", "auto", "-w", str(folder), "--base-url", server.base_url]
        run(environment, [TASK.format(count=count), *flags], mind.half)
        code = run(environment, ["Go on where you were interrupted.", "--continue", *flags], None)
        right = (folder / "out.csv").exists() and (folder / "out.csv").read_text() == table(count)
        logs = folder.glob(".lmagent/sessions/*/events.jsonl")
        cuts = [one for log in logs for one in map(ev.decode, log.read_bytes().splitlines()) if _is_cut(one)]
        records = sum(len(part.text.encode()) for cut in cuts for part in _record(cut)) // 4
        read, fresh = server.prefix.prefilled, server.prefix.fresh
    return {
        "window": window,
        "bytes_a_token": bytes_a_token,
        "together": together,
        "right": right,
        "exit_code": code,
        "requests": mind.asked,
        "cuts": len(cuts),
        "summaries": mind.summaries,
        "refused": mind.refused,
        "peak": mind.peak,
        "read": read,
        "to_ideal": round(read / fresh, 3),
        "to_work": round(read / (fresh - records), 3),
    }


def matrix() -> dict[str, Callable[[Mind], ScriptedServer]]:
    """The servers: dialects honest and lying, a server with an oddity of the wire, one with a template that refuses."""

    def odd(quirk: Quirk) -> Callable[[Mind], ScriptedServer]:
        return lambda mind: ScriptedServer(lambda received: quirk(cast(Reply, mind(received))), window=SERVED)

    def picky(template: Template) -> Callable[[Mind], ScriptedServer]:
        return lambda mind: ScriptedServer(mind, template=template, window=SERVED)

    quirks = {**HARMLESS, "usage_zero": LOSSY["usage_zero"], "usage_missing": LOSSY["usage_missing"]}
    return {
        **HONEST,
        **LYING,
        **{f"wire: {name}": odd(quirk) for name, quirk in quirks.items()},
        **{f"template: {name}": picky(template) for name, template in TEMPLATES.items()},
    }


def serve(name: str, together: int, count: int) -> dict[str, Any]:
    """A batch on one server of the matrix, judged by what stands on disk."""
    mind = Mind(count, 0, 4.0, together)
    with tempfile.TemporaryDirectory() as home, matrix()[name](mind) as server:
        folder = Path(home) / "workspace"
        folder.mkdir()
        prepare(folder, count)
        flags = ["--permission", "auto", "-w", str(folder), "--base-url", server.base_url]
        code = run({**os.environ, "HOME": home}, [TASK.format(count=count), *flags], None)
        right = (folder / "out.csv").exists() and (folder / "out.csv").read_text() == table(count)
    return {"server": name, "together": together, "right": right, "exit_code": code, "requests": mind.asked}


def run(environment: dict[str, str], arguments: list[str], until: threading.Event | None) -> int:
    """Run the agent to its end, or until it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "lmagent", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while until is not None and process.poll() is None:
        if until.wait(0.05):
            os.killpg(process.pid, signal.SIGKILL)
            break
    return process.wait(600)


def _is_cut(event: ev.Event) -> bool:
    return isinstance(event, ev.CompactionDone)


def _record(cut: Any) -> list[Text]:
    return [part for part in cut.messages[0].parts[cut.head :] if isinstance(part, Text)]


def main() -> int:
    """Print the figures; exit 1 if the bar does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few files, one window, each damage once, few servers")
    quick = parser.parse_args().quick
    settings = [(16384, 3.2, 5)] if quick else list(product(WINDOWS, TOKENIZERS, TOGETHER))
    rows: list[dict[str, Any]] = []
    for window, bytes_a_token, together in settings:
        rows.append(play(window, bytes_a_token, together, 60 if quick else 300))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    damaged = [(chore, damage, at) for damage in DAMAGES for chore in CHORES for at in range(len(chore.steps))]
    if quick:  # another task and another step for each damage
        damaged = damaged[:: len(damaged) // len(DAMAGES) + 1]
    with ThreadPoolExecutor(2) as pool:
        chores = list(pool.map(lambda one: work(*one), damaged))
    servers = list(product(matrix(), TOGETHER))
    with ThreadPoolExecutor(2) as pool:
        served = list(pool.map(lambda one: serve(*one, 12 if quick else 40), servers[::24] if quick else servers))
    failed = [one for one in served if not one["right"] or one["exit_code"]]
    results = Counter(one["result"] for one in chores)
    odd = [one for one in chores if one["result"] != "done"]
    worst = max(row["to_ideal"] for row in rows if row["window"] in BARRED)
    ok = all(row["right"] and not row["exit_code"] for row in rows) and worst <= BAR
    ok = ok and not results["wrong"] and results["done"] >= DONE_SHARE * len(chores)
    ok = ok and not failed
    figures = {"chores": dict(results), "not_done": odd, "servers": len(served), "failed": failed}
    print(json.dumps({"ok": ok, "bar": BAR, "worst": worst, "runs": rows, **figures}))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
