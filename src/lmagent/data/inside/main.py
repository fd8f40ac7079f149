"""Main: one request as JSON in the arguments, one answer as JSON on the output."""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any

from .formats import open_table
from .operations import OPERATIONS, Answer
from .values import DataError, TimeLimit, TimeUp, cell


def answer(request: dict[str, Any]) -> Answer:
    """Return the answer to a request; `error` is for the model. Identity is that of the file that was opened."""
    path, name, operation = request["path"], request["name"], request["operation"]
    limit = TimeLimit(request["seconds"])
    found = os.stat(path)
    identity = [found.st_dev, found.st_ino]
    try:
        return {"file": identity, **_carried_out(path, name, operation, request, limit)}
    except DataError as refusal:
        return {"file": identity, "error": str(refusal)}
    except TimeUp:
        why = f"it took longer than {limit.seconds:g} s. Ask for less: head, or a smaller file"
        return {"file": identity, "error": why}
    except MemoryError:
        return {"file": identity, "error": "it needs more memory than a look at a file may take"}


def _carried_out(path: str, name: str, operation: str, request: dict[str, Any], limit: TimeLimit) -> Answer:
    query, number = request.get("query", ""), request["rows"]
    if operation == "sql":
        from .sql import select

        found = select(path, name, query, number, limit)
        rows = list(found.rows())
        count = f"the first {len(rows):,} rows of more" if found.more else f"{len(rows):,} rows"
        return {
            "kind": found.kind,
            "title": f"sql: {count}",
            "columns": [list(pair) for pair in zip(found.names, found.types())],  # noqa: B905
            "rows": [[cell(value) for value in row] for row in rows],
            "notes": [],
        }
    if operation == "plot":
        from .plot import plot

        return plot(path, name, request, limit)
    return OPERATIONS[operation](open_table(path, name, query, limit), number, limit)


def main() -> None:
    """Answer the request in the arguments."""
    reply = answer(json.loads(sys.argv.pop()))
    reply["memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> (20 if sys.platform == "darwin" else 10)
    sys.stdout.buffer.write(json.dumps(reply).encode("ascii"))
    sys.stdout.flush()
    os._exit(0)  # threads of a library do not delay the answer
