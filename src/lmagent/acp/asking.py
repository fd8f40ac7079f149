"""Asking: approvals and plans as the editor's questions."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from lmagent.acp.content import CallFacts, Object, code, diffs, fenced, is_diff, kind_of, locations, text
from lmagent.core import events as ev
from lmagent.core.commands import Approve
from lmagent.planning.plans import plan_text
from lmagent.tools.sanitize import one_line, visible

ONCE, ALWAYS, REJECT = "once", "always", "reject"

GRANT = 100  # characters of a grant on a button; the whole is above it


class Approval:
    """An approval that waits, as a question; `facts` are of its call, if the editor knows the call."""

    def __init__(self, request: ev.ApprovalRequested, facts: CallFacts | None, workspace: Path, child: str) -> None:
        self.id = request.id
        self._request = request
        self._facts = facts
        self._workspace = workspace
        self._child = child

    @property
    def call(self) -> str:
        """Return the id of the editor's call: a question about something else has a call of its own."""
        return self._request.call_id if self._facts is not None else f"approval-{self.id}"

    def question(self) -> tuple[Object, list[Object]]:
        request = self._request
        title = code(f"sub-agent: {request.summary}" if self._child else request.summary)
        facts = self._facts or CallFacts(title, kind_of(request.tool))
        call: Object = {"toolCallId": self.call, "title": title, "kind": facts.kind, "status": "pending"}
        call |= {"locations": locations(self._workspace, facts.paths), "content": self._content(facts)}
        return call, self._options()

    def _content(self, facts: CallFacts) -> list[Object]:
        request, found = self._request, list[Object]()
        lines = [f"Why it is asked: {code_free(request.reason)}"] if request.reason else []
        if request.preview and is_diff(request.preview) and facts.paths:
            found += diffs(visible(request.preview), self._workspace / facts.paths[0])
        elif request.preview:
            lines.append(fenced(visible(request.preview)))
        if request.grant:
            lines.append(f"“Always” allows in this session:\n{fenced(visible(request.grant))}")
        if lines:
            found.append({"type": "content", "content": text("\n\n".join(lines))})
        return found

    def _options(self) -> list[Object]:
        options = [option(ONCE, "Allow once", "allow_once")]
        if self._request.grant:
            rules = one_line("; ".join(self._request.grant.split("\n")), GRANT)
            options.append(option(ALWAYS, f"Always allow in this session: {rules}", "allow_always"))
        return [*options, option(REJECT, "Reject", "reject_once")]

    def answer(self, chosen: str) -> Approve:
        """Return the command for the chosen option. An option that is not known denies."""
        scope: Literal["once", "session"] = "session" if chosen == ALWAYS and self._request.grant else "once"
        return Approve(approval=self.id, approved=chosen in (ONCE, ALWAYS), scope=scope)


def code_free(words: str) -> str:
    """Return words from outside in a line of ours, as inline code if Markdown could read anything into them."""
    line = one_line(words, 1000)
    return line if line.replace(" ", "").replace(",", "").replace(".", "").isalnum() else code(line)


def plan_question(proposal: ev.PlanProposed) -> tuple[Object, list[Object]]:
    call: Object = {"toolCallId": f"plan-{proposal.id}", "title": "Plan", "kind": "switch_mode", "status": "pending"}
    call["content"] = [{"type": "content", "content": text(fenced(visible(plan_text(proposal.plan))))}]
    later = "Not yet: type what should change, or /plan reject"
    return call, [option(ONCE, "Approve the plan and begin", "allow_once"), option(REJECT, later, "reject_once")]


def option(id: str, name: str, kind: str) -> Object:
    return {"optionId": id, "name": name, "kind": kind}
