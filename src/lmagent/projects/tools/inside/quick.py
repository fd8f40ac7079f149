"""Quick: runs one call of a JavaScript tool in QuickJS, where there is no Node.js: `quick.py CALL`, a file of JSON."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from importlib import import_module
from typing import Any


def main(path: str) -> None:
    """Run the call of a file, and write its answer to the private channel."""
    with open(path, encoding="utf-8") as file:
        call: dict[str, Any] = json.load(file)
    channel = int(os.environ.pop("LMAGENT_CHANNEL"))
    context: Any = import_module("quickjs").Context()
    found: list[str] = []
    for name, function in (("print", _print), ("read", _read), ("answer", found.append)):
        context.add_callable(f"__{name}", function)
    here = os.path.dirname(os.path.abspath(__file__))
    context.set("__call", json.dumps({**call, "common": _read(f"{here}/common.js")}))
    try:
        context.eval(_read(f"{here}/quick.js"))
        _finish(context, found)
    except Exception as failure:  # noqa: BLE001  of the engine, which has no types
        found.append(json.dumps({"error": str(failure).strip().split("\n")[0]}))
    if not found:
        found.append(json.dumps({"error": "it waits for something that never comes"}))
    with contextlib.suppress(OSError), open(channel, "wb") as out:
        out.write(found[0].encode("utf-8", "replace") + b"\n")


def _finish(context: Any, found: list[str]) -> None:
    """Run the jobs and timers of the tool until it has answered, or nothing is left to do."""
    while not found:
        if context.execute_pending_job():
            continue
        pause = context.eval("__next()")
        if pause is None:
            return
        time.sleep(max(0.0, float(pause) / 1000))
        context.eval("__fire()")


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _read(path: str) -> str | None:
    """Return the text of a file; None if it is not there."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return None


if __name__ == "__main__":
    main(sys.argv[1])
