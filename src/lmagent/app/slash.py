"""Slash commands: one table for every surface. A surface reads a line, looks it up here and shows the answer."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from lmagent.app.host import Host
from lmagent.app.registry import SlashCommand
from lmagent.core.errors import ConfigError
from lmagent.core.view import View
from lmagent.engine.session import Session
from lmagent.tools.plain import NotPlain, names_in, read_plain

COMMANDS = (".lmagent", "commands")  # the folder of the workspace's own commands

# Headings of `/help`, in order.
CONVERSATION, CHANGES, WORK, SETTINGS, FACTS = GROUPS = (
    "Conversation",
    "Changes of files",
    "Long work",
    "Model and settings",
    "Facts",
)

OWN = "Of this workspace"  # the heading of the workspace's own commands
FIRST_LINE = 80  # characters of a command's first line that are shown

_LINE = re.compile(r"/([\w:?-]*)(?:\s+(.*))?", re.DOTALL)

LONGEST = 50_000  # characters of a command; a longer text is something else


class SlashContext(Struct, frozen=True):
    """The context of a command; the session is None before the first message."""

    host: Host
    session: Session | None
    view: View


def need_session(context: SlashContext) -> Session:
    if context.session is None:
        raise ConfigError("there is no session yet", fix="say something first, or /resume one")
    return context.session


class Choice(Struct, frozen=True):
    """One of several lines that the user can pick; `line` is the whole command, from the slash on."""

    line: str
    label: str
    current: bool = False


class SlashResult(Struct, frozen=True):
    """The result of a command."""

    text: str = ""
    diff: bool = False
    submit: str = ""  # sent to the model as if typed
    session: Session | None = None
    fresh: bool = False
    quit: bool = False
    run: bool = False  # the session has a turn to run
    copy: str = ""
    choices: tuple[Choice, ...] = ()
    theme: str = ""
    headed: bool = False  # lines of `text` that end with a colon are headings


def is_command(text: str) -> bool:
    """Return whether a text is meant as a command: a slash and one word; no path, and no blank before the slash."""
    return _LINE.fullmatch(text.rstrip()) is not None


def find_command(line: str, host: Host) -> tuple[SlashCommand, str]:
    """Return the command that a line names, by our name or another program's, and its arguments."""
    found = _LINE.fullmatch(line.strip())
    name, argument = (found[1], found[2] or "") if found else (line.strip().removeprefix("/"), "")
    known = all_commands(host)
    command = known.get(name) or known.get(SYNONYMS.get(name, ""))
    if command is None:
        why = _unusable(host.workspace)
        raise ConfigError(f"there is no command /{name}{f': {why}' if why else ''}", fix=_way_on(name, list(known)))
    return command, argument


def all_commands(host: Host) -> dict[str, SlashCommand]:
    own = user_commands(host.workspace)
    return {**host.registry.commands, **{name: own[name] for name in own if name not in host.registry.commands}}


async def dispatch(line: str, context: SlashContext) -> SlashResult:
    """Carry out a line that begins with a slash. Raise LmagentError if the command does not exist, or failed."""
    command, argument = find_command(line, context.host)
    return await command.run(context, argument)


def _way_on(name: str, known: list[str]) -> str:
    from difflib import get_close_matches  # only a wrong name needs it

    near = [f"/{match}" for match in get_close_matches(name.lower(), [*known, *SYNONYMS], n=3)]
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    if name.lower() in ELSEWHERE:
        meant = f"{ELSEWHERE[name.lower()]}. "
    return f"{meant}/help lists them; a space before the slash sends it as a message"


def user_commands(workspace: Path) -> dict[str, SlashCommand]:
    """Return the commands of `.lmagent/commands/*.md`: the file is sent as a prompt, with `$ARGUMENTS` replaced.

    A link or a special file is listed as skipped, and never opened.
    """
    with suppress(NotPlain):
        stems = (name.removesuffix(".md") for name in names_in(workspace, COMMANDS) if name.endswith(".md"))
        return {stem: _command(workspace, stem) for stem in stems if re.fullmatch(r"[A-Za-z0-9_-]+", stem)}
    return {}


def _command(workspace: Path, name: str) -> SlashCommand:
    file = (*COMMANDS, f"{name}.md")
    path = "/".join(file)

    async def run(_: SlashContext, argument: str) -> SlashResult:
        try:
            found = read_plain(workspace, file, LONGEST)
        except NotPlain as what:
            raise ConfigError(f"/{name} cannot be used: {path} is {what}", fix="make it a regular file") from None
        if found is None:
            raise ConfigError(f"/{name} cannot be used: {path} is gone", fix="/help lists what there is")
        if found.more:
            raise ConfigError(f"/{name} cannot be used: {path} is longer than {LONGEST:,} characters", fix="shorten it")
        if "$ARGUMENTS" in found.text:
            return SlashResult(submit=found.text.replace("$ARGUMENTS", argument))
        return SlashResult(submit=f"{found.text}\n\n{argument}".strip())

    try:
        found = read_plain(workspace, file, FIRST_LINE)
    except NotPlain as what:
        return SlashCommand(name, "", f"skipped: its file is {what}", run, OWN)
    line = "" if found is None else found.text.partition("\n")[0].strip("# \r")
    return SlashCommand(name, "[arguments]", line, run, OWN)


def _unusable(workspace: Path) -> str:
    """Return why the workspace's own commands cannot be used; empty if they can."""
    try:
        names_in(workspace, COMMANDS)
    except NotPlain as what:
        return f"{'/'.join(COMMANDS)} is {what}, so your own commands are left out"
    return ""


# --- names in other agents and model runners --------------------------------------------------------------------------

# Names of commands of ours that do the same.
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

_MENTION = "write @PATH in your message to attach a file"

# Our equivalent of another program's command.
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
