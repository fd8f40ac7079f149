"""Expand: a command's text becomes the message: arguments, outputs of commands, and files are filled in.

The text is one of a file, so its commands are asked about and confined like those of the model, and outputs and files
are framed: they do not speak for the user. They are not expanded again.
"""

from __future__ import annotations

import os
import re
import shlex
from functools import partial

import anyio
from anyio import to_thread

from lmagent.app.host import Host
from lmagent.app.owncommands.files import LONGEST, RUNS, CommandFile, CommandText, load
from lmagent.app.registry import SlashCommand
from lmagent.app.slash import OWN, SlashContext, SlashResult
from lmagent.config.trust import is_trusted
from lmagent.core.errors import ConfigError, ToolError
from lmagent.core.events import COMMAND_CALL, Event, ToolFinished
from lmagent.core.ids import new_id
from lmagent.core.messages import ToolCall
from lmagent.core.outside import framed
from lmagent.engine.act import perform
from lmagent.engine.recovery import close_own_calls
from lmagent.engine.session import Session
from lmagent.engine.toolbox import Invocation
from lmagent.policy import gate
from lmagent.policy.paths import located
from lmagent.tools.beneath import Beneath
from lmagent.tools.plain import NotPlain
from lmagent.tools.sanitize import one_line, printable
from lmagent.tools.shell import Shell
from lmagent.tools.textfile import decode, is_binary

LARGEST_FILE = 50_000  # bytes of a file that is filled in
LARGEST_FILES = 100_000  # characters of all files of one message

_ARGUMENT = re.compile(r"\\?\$(ARGUMENTS\b|[1-9](?!\d))")
_PLACES = re.compile(rf"{RUNS.pattern}|{_ARGUMENT.pattern}|(?<!\S)@(\"[^\"\n]+\"|\S+)")


def command_of(file: CommandFile) -> SlashCommand:
    """Return the slash command of a file. A link or a special file is listed as skipped, and never opened."""

    async def run(context: SlashContext, argument: str) -> SlashResult:
        try:
            text = load(file)
        except NotPlain as what:
            raise ConfigError(
                f"/{file.name} cannot be used: {file.path} is {what}", fix="make it a regular file"
            ) from None
        if text is None:
            why = f"is gone, or is longer than {LONGEST:,} characters"
            raise ConfigError(f"/{file.name} cannot be used: {file.path} {why}", fix="shorten it; /help lists all")
        message = await _expanded(file, text, context, argument)
        return SlashResult(submit=message, typed=argument)

    try:
        text = load(file)
    except NotPlain as what:
        return SlashCommand(file.name, "", f"skipped: its file is {what}", run, OWN)
    if text is None:
        return SlashCommand(file.name, "", "", run, OWN)
    runs = RUNS.search(text.body) is not None
    return SlashCommand(file.name, text.usage or "[arguments]", text.description, run, OWN, asks=runs)


async def _expanded(file: CommandFile, text: CommandText, context: SlashContext, argument: str) -> str:
    """Return the message: arguments that the text has no place for come last."""
    is_placed = any(not found[0].startswith("\\") for found in _ARGUMENT.finditer(text.body))
    body = text.body if is_placed else f"{text.body}\n\n$ARGUMENTS"
    words = _words(argument)
    commands = [_quoted(found[1], words) for found in _PLACES.finditer(body) if found[1] is not None]
    outputs = await _outputs(file, commands, context) if commands else []
    files, room = dict[str, str](), LARGEST_FILES
    for name in dict.fromkeys(_files_in(body)):
        files[name] = await _file(context.host, context.session, name, room)
        room -= len(files[name])

    def place(found: re.Match[str]) -> str:
        if found[1] is not None:
            return outputs.pop(0)
        if (name := found[3]) is not None:
            return files.pop(name, f"@{name}")  # a file is filled in once
        return _argument(found, argument, words)

    return _PLACES.sub(place, body).strip()


def _words(argument: str) -> list[str]:
    try:
        return shlex.split(argument)
    except ValueError:  # an apostrophe, for example
        return argument.split()


def _quoted(command: str, words: list[str]) -> str:
    """Return a command with the arguments, each one word of the shell whatever the user typed.

    Raises ConfigError: a place for an argument is in quotes, where our own quotes would end them.
    """
    for found in _ARGUMENT.finditer(command):
        before = re.sub(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"", "", command[: found.start()])
        if not found[0].startswith("\\") and re.search("[\"']", before):
            raise ConfigError(f"{found[0]} is in quotes in the command {command}", fix="write it without quotes")
    each = [shlex.quote(word) for word in words]
    return _ARGUMENT.sub(lambda found: _argument(found, " ".join(each), each), command)


