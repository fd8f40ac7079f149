"""Nested: lines about sub-agents, short and indented, between those of their parent's session."""

from __future__ import annotations

from lmagent.core import events as ev
from lmagent.core.lines import command_end
from lmagent.tools.sanitize import one_line

OBJECTIVE = 80  # characters of an objective or a summary in a line


class NestedLines:
    """Makes the lines about sub-agents. Remembers the names of their running calls."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], str] = {}

    def __call__(self, event: ev.Event) -> tuple[str, str] | None:
        """Return the kind of line (ok, fault, warning, quiet) and its text; None for an event without a line."""
        depth, child, inner = -1, "", event
        while isinstance(inner, ev.SubagentEvent):
            depth, child, inner = depth + 1, inner.child, inner.event
        pad = "  " * (depth + 1)
        match inner:
            case ev.SubagentStarted():
                name = f" {inner.task}" if inner.task else ""
                return "quiet", f"{pad}▸ sub-agent{name}: {_short(inner.brief.objective)}"
            case ev.SubagentFinished():
                return _ending(pad, inner)
            case ev.ToolStarted() if child:
                self._calls[child, inner.call_id] = inner.summary or inner.tool
            case ev.ToolFinished() if child:
                return self._call(pad, inner, self._calls.pop((child, inner.call_id), inner.tool))
            case ev.ApprovalResolved() if child and not inner.approved and inner.by == "unattended":
                return "warning", f"{pad}denied: no user to approve it"
            case ev.Notice() if child:
                return "warning", f"{pad}{inner.text}"
            case _:
                pass
        return None

    def _call(self, pad: str, event: ev.ToolFinished, summary: str) -> tuple[str, str] | None:
        if event.tool == "report_result" and event.status == "ok":
            return None  # the parent's line covers it
        if event.status != "ok":
            return "fault", f"{pad}✗ {_short(summary)}: {_short(event.content)}"
        end = command_end(event)
        return ("warning", f"{pad}✗ {_short(summary)}: {end}") if end else ("ok", f"{pad}✓ {_short(summary)}")


def _ending(pad: str, event: ev.SubagentFinished) -> tuple[str, str]:
    result, name = event.result, f" {event.task}" if event.task else ""
    said = "; ".join(part for part in (_short(result.summary), _short(result.error)) if part)
    kind = "quiet" if result.status == "ok" else "warning"
    return kind, f"{pad}◂ sub-agent{name} {result.status}{f': {said}' if said else ''}"


def _short(text: str) -> str:
    return one_line(" ".join(text.split()), OBJECTIVE)
