"""The model of the benchmarks: it has notes read one after the other, then it answers.

    python bench/scripted.py --steps 30 --log requests.jsonl

A scripted server in a process of its own, which prints its port and ends when standard input ends.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lmagent.testing.loopback import Received
from lmagent.testing.script import Behaviour, Reply, Script, ScriptedCall, say, status, tool
from lmagent.testing.serve import open_server

READ_TOOLS = ("read", "read_file")
DONE = "Done: all notes were read."


def bench_script(steps: int, final: str = DONE, *, chunk: int = 16) -> Script:
    """`steps` replies that each read `notes/note_iii.txt`, then `final` in deltas of `chunk` characters.

    It keeps no state: the next step follows from the largest call id in the request, so any number of sessions can
    run one after another, and a compaction does not confuse it.
    """

    def reply(received: Received) -> Behaviour:
        name = next((name for name in READ_TOOLS if name in received.tool_names), None)
        if name is None:
            return status(400, {"error": {"message": f"none of {', '.join(READ_TOOLS)} is advertised"}})
        step = next_step(received)
        if step >= steps:
            return say(final, chunk=chunk)
        wanted = tool(name, path=f"notes/note_{step:03d}.txt")
        return Reply(calls=(ScriptedCall(wanted.name, wanted.arguments, f"call_{step:06d}"),))

    return reply


def next_step(received: Received) -> int:
    """The number after that of the last call in the request."""
    for message in reversed(received.messages):
        for wanted in reversed(message.get("tool_calls") or []):
            return int(wanted["id"].rpartition("_")[2]) + 1
    return 0


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(description="The scripted model of the benchmarks.")
    parser.add_argument("--log", type=Path, required=True, help="one JSON line per request is appended here")
    parser.add_argument("--model", default="bench-model", help="name of the model")
    parser.add_argument("--steps", type=int, default=30, help="tool calls before the final answer")
    parser.add_argument("--final-words", type=int, default=0, help="words of 8 characters in the answer")
    parser.add_argument("--chunk", type=int, default=16, help="characters in one delta of the answer")
    given = parser.parse_args()
    words = "".join(f"w{number:06d} " for number in range(given.final_words))
    script = bench_script(given.steps, words or DONE, chunk=given.chunk)
    with open_server(script, model=given.model, log=given.log):
        sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