def _argument(found: re.Match[str], argument: str, words: list[str]) -> str:
    name = found[0].lstrip("\\$")
    if found[0].startswith("\\"):
        return found[0][1:]
    if name == "ARGUMENTS":
        return argument
    return words[int(name) - 1] if int(name) <= len(words) else ""


# --- commands ---------------------------------------------------------------------------------------------------------


async def _outputs(file: CommandFile, commands: list[str], context: SlashContext) -> list[str]:
    """Run the commands one after the other; return their framed outputs. The first that is refused ends it."""
    host, session = context.host, context.session
    if not file.own and not is_trusted(host.settings.agent_data_dir, host.workspace):
        raise ConfigError(
            f"/{file.name} runs commands, and this folder is not trusted; nothing was run or sent",
            fix=f"look at {file.path}, then trust the folder: lmagent config trust",
        )
    if session is None:
        raise ConfigError(f"/{file.name} runs commands, and there is no session yet", fix="say something first")
    if session.state.turn_open:
        raise ConfigError(f"/{file.name} runs commands, and the agent works", fix="wait for its end, or stop it")
    return [framed(f"command {command}", await _output(file, command, host, session)) for command in commands]


async def _output(file: CommandFile, command: str, host: Host, session: Session) -> str:
    shell = host.toolbox.get("shell")
    if shell is None:
        raise ConfigError(f"/{file.name} runs commands, and enable_shell is off", fix="/config shows the settings")
    call, ended = f"{COMMAND_CALL}{new_id()}", list[ToolFinished]()

    def watch(event: Event) -> None:
        if isinstance(event, ToolFinished) and event.call_id == call:
            ended.append(event)

    stop = session.listen(watch)
    try:
        await perform(session, Invocation(ToolCall(call, shell.name, ""), shell, Shell(command)), None)
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await close_own_calls(session)
        raise
    finally:
        stop()
    (result,) = ended
    if result.status != "ok":
        shown, why = one_line(command), str(result.data.get("why") or one_line(result.content, 300))
        what = "was denied" if result.status == "denied" else "did not run"
        raise ConfigError(
            f"/{file.name} was not sent: its command {shown} {what}: {why}",
            fix=f"{file.path} has the command; /permissions shows the rules",
        )
    return result.content


# --- files ------------------------------------------------------------------------------------------------------------


def _files_in(body: str) -> list[str]:
    return [found[3] for found in _PLACES.finditer(body) if found[3] is not None]


async def _file(host: Host, session: Session | None, word: str, room: int) -> str:
    """Return a framed file of at most `room` characters, or the word with the reason why the file is left out."""
    name = word.strip('"')
    path = name if word.startswith('"') else name.rstrip(".,;:!?)]")
    rest = "" if word.startswith('"') else name[len(path) :]
    try:
        text = await to_thread.run_sync(partial(_read, host, session, path))
    except FileNotFoundError:
        return f"@{word}"
    except ToolError as refused:
        return f"@{path} [not attached: {one_line(refused.message, 300)}]{rest}"
    if len(text) > room:
        return f"@{path} [not attached: files of one message may have {LARGEST_FILES:,} characters together]{rest}"
    return framed(f"file {path}", text) + rest


def _read(host: Host, session: Session | None, path: str) -> str:
    """Return the text of a file that no rule keeps from the model.

    Raises ToolError: it is left out; FileNotFoundError: the word is no path at all.
    """
    looks = re.search("[/.]", path[:-1]) is not None and re.fullmatch(r"\w", path[-1:]) is not None
    if not path or not (looks or os.path.exists(host.workspace / path)):
        raise FileNotFoundError
    asked = gate.Request("read", "read", located(str(host.workspace), (path,)))
    verdict = gate.judge(asked, "normal", host.rules, session.state.grants if session is not None else ())
    if verdict.decision != "allow":
        raise ToolError(verdict.reason)
    with Beneath(host.workspace) as files:
        data = files.read_bytes(path, LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise ToolError(f"it is larger than {LARGEST_FILE:,} bytes; read it page by page")
    decoded = None if is_binary(data) else decode(data)
    if decoded is None:
        raise ToolError("it is no text")
    return printable(decoded[0]).rstrip("\n")
