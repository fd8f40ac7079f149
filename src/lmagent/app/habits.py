"""Habits: other agents' and model runners' names for slash commands, mapped to ours."""

from __future__ import annotations

SYNONYMS = {
    "?": "help",
    "approvals": "permissions",
    "bye": "quit",
    "clear": "new",
    "cost": "usage",
    "exit": "quit",
    "models": "model",
    "q": "quit",
    "reset": "new",
    "settings": "config",
    "todos": "todo",
    "tokens": "context",
}
"""Names of commands of ours that do the same."""

_MENTION = "write @PATH in your message to attach a file"

ELSEWHERE = {
    "add": _MENTION,
    "add-dir": "start lmagent with --workspace FOLDER to work elsewhere",
    "architect": "/plan TASK plans first",
    "ask": "/btw QUESTION asks on the side, /plan TASK plans first",
    "bug": "/export writes this session to a file that you can send",
    "chat-mode": "/mode shows the permission modes, /plan TASK plans first",
    "code": "just type the task",
    "commit": "ask the agent to commit, or type !!git commit",
    "continue": "/resume picks a session to continue",
    "doctor": "type !!lmagent doctor, or run it in your shell",
    "drop": "/new begins without the files of this conversation",
    "edit": "Alt+Enter begins a new line in a message",
    "editor": "Alt+Enter begins a new line in a message",
    "feedback": "/export writes this session to a file that you can send",
    "git": "!!git COMMAND runs git in your own shell",
    "history": "/sessions lists the sessions, the Up key brings back earlier input",
    "lint": "ask the agent, or type !COMMAND",
    "load": "/model picks a model, /resume a session",
    "login": "an API key is the setting LLM_API_KEY; a local server needs none",
    "logout": "an API key is the setting LLM_API_KEY; a local server needs none",
    "ls": "type !ls",
    "map": "/context shows what fills the window",
    "memory": "AGENTS.md in the folder holds permanent instructions for the agent; /init writes it",
    "mention": _MENTION,
    "paste": "paste the path of an image, or write @PATH",
    "ps": "type !!lmagent models ps, or run it in your shell",
    "pull": "type !!lmagent models pull MODEL, or run it in your shell",
    "read-only": _MENTION,
    "review": "ask for a review; /diff shows what the agent changed",
    "rewind": "/undo takes back what the agent changed",
    "run": "type !COMMAND",
    "sandbox": "/status shows the sandbox",
    "save": "every session is saved; /export writes one to a file",
    "set": "/config shows the settings, /model picks a model",
    "show": "/status shows the server, /model the model, /config the settings",
    "side": "/btw QUESTION asks on the side",
    "tasks": "/todo shows the tasks, /agents the sub-agents",
    "test": "ask the agent, or type !COMMAND",
    "web": "run lmagent web in your shell for the page",
}
"""Our equivalent of another program's command."""
