"""The `lmagent` command, up to where click takes over.

`lmagent TASK` is short for `lmagent run TASK`, and `lmagent` alone for `lmagent chat`.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

from lmagent.cli.streams import prepare, settle

TALK, MODELS, SERVE, AUTOMATE, LOOK = GROUPS = (
    "Work with the agent",
    "Models on this machine",
    "Browser and programs",
    "Automation",
    "Look and check",
)
"""Headings of `lmagent --help`, in order; a command without one is not listed there."""

COMMANDS = {
    "run": ("lmagent.cli.run:run", "Do one task and exit: what lmagent TASK does.", TALK),
    "chat": ("lmagent.cli.run:chat", "Talk with the agent: what lmagent alone does.", TALK),
    "plan": ("lmagent.cli.plan:plan", "Show a plan that waits, and decide on it.", TALK),
    "sessions": ("lmagent.cli.sessions:sessions", "List, show, watch, export, fork, import, delete sessions.", TALK),
    "backup": ("lmagent.cli.backup:backup", "Write sessions, memories and settings to one file.", TALK),
    "restore": ("lmagent.cli.backup:restore", "Bring back what a backup holds.", TALK),
    "memory": ("lmagent.cli.memory:memory", "Search, list, change and remove memories.", TALK),
    "skills": ("lmagent.cli.skills:skills", "List, test, allow and remove skills.", TALK),
    "mcp": ("lmagent.cli.mcp:mcp", "Add, list, test and remove MCP servers, or be one.", TALK),
    "agent": ("lmagent.cli.agent:agent", "Make, test, pack and serve a folder that is an agent.", TALK),
    "models": ("lmagent.cli.models:models", "Download, list, recommend, load and remove models.", MODELS),
    "server": ("lmagent.cli.server:server", "Start, watch and stop the built-in model server.", MODELS),
    "lms-shim": ("lmagent.cli.lms.shim:lms_shim", "Put `lms` on the PATH: LM Studio's verbs, done by lmagent.", MODELS),
    "daemon": ("lmagent.cli.server:daemon", "The model server by an older name: up, down, status.", ""),
    "web": ("lmagent.cli.web:web", "Serve the agent to browsers, phones and programs.", SERVE),
    "acp": ("lmagent.cli.acp:acp", "Be the agent of an editor: Zed, JetBrains, Neovim, Emacs.", SERVE),
    "service": ("lmagent.cli.service:service", "Keep lmagent web running, from your login on.", SERVE),
    "submit": ("lmagent.cli.scheduler:submit", "Put a task into the inbox, for a scheduler to do.", AUTOMATE),
    "scheduler": ("lmagent.cli.scheduler:scheduler", "Run the due work of a workspace, until stopped.", AUTOMATE),
    "cron": ("lmagent.cli.scheduler:cron", "List, add, switch, run and remove jobs that run by the clock.", AUTOMATE),
    "worker": ("lmagent.cli.worker:worker", "Run the work of a cluster's workspaces, until stopped.", AUTOMATE),
    "cluster": (
        "lmagent.cli.cluster:cluster",
        "Set up, watch, drain and check the workers that share a database.",
        AUTOMATE,
    ),
    "doctor": ("lmagent.cli.checks:doctor", "Check server, model, workspace and tools, with fixes.", LOOK),
    "demo": ("lmagent.cli.demo:demo", "See the agent at work, offline, with a tiny model.", LOOK),
    "config": ("lmagent.cli.config:config", "Show the settings and where each value comes from.", LOOK),
    "hooks": ("lmagent.cli.hooks:hooks", "List and try the commands that watch the agent's work.", LOOK),
    "tool": ("lmagent.cli.checks:tool", "List the tools, or call one yourself.", LOOK),
    "sandbox": ("lmagent.cli.checks:sandbox", "Show the sandbox's guarantees, or run a command in it.", LOOK),
    "prove-offline": ("lmagent.cli.offline:prove_offline", "See that nothing leaves this machine.", LOOK),
    "completion": ("lmagent.cli.completing:completion", "Print the completion script of a shell.", LOOK),
}
"""Module, summary and heading of each command."""

VALUE_OPTIONS = frozenset(
    {
        *("-w", "--workspace", "-m", "--model", "--base-url", "--permission", "--resume", "--output-schema"),
        *("--scheduler-interval", "--max-iterations", "--record", "--replay", "--sandbox", "--allow-host"),
        *("--budget-steps", "--budget-tokens", "--log-level", "--config", "--agent"),
    }
)
"""Options of `run` that take a value: needed to tell `lmagent -w DIR TASK` from a sub-command."""


OLDER = {"--scheduler": "scheduler", "--submit": "submit"}
"""Flags of earlier agents that are sub-commands here."""


WORDS = ("help", "version")
"""Words that users type in place of an option."""

CLOSE = 0.8
"""Likeness (0 to 1, difflib's ratio) above which a word counts as a mistyped command."""

ELSEWHERE = {
    **dict.fromkeys(("auth", "login", "logout"), "an API key is the setting LLM_API_KEY; a local server needs none"),
    **dict.fromkeys(("update", "upgrade"), "update it the way you installed it: pip, pipx or uv"),
    "init": "there is nothing to set up: start lmagent in your folder; /init there writes AGENTS.md",
}
"""Answers to the commands of other programs."""

NEAREST = {
    "chat": "start",
    "config": "permissions settings",
    "cron": "tasks",
    "doctor": "setup status",
    "models": "create download install list load ls ps pull rm show unload",
    "sandbox": "exec",
    "server": "logs serve start status stop",
    "service": "install uninstall",
    "sessions": "continue history list ls resume rm show tasks",
    "tool": "list ls",
    "web": "serve",
}
"""Our commands, each with the words of other programs that may mean it."""

USAGE = 64
"""Exit code of a command line that cannot be understood (EX_USAGE of sysexits.h)."""


def first_word(arguments: Sequence[str]) -> int:
    """Return the position of the first argument that is neither an option nor an option's value, or -1."""
    skip = False
    for position, argument in enumerate(arguments):
        if argument == "--":
            break
        if skip:
            skip = False
        elif argument.startswith("-") and len(argument) > 1:
            skip = argument in VALUE_OPTIONS
        else:
            return position
    return -1


def slip(arguments: Sequence[str]) -> str:
    """Return the answer to a word of another program, or to a mistyped command; nothing for a task or a command."""
    at = first_word(arguments)
    if at < 0 or " " in arguments[at] or arguments[at] in COMMANDS or {"-h", "--help", "--version"} & set(arguments):
        return ""
    words = list(arguments[at:])
    words = words[: next((number for number, word in enumerate(words) if word.startswith("-")), len(words))]
    about = len(words) == 2 and words[0] == "help"
    word = words[-1] if about else words[0]
    known = (*COMMANDS, *WORDS)
    if word in known:
        return ""
    nearest = " or ".join(f"lmagent {name}" for name, others in NEAREST.items() if word in others.split())
    if (advice := ELSEWHERE.get(word, nearest and f"see {nearest}, each with --help")) and (about or len(words) == 1):
        return f"'{word}' is not a command here\n  → {advice}"
    if any(word[:2] == name[:2] for name in known):
        from difflib import get_close_matches  # few tasks pay for it

        if meant := get_close_matches(word, known, 1, CLOSE):
            more = f"As a task: lmagent run {' '.join(words)}"
            return f"there is no command '{word}'\n  → did you mean 'lmagent {meant[0]}'? {more}"
    return f"there is no command '{word}'\n  → lmagent --help lists the commands" if about else ""


def rewrite(arguments: Sequence[str]) -> list[str]:
    """Put `run` before a task and `chat` before nothing; leave sub-commands, --help and --version alone."""
    if arguments and arguments[0] in ("-h", "--help", "--version"):
        return list(arguments)
    at = first_word(arguments)
    for position, argument in enumerate(arguments[: at if at >= 0 else len(arguments)]):
        name, equals, value = argument.partition("=")
        if argument == "--":
            break
        if name in OLDER:
            given = [value] if equals else []
            return [OLDER[name], *arguments[:position], *given, *arguments[position + 1 :]]
    before, word, after = arguments[: max(at, 0)], arguments[at] if at >= 0 else "", arguments[at + 1 :]
    if word == "help" and (not after or after[0] in COMMANDS or after[0] in WORDS):
        return [*before, *(argument for argument in after if argument not in WORDS), "--help"]
    if word == "version" and first_word(after) < 0:
        return [*before, "--version"]
    if word in COMMANDS:
        # Options before the sub-command belong to it: lmagent -w DIR sessions list.
        return [word, *before, *after]
    return ["run", *arguments]


def main(arguments: Sequence[str] | None = None) -> None:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if answer := slip(given):
        sys.stderr.write(f"lmagent: {answer}\n")
        sys.exit(USAGE)
    gc.disable()  # imports make no garbage; the surfaces switch it on again when they are ready
    from lmagent.cli.root import call  # click loads a tenth faster with the collector off

    outlet = prepare()
    sys.exit(settle(outlet, call(rewrite(given))))
