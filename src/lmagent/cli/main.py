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
    "models": ("lmagent.cli.models:models", "Download, list, recommend, load and remove models.", MODELS),
    "server": ("lmagent.cli.server:server", "Start, watch and stop the built-in model server.", MODELS),
    "daemon": ("lmagent.cli.server:daemon", "The model server by an older name: up, down, status.", ""),
    "web": ("lmagent.cli.web:web", "Serve the agent to browsers, phones and programs.", SERVE),
    "service": ("lmagent.cli.service:service", "Keep lmagent web running, from your login on.", SERVE),
    "submit": ("lmagent.cli.submit:submit", "Put a task into the inbox, for a scheduler to do.", AUTOMATE),
    "scheduler": ("lmagent.cli.scheduler:scheduler", "Run the due work of a workspace, until stopped.", AUTOMATE),
    "cron": ("lmagent.cli.cron:cron", "List, add, switch, run and remove jobs that run by the clock.", AUTOMATE),
    "doctor": ("lmagent.cli.doctor:doctor", "Check server, model, workspace and tools, with fixes.", LOOK),
    "demo": ("lmagent.cli.demo:demo", "See the agent at work, offline, with a tiny model.", LOOK),
    "config": ("lmagent.cli.config:config", "Show the settings and where each value comes from.", LOOK),
    "tool": ("lmagent.cli.tools:tool", "List the tools, or call one yourself.", LOOK),
    "sandbox": ("lmagent.cli.sandbox:sandbox", "Show the sandbox's guarantees, or run a command in it.", LOOK),
    "completion": ("lmagent.cli.completion:completion", "Print the completion script of a shell.", LOOK),
}
"""Module, summary and heading of each command."""

VALUE_OPTIONS = frozenset(
    {
        *("-w", "--workspace", "-m", "--model", "--base-url", "--permission", "--resume", "--output-schema"),
        *("--scheduler-interval", "--max-iterations", "--record", "--replay", "--sandbox", "--allow-host"),
        *("--budget-steps", "--budget-tokens", "--log-level", "--config"),
    }
)
"""Options of `run` that take a value: needed to tell `lmagent -w DIR TASK` from a sub-command."""


OLDER = {"--scheduler": "scheduler", "--submit": "submit"}
"""Flags of earlier agents that are sub-commands here."""


WORDS = ("help", "version")
"""Words that users type in place of an option."""

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
    """Return the answer to a first word that is neither a command nor the beginning of a task; else nothing."""
    at = first_word(arguments)
    if at < 0 or " " in (word := arguments[at]) or word in COMMANDS or {"-h", "--help", "--version"} & set(arguments):
        return ""
    from lmagent.cli.habits import not_a_task  # a task in quotes does not pay for it

    words = list(arguments[at:])
    option = next((number for number, argument in enumerate(words) if argument.startswith("-")), len(words))
    return not_a_task(words[:option])


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
