"""Seeds: agent_computer's `config.json`, key by key, as settings.

Its documented keys are `gateway`, `agent` (name, workspace, model, tools, max_loop_iterations, deep_work), `sessions`,
`reflection` and `memory`; other keys are left with a word about them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from lmagent.config.fields import BY_NAME
from lmagent.config.settings import OPENROUTER_URL
from lmagent.config.values import read_value

TOOL_NAMES = {"read_file": "read", "write_file": "write", "list_directory": "ls", "list_files": "ls"}
"""Tools of the older systems that are called otherwise here."""

_NOT_YET = {
    "warning_threshold": "the model is told when 0.8 of a budget is used",
    "reflection": "there is no reflection yet",
    "memory": "there is no memory yet",
    "name": "the agent is called lmagent everywhere",
}


class Draft:
    """What an import will do: (what, setting, value) to take, (what, why) to leave.

    Args:
        base: the folder of the imported file, which its relative paths count from.
        home: the home folder.
    """

    def __init__(self, base: Path, home: Path) -> None:
        self.taken: list[tuple[str, str, Any]] = []
        self.left: list[tuple[str, str]] = []
        self._base = base.absolute()
        self._home = home

    def take(self, what: str, field: str, raw: Any, *, text: bool = False) -> None:
        """Take a value for a setting; one that is not allowed is left, with the reason."""
        try:
            value = read_value(BY_NAME[field], raw, text=text, base=self._base, home=self._home)
        except ValueError as error:
            self.leave(what, f"it {error}")
            return
        self.taken.append((what, field, value))

    def located(self, path: object) -> Path:
        """Return a path of the imported file as an absolute one."""
        return self._base / Path(str(path)).expanduser()

    def leave(self, what: str, why: str) -> None:
        """Leave something out."""
        self.left.append((what, why))


def read_agent_computer(document: dict[str, Any], draft: Draft) -> None:
    """Put the settings of a parsed `config.json` into a draft."""
    for key, value in document.items():
        if key == "agent" and isinstance(value, dict):
            _agent(draft, cast("dict[str, Any]", value))
        elif key == "gateway" and isinstance(value, dict):
            _mapped(draft, key, cast("dict[str, Any]", value), {"host": "web_host", "port": "web_port"})
        elif key == "sessions" and isinstance(value, dict):
            _sessions(draft, cast("dict[str, Any]", value))
        else:
            _leave_all(draft, key, value)


def _agent(draft: Draft, agent: dict[str, Any]) -> None:
    handlers: dict[str, Callable[[Draft, Any], None]] = {"model": _model, "tools": _tools, "deep_work": _deep}
    settings = {"workspace": "workspace", "max_loop_iterations": "bounded_steps"}
    for key, value in agent.items():
        what = f"agent.{key}"
        if key in handlers and isinstance(value, dict):
            handlers[key](draft, value)
        elif key in settings:
            draft.take(what, settings[key], value)
        elif key == "non_interactive_approval_policy":
            draft.leave(
                what, "without a person to ask, what needs approval is denied; permission_allow rules exempt from it"
            )
        else:
            _leave_all(draft, what, value)


def _model(draft: Draft, model: dict[str, Any]) -> None:
    remote = model.get("provider") == "openrouter"
    settings = {"model_id": "llm_model", "max_tokens": "llm_max_tokens", "temperature": "llm_temperature"}
    for key, value in model.items():
        what = f"agent.model.{key}"
        if key == "provider":
            if remote:
                draft.take(what, "llm_url", OPENROUTER_URL)
            else:
                draft.leave(what, "any OpenAI-compatible server is reached by llm_url")
        elif key == "base_url":
            if remote:
                draft.leave(what, "the provider is openrouter, which has an address of its own")
            else:
                draft.take(what, "llm_url", value)
        elif key == "model_id" and value in ("", "your-model-id"):
            draft.leave(what, "it is a placeholder")
        elif key in settings:
            draft.take(what, settings[key], value)
        elif key == "api_key":
            draft.take(what, "openrouter_api_key" if remote else "llm_api_key", value)
        else:
            _leave_all(draft, what, value)


def _tools(draft: Draft, tools: dict[str, Any]) -> None:
    for key, value in tools.items():
        what = f"agent.tools.{key}"
        if key == "require_approval" and isinstance(value, list):
            names = cast("list[Any]", value)
            draft.take(what, "permission_ask", [TOOL_NAMES.get(name, name) for name in names if isinstance(name, str)])
        elif key == "allow" and isinstance(value, list):
            names = cast("list[Any]", value)
            draft.take(what, "tools_allow", [TOOL_NAMES.get(name, name) for name in names if isinstance(name, str)])
        else:
            _leave_all(draft, what, value)


def _deep(draft: Draft, deep: dict[str, Any]) -> None:
    _mapped(draft, "agent.deep_work", deep, {"max_iterations": "deep_steps", "token_budget": "deep_tokens"})


def _sessions(draft: Draft, sessions: dict[str, Any]) -> None:
    rest = dict(sessions)
    if folder := rest.pop("directory", ""):
        draft.leave("sessions.directory", f"take them over with: lmagent sessions import {draft.located(folder)}")
    _mapped(draft, "sessions", rest, {"max_history_tokens": "summarization_threshold"})


def _mapped(draft: Draft, what: str, values: dict[str, Any], settings: dict[str, str]) -> None:
    for key, value in values.items():
        if key in settings:
            draft.take(f"{what}.{key}", settings[key], value)
        else:
            _leave_all(draft, f"{what}.{key}", value)


def _leave_all(draft: Draft, what: str, value: Any) -> None:
    """Leave a key; a secret anywhere below it that has a place here is taken."""
    keys = dict(_openrouter_keys(what, value))
    for place, secret in keys.items():
        draft.take(place, "openrouter_api_key", secret)
    if not keys:
        name = what.rpartition(".")[2]
        draft.leave(what, _NOT_YET.get(name, "lmagent has nothing that it would set"))


def _openrouter_keys(what: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in cast("dict[str, Any]", value).items():
            yield from _openrouter_keys(f"{what}.{key}", inner)
    elif isinstance(value, str) and value and "openrouter" in what.lower() and what.lower().endswith("key"):
        yield what, value
