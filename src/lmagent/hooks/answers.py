"""Answers: what a hook's exit code and output mean. Pure decisions.

Exit 0 is no objection, or the decision in the JSON that it prints; exit 2 objects, with the reason on standard error;
any other code is a failure that the user sees, and nothing else. A hook that gave no answer (it could not run, was
killed, did not end in time, printed broken JSON) is `silent`: a call that it guards is asked about.
"""

from __future__ import annotations

from typing import Any, Literal, cast

import msgspec
from msgspec import Struct, field

from lmagent.core.decoding import decode_json
from lmagent.hooks.config import Hook
from lmagent.tools.sanitize import one_line

ADDING = ("UserPromptSubmit", "SessionStart")
"""Events whose plain output is added to the conversation."""

OBJECTING = ("PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop", "SubagentStop")
"""Events that a hook can object to."""

MISSING = (126, 127)
"""Exit codes of a shell that could not run the program."""

SIGNALLED = range(129, 193)
"""Exit codes of a shell whose program was ended by a signal."""


class HookRun(Struct, frozen=True):
    """One run of a hook; `failure` says why it gave no answer."""

    hook: Hook
    code: int = 0
    out: str = ""
    err: str = ""
    seconds: float = 0.0
    failure: str = ""


class _Specific(Struct, rename="camel"):
    permission_decision: str | None = None
    permission_decision_reason: str | None = None
    additional_context: str | None = None
    updated_input: dict[str, Any] | None = None


class _Document(Struct, rename="camel"):
    """The JSON that a hook may print."""

    continues: bool | None = field(default=None, name="continue")
    stop_reason: str | None = None
    system_message: str | None = None
    decision: str | None = None
    reason: str | None = None
    hook_specific_output: _Specific | None = None


class HookAnswer(Struct, frozen=True):
    """What a hook wants.

    Attributes:
        reason: why, for the model or the user; from outside.
        context: text for the model; from outside.
        stop: why the turn must end; None if it may continue.
        message: text for the user; from outside.
        updated: the changed arguments of a call.
        warning: a failure, for the user.
        silent: it gave no answer.
    """

    hook: Hook
    decision: Literal["", "allow", "ask", "deny"] = ""
    reason: str = ""
    context: str = ""
    stop: str | None = None
    message: str = ""
    updated: dict[str, Any] | None = None
    warning: str = ""
    silent: bool = False


def label(hook: Hook) -> str:
    """Return a hook's name for users: its command."""
    return f"hook `{one_line(hook.command, 60)}`"


def answer_of(run: HookRun) -> HookAnswer:
    hook, said = run.hook, run.err.strip()
    if run.failure:
        return HookAnswer(hook, warning=f"the {label(hook)} gave no answer: {run.failure}", silent=True)
    if run.code in MISSING:
        why = one_line(said, 200) or "its program is missing"
        return HookAnswer(hook, warning=f"the {label(hook)} could not run: {why}", silent=True)
    if run.code in SIGNALLED or run.code < 0:
        why = f"the {label(hook)} gave no answer: a signal ended it (exit code {run.code})"
        return HookAnswer(hook, warning=why, silent=True)
    if run.code == 2 and hook.event in OBJECTING:
        return HookAnswer(hook, "deny", said or "The hook gave no reason.")
    if run.code:
        why = f"the {label(hook)} failed with exit code {run.code}"
        return HookAnswer(hook, warning=f"{why}: {one_line(said, 200)}" if said else why)
    text = run.out.lstrip("\ufeff").strip()
    if not text.startswith("{"):
        return HookAnswer(hook, context=text if hook.event in ADDING else "")
    try:
        return _decided(hook, decode_json(text, _Document))
    except msgspec.ValidationError as misfit:
        return HookAnswer(hook, warning=f"the {label(hook)} printed an answer that does not fit: {misfit}", silent=True)
    except (msgspec.DecodeError, RecursionError):
        if hook.event in ADDING:
            return HookAnswer(hook, context=text)
        return HookAnswer(hook, warning=f"the {label(hook)} printed JSON that is not valid", silent=True)


def _decided(hook: Hook, document: _Document) -> HookAnswer:
    own = document.hook_specific_output or _Specific()
    given = own.permission_decision or document.decision or ""
    known = {"": "", "allow": "allow", "approve": "allow", "ask": "ask", "deny": "deny", "block": "deny"}
    decision = known.get(given)
    reason = _text(own.permission_decision_reason) or _text(document.reason)
    return HookAnswer(
        hook,
        cast("Any", decision or ""),
        reason or ("The hook gave no reason." if decision == "deny" else ""),
        _text(own.additional_context),
        (_text(document.stop_reason) or "a hook stopped the turn") if document.continues is False else None,
        _text(document.system_message),
        own.updated_input,
        "" if decision is not None else f"the {label(hook)} answered with an unknown decision: {given[:40]!r}",
        silent=decision is None,
    )


def _text(value: str | None) -> str:
    return value.strip() if value is not None else ""
