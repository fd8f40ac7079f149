"""Finishing: what must be done before a turn may end as done."""

from __future__ import annotations

from collections.abc import Sequence

from lmagent.core.messages import Text, ToolResult
from lmagent.core.plurals import plural
from lmagent.core.work import Task
from lmagent.engine import worktext
from lmagent.engine.endings import Ending, answer_of
from lmagent.engine.review import Again, End
from lmagent.engine.session import Session
from lmagent.engine.state import SessionState
from lmagent.planning.batch import unmet

TIMES = 2  # how often a model is sent back to work while the same things are open

SHOWN = 20

TODOS = "[These todos are still open:]"


def at_end(session: Session, ending: Ending, answer: str, *, enforce: bool) -> End | Again | None:
    """Send a model that claims to be done back to work while a condition that it or the user has set is open.

    Open steps of an approved plan are such a condition if `enforce`.
    """
    if ending.kind != "done":
        return None
    work = session.state.work
    if why := unmet(work.state):
        reason = f"the completion gate {work.state.completion_gate!r} is not met: {why}"
        key = f"gate {work.state.processed_count} {len(work.state.remaining_queue)}"
        fix = "Go on with it, and call task_state_update; if it cannot be met, write BLOCKED: and the reason."
        return _again(key, f"You are not done: {reason}. {fix}", reason, answer)
    opened = [task for task in work.tasks.values() if task.is_open]
    binding = [task for task in opened if work.mode == "deep" or (task.kind == "step" and enforce)]
    if binding:
        what = f"{plural(len(binding), 'task')} {'is' if len(binding) == 1 else 'are'} open"
        fix = "Go on, and mark each as completed when it is; if one cannot be done, write BLOCKED: and the reason."
        ids = [task.id for task in binding]
        text = f"You are not done: {what}:\n{_rows(binding)}\n{fix}"
        return _again(f"open {' '.join(ids)}", text, f"{what}: {', '.join(ids[:SHOWN])}", answer)
    todos = [task for task in opened if task.kind == "todo"]
    if todos and not _told(session.state):
        text = (
            f"{TODOS}\n{_rows(todos)}\nDo them, or update them; if they do not matter any more, give the final answer."
        )
        return Again("todos", text, 1, End("done", answer=answer_of(answer)))
    return None


def _again(key: str, text: str, reason: str, answer: str) -> Again:
    typed = "continue with --continue, or remove what does not matter: /todo drop ID, /todo drop state"
    return Again(key, text, TIMES, End("error", "incomplete", f"incomplete: {reason}", answer, terminal=typed))


def _rows(tasks: Sequence[Task]) -> str:
    more = f"\n- and {len(tasks) - SHOWN} more" if len(tasks) > SHOWN else ""
    return worktext.rows(tasks[:SHOWN], worktext.SHORT) + more


def _told(state: SessionState) -> bool:
    """Return whether the model was reminded of its todos since the user's last message."""
    since = max(state.user_at[-1], 0) if state.user_at else 0
    parts = (part for message in state.messages[since:] for part in message.parts)
    texts = (
        part.content if isinstance(part, ToolResult) else part.text
        for part in parts
        if isinstance(part, Text | ToolResult)
    )
    return any(TODOS in text for text in texts)
