"""The corpus: texts as models write them, by hand from the formats' templates, with what must come of each.

A line is one text: `note`, `text`, the `content` to show and the `calls` to find; `fault` marks a call whose arguments
cannot be read (they are then the text as it came), `cut` names a call that the end cut off, `thinking` is the thought.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lmagent.core.model import ToolSpec

CORPUS = Path(__file__).resolve().parent / "corpus"
TOOLS = [
    ToolSpec(name, tool["description"], tool["parameters"])
    for tool in json.loads((CORPUS / "tools.json").read_text("utf-8"))
    for name in (tool["name"], *tool.get("aliases", ()))
]


def rows() -> list[dict[str, Any]]:
    """All texts, each with the name of its file."""
    return [
        {"file": path.stem, **json.loads(line)}
        for path in sorted(CORPUS.glob("*.jsonl"))
        for line in path.read_text("utf-8").splitlines()
    ]


def calls_of(parsed: Any) -> list[dict[str, Any]]:
    """What was found, in the corpus's words."""
    return [
        {"name": call.name, "arguments": call.arguments, **({"fault": True} if call.fault else {})}
        for call in parsed.calls
    ]


def same(found: Any, wanted: Any) -> bool:
    """Equal, with true and 1, and 1 and 1.0, apart."""
    return json.dumps(found, sort_keys=True) == json.dumps(wanted, sort_keys=True)


def exact_calls(row: dict[str, Any], parsed: Any) -> bool:
    return same(calls_of(parsed), row["calls"]) and parsed.cut == row.get("cut")


def run_wrongly(row: dict[str, Any], parsed: Any) -> bool:
    """Whether a call would run that is not in the text, or with other arguments."""
    wanted = [call for call in row["calls"] if not call.get("fault")]
    found = [call for call in calls_of(parsed) if not call.get("fault")]
    return len(found) > len(wanted) or any(not any(same(call, each) for each in wanted) for call in found)


def late_thought(row: dict[str, Any]) -> bool:
    """Whether a thought is known as one by its closing tag alone: the one case in which text shown is taken back."""
    text = row["text"]
    closing = text.find("</think>")
    return closing >= 0 and text.rfind("<think>", 0, closing) < 0
