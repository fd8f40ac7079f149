"""Runs git in the sandbox.

A repository is not trusted: its configuration and hooks may be anyone's. The programs that git would run by itself are
disabled (`research/sandbox.md` §9); the filters that remain run in the sandbox, like any command.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from msgspec import Struct

from lmagent.core.errors import ToolError
from lmagent.core.sandbox import Exec, Exit, GetSandbox, Stream
from lmagent.tools.git_output import GitState, parse_status
from lmagent.tools.sanitize import one_line, printable

KEPT = 16 << 20
"""Bytes of a git's output that are kept."""

TIMEOUT = 120.0

LITERAL = ":(top,literal)"
"""Before a path: wildcards in the path are literal."""

_OFF = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.untrackedCache=false", "diff.external="),
    *("core.pager=cat", "core.editor=true", "commit.gpgSign=false", "log.showSignature=false", "color.ui=false"),
    *("gc.auto=0", "maintenance.auto=false", "submodule.recurse=false", "core.quotePath=false"),
    *("i18n.commitEncoding=utf-8", "i18n.logOutputEncoding=utf-8"),
    "safe.directory=*",  # the owner may have no name in the sandbox
)
_ENV = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C.UTF-8",  # its messages are parsed here
    "LANGUAGE": "",
}
_STATUS = ("status", "--porcelain=v2", "--branch", "-z")


class GitResult(Struct, frozen=True):
    end: Exit
    out: bytes
    errors: str

    @property
    def ok(self) -> bool:
        return self.end.code == 0 and self.end.reason == "exit"


class Git:
    """Runs git; `author` is name and address for commits in a repository without an author."""

    def __init__(self, sandbox: GetSandbox, author: tuple[str, str]) -> None:
        self._sandbox = sandbox
        self._author = author
        self.notes = list[str]()

    async def ask(self, *arguments: str, read: bool = True, settings: Sequence[str] = ()) -> GitResult:
        """Run git and return the result, unless there is no repository or no git.

        With `read`, the command takes no lock; `settings` are more `key=value` settings.

        Raises:
            SandboxError: the command was not run.
            ToolError: there is no git or no repository, or the time was over.
        """
        sandbox = await self._sandbox()
        options = [part for setting in (*_OFF, *settings) for part in ("-c", setting)]
        locks = ("--no-optional-locks",) if read else ()
        # Folders above the workspace are not part of it, even if a backend shows them.
        env = {**_ENV, "GIT_CEILING_DIRECTORIES": os.path.dirname(sandbox.root)}
        out, errors = bytearray(), bytearray()

        def take(stream: Stream, piece: bytes) -> None:
            into = errors if stream == "stderr" else out
            into.extend(piece[: max(KEPT - len(into), 0)])

        running = await sandbox.start(Exec(("git", *locks, *options, *arguments), env=env, timeout=TIMEOUT), take)
        end = await running.wait()
        self.notes += [note for note in end.notes if note not in self.notes]
        done = GitResult(end, bytes(out), printable(errors.decode("utf-8", "replace")).replace(LITERAL, "").strip())
        if not done.ok:
            _require_repository(arguments[0], done)
        return done

    async def run(self, *arguments: str, read: bool = True, whole: bool = False) -> GitResult:
        """Run git and return the result; a failure is an error for the model.

        With `whole`, truncated output is an error, since hidden paths are removed from it.

        Raises:
            SandboxError: the command was not run.
            ToolError: it failed.
        """
        done = await self.ask(*arguments, read=read)
        if not done.ok:
            raise failed(arguments[0], done)
        if whole and len(done.out) >= KEPT:
            raise ToolError("There are too many paths to list. Name fewer.", data={"code": "too_many"})
        return done

    async def status(self, *pathspecs: str, every: bool = False) -> GitState:
        """Return the status; `every` lists untracked files instead of their folders."""
        untracked = f"--untracked-files={'all' if every else 'normal'}"
        return parse_status((await self.run(*_STATUS, untracked, "--", *pathspecs, whole=True)).out)

    async def identity(self) -> list[str]:
        """Return the settings for a commit's author, if the repository has none."""
        found = (await self.ask("config", "--null", "--get-regexp", r"^user\.(name|email)$")).out
        known = {entry.split(b"\n", 1)[0].decode().lower() for entry in found.split(b"\0") if entry}
        mine = dict(zip(("user.name", "user.email"), self._author, strict=True))
        return [f"{key}={value}" for key, value in mine.items() if key not in known]


def _require_repository(command: str, done: GitResult) -> None:
    if done.end.code == 127:
        raise ToolError("There is no git where commands run.", data={"code": "no_git"})
    if done.end.reason != "exit":
        why = {"timeout": f"took more than {TIMEOUT:.0f} s", "memory": "ran out of memory"}
        raise ToolError(f"git {command} {why.get(done.end.reason, 'was killed')}.", data={"code": done.end.reason})
    if "not a git repository" in done.errors.lower():
        where = done.errors.partition("not a git repository: ")[2].split("\n")[0]
        why = (
            f"its .git points to {one_line(where, 300)}, which commands cannot see"
            if where
            else "git init makes one, unless the workspace is a part of one: then work in that one's top folder"
        )
        raise ToolError(f"The workspace is not a git repository: {why}.", data={"code": "no_repository"})
    if "index.lock" in done.errors and "File exists" in done.errors:
        raise ToolError(
            "Another git is at work here: .git/index.lock exists. Try again; if it stays, remove it.",
            data={"code": "locked"},
        )


def failed(command: str, done: GitResult) -> ToolError:
    """Return the error for a git that failed, with git's own message."""
    said = "\n".join(line for line in done.errors.split("\n") if not line.startswith("hint:"))
    said = said or done.out.decode("utf-8", "replace")
    words = printable(said).removeprefix("fatal: ").removeprefix("error: ").strip()[:2000]
    return ToolError(f"git {command} failed: {words}", data={"code": "git", "exit_code": done.end.code})
