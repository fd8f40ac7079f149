"""Habits: single words that other programs take as commands, and mistyped commands. None of them is a task."""

from __future__ import annotations

from collections.abc import Sequence

from lmagent.cli.main import COMMANDS, WORDS

CLOSE = 0.8
"""Likeness (0 to 1, difflib's ratio) above which a word counts as a mistyped command."""

_MODELS = "lmagent models"
_UPDATE = "update it the way you installed it: pip, pipx or uv, each with its upgrade command"

ELSEWHERE = {
    "auth": "an API key is the setting LLM_API_KEY; a local server needs none",
    "continue": "lmagent -c continues the newest session",
    "create": f"{_MODELS} import FILE takes a GGUF file into the library",
    "download": f"{_MODELS} pull NAME downloads a model",
    "exec": 'lmagent "TASK" does one task; lmagent sandbox exec runs a command in the sandbox',
    "history": "lmagent sessions lists the sessions",
    "init": "there is nothing to set up: start lmagent in your folder; /init there writes AGENTS.md",
    "install": f"{_MODELS} pull NAME downloads a model; lmagent service install keeps lmagent web running",
    "list": f"{_MODELS} lists the models, lmagent sessions the sessions, lmagent tool the tools",
    "load": f"{_MODELS} load NAME loads a model",
    "login": "an API key is the setting LLM_API_KEY; a local server needs none",
    "logout": "an API key is the setting LLM_API_KEY; remove it there",
    "logs": "lmagent server logs shows the model server's log",
    "ls": f"{_MODELS} lists the models, lmagent sessions the sessions, lmagent tool the tools",
    "mcp": "MCP servers are not supported in this version; lmagent tool lists the tools",
    "permissions": "/permissions shows the rules in the conversation; --permission MODE sets the mode",
    "ps": f"{_MODELS} ps shows the models that are loaded, lmagent sessions the agent's sessions",
    "pull": f"{_MODELS} pull NAME downloads a model",
    "resume": "lmagent -c continues the newest session, lmagent --resume ID another one",
    "rm": f"{_MODELS} rm NAME removes a model, lmagent sessions rm ID a session",
    "serve": "lmagent server start serves models, lmagent web serves the agent to browsers",
    "settings": "lmagent config shows the settings",
    "setup": "no setup is needed: start lmagent in your folder; lmagent doctor checks its requirements",
    "show": f"{_MODELS} show NAME shows a model, lmagent sessions show ID a session",
    "start": "lmagent starts a conversation, lmagent server start the model server",
    "status": "lmagent doctor checks everything, lmagent server status looks at the model server",
    "stop": "lmagent server stop stops the model server",
    "tasks": "lmagent sessions lists the sessions, lmagent cron the jobs that run by the clock",
    "uninstall": "remove it the way you installed it: pip, pipx or uv; lmagent service remove comes first",
    "unload": f"{_MODELS} unload NAME unloads a model",
    "update": _UPDATE,
    "upgrade": _UPDATE,
}
"""Answers to the commands of other programs."""


def not_a_task(words: Sequence[str]) -> str:
    """Answer words that are no task: a word of another program, or a mistyped command; else return nothing.

    `words`: the arguments, up to the first option.
    """
    about = len(words) == 2 and words[0] == "help"
    word = words[-1] if about else words[0]
    known = (*COMMANDS, *WORDS)
    if word in known:
        return ""
    if word in ELSEWHERE and (about or len(words) == 1):
        return f"'{word}' is not a command here\n  → {ELSEWHERE[word]}"
    if any(word[:2] == name[:2] for name in known):
        from difflib import get_close_matches  # few tasks pay for it

        if meant := get_close_matches(word, known, 1, CLOSE):
            more = f"As a task: lmagent run {' '.join(words)}"
            return f"there is no command '{word}'\n  → did you mean 'lmagent {meant[0]}'? {more}"
    return f"there is no command '{word}'\n  → lmagent --help lists the commands" if about else ""
