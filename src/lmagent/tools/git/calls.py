"""The git calls, each of which runs git in the sandbox and shows git's own words, without paths that rules hide.

A repository is not trusted: its configuration and hooks may be anyone's. The programs that git would run by itself are
disabled; the filters that remain run in the sandbox, like any command.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence, Sized
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from lmagent.core.errors import ToolError
from lmagent.core.sandbox import Exec, Exit, GetSandbox, Stream
from lmagent.core.tool import ToolContext, ToolOutput
from lmagent.tools.git import GitAdd, GitBranch, GitCommit, GitDiff, GitStatus
from lmagent.tools.paths import guard, parse
from lmagent.tools.sanitize import one_line, printable
from lmagent.tools.walk import withheld

KEPT = 16 << 20
"""Bytes of a git's output that are kept."""

SHOWN = 1 << 20
"""Bytes of a diff that are kept."""

MOST = 100
"""Entries of a list that are shown."""

LONGEST_MESSAGE = 100_000
"""Bytes of a commit's message; one argument of a command has at most 128 KiB."""

TIMEOUT = 120.0

_LITERAL = ":(top,literal)"
"""Before a path: wildcards in the path are literal."""

_EXCLUDED = ":(exclude,top,literal)"
_MOST_EXCLUDED = 100_000  # bytes, for the same reason as the message
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
_DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--no-relative")
_INVALID: dict[str, object] = {"code": "invalid_arguments"}


class GitResult(Struct, frozen=True):
    end: Exit
    out: bytes
    errors: str

    @property
    def ok(self) -> bool:
        return self.end.code == 0


class GitState(Struct, frozen=True):
    """The state of a repository: git's line about the branch, and a row for each path that differs and is not hidden.

    A row is that of `git status --short`; `hidden` are the paths that differ and that rules hide.
    """

    branch: str
    rows: list[str]
    hidden: set[str]

    @property
    def listed(self) -> list[str]:
        return _capped(self.rows)

    @property
    def staged(self) -> list[str]:
        return _capped([row for row in self.rows if row[0] not in " ?"])


class Git:
    """Runs git; `author` is name and address for commits in a repository without an author."""

    def __init__(self, sandbox: GetSandbox, author: tuple[str, str]) -> None:
        self._sandbox = sandbox
        self._author = author
        self.notes = dict[str, None]()  # in their order, each once

    async def ask(self, *arguments: str, read: bool = True, settings: Sequence[str] = ()) -> GitResult:
        """Run git and return the result, if it came to its end.

        With `read`, the command takes no lock; `settings` are more `key=value` settings.
        Raises SandboxError or ToolError.
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
        self.notes |= {f"[{one_line(note, 500)}]": None for note in end.notes}
        if end.code == 127:
            raise ToolError("There is no git where commands run.", data={"code": "no_git"})
        if end.reason != "exit":
            raise ToolError(f"git {arguments[0]} was killed: {end.reason}.", data={"code": end.reason})
        return GitResult(end, bytes(out), printable(errors.decode("utf-8", "replace")).replace(_LITERAL, "").strip())

    async def run(self, *arguments: str, read: bool = True, settings: Sequence[str] = ()) -> GitResult:
        """Run git and return the result; a failure is an error for the model. Raises SandboxError or ToolError."""
        done = await self.ask(*arguments, read=read, settings=settings)
        if not done.ok:
            raise failed(arguments[0], done)
        return done

    async def paths(self, *arguments: str) -> list[str]:
        """Return the parts of an output that ends each of them with a NUL."""
        out = (await self.run(*arguments)).out
        if len(out) >= KEPT:  # hidden paths are removed from it, so it must be whole
            raise ToolError("There are too many paths to list. Name fewer.", data={"code": "too_many"})
        return out.decode("utf-8", "surrogateescape").split("\0")

    async def status(self, ctx: ToolContext, *pathspecs: str, every: bool = False) -> GitState:
        """Return the status, as git-status(1) has it in porcelain format 1; `every` lists all untracked files."""
        untracked = f"--untracked-files={'all' if every else 'normal'}"
        records = iter(await self.paths("status", "--porcelain", "--branch", "-z", untracked, "--", *pathspecs))
        state = GitState(next(records).removeprefix("## "), [], set())
        for record in filter(None, records):
            codes, path = record[:2], record[3:]
            renamed = [next(records)] if set(codes) & set("RC") else []
            if any(ctx.hidden(each.rstrip("/")) for each in (path, *renamed)):
                state.hidden.update((path, *renamed))
            else:
                state.rows.append(f"{codes} {' -> '.join(map(name, (*renamed, path)))}")
        return state

    async def identity(self) -> list[str]:
        """Return the settings for a commit's author, if the repository has none."""
        found = (await self.ask("config", "--null", "--get-regexp", r"^user\.(name|email)$")).out
        known = {entry.split(b"\n", 1)[0].decode().lower() for entry in found.split(b"\0") if entry}
        mine = dict(zip(("user.name", "user.email"), self._author, strict=True))
        return [f"{key}={value}" for key, value in mine.items() if key not in known]


def failed(command: str, done: GitResult) -> ToolError:
    """Return the error of a command that failed, in git's own words."""
    lines = [line for line in done.errors.split("\n") if not line.startswith("hint:")]
    why = "\n".join(lines).removeprefix("fatal: ").removeprefix("error: ").strip()[:2000]
    if "not a git repository" in done.errors.lower():  # git diff answers with its whole usage
        where = why.partition("not a git repository")[2].split("\n")[0]
        why = f"not a git repository{where}\nWithout a repository around the workspace, git init makes one."
    return ToolError(
        f"git {command} failed: {why or f'exit code {done.end.code}'}",
        data={"code": "git", "exit_code": done.end.code},
    )


GitCall = Callable[[Git, Any, ToolContext], Awaitable[ToolOutput]]


async def carry_out(call: GitCall, git: Git, arguments: Any, ctx: ToolContext) -> ToolOutput:
    """Make a call; the output includes the sandbox's notes. Raises ToolError."""
    try:
        output = await call(git, arguments, ctx)
    except ToolError as refusal:
        raise ToolError("\n".join([refusal.message, *git.notes]), data=refusal.data) from None
    content = "\n".join([output.content, *git.notes])
    return replace(output, content=content, data={**output.data, "notes": list(git.notes)})


async def _status(git: Git, _: GitStatus, ctx: ToolContext) -> ToolOutput:
    state = await git.status(ctx)
    clean = "" if state.rows or state.hidden else ", clean"
    return ToolOutput("\n".join([f"branch {name(state.branch)}{clean}", *state.listed, *_withheld(state.hidden)]))


async def _diff(git: Git, arguments: GitDiff, ctx: ToolContext) -> ToolOutput:
    where = _pathspec(arguments.path, ctx) if arguments.path else ":(top)"
    staged = ("--cached",) if arguments.staged else ()
    paths = await git.paths(*_DIFF, *staged, "--name-only", "--no-renames", "-z", "--", where)
    paths = list(dict.fromkeys(filter(None, paths)))
    hidden = list(filter(ctx.hidden, paths))
    if len(hidden) == len(paths):
        state = await git.status(ctx, where, every=bool(arguments.path))
        label = f" in {one_line(arguments.path, 300)}" if arguments.path else ""
        said = f"No {'staged' if arguments.staged else 'unstaged'} changes{label}. {withheld(len(hidden))}"
        return ToolOutput("\n".join([said.strip(), *state.listed]), {"files": 0})
    # Standard prefixes, whatever the repository's setting: programs that read diffs expect them.
    prefixes = ("--src-prefix=a/", "--dst-prefix=b/")
    done = await git.run(*_DIFF, *staged, *prefixes, "--", where, *_excluding(hidden))
    notes = [f"[cut after {SHOWN:,} bytes; name a path]"] if len(done.out) > SHOWN else []
    rows = [_diff_text(done.out[:SHOWN]).rstrip("\n"), *notes, *_withheld(hidden)]
    return ToolOutput("\n".join(rows), {"files": len(paths) - len(hidden)})


async def _add(git: Git, arguments: GitAdd, ctx: ToolContext) -> ToolOutput:
    if not arguments.paths:
        raise ToolError('Name what to stage; "." is everything.', data=_INVALID)
    wanted = [_pathspec(path, ctx, write=True) for path in arguments.paths]
    hidden = (await git.status(ctx, *wanted, every=True)).hidden
    done = await git.run("add", "--", *wanted, *_excluding([".lmagent", *sorted(hidden)]), read=False)
    warnings = [f"[{one_line(line, 300)}]" for line in done.errors.split("\n") if line.startswith("warning: ")][:5]
    staged = (await git.status(ctx)).staged
    rows = ["staged:", *staged] if staged else ["Nothing is staged."]
    return ToolOutput("\n".join([*rows, *_withheld(hidden), *warnings]))


async def _commit(git: Git, arguments: GitCommit, ctx: ToolContext) -> ToolOutput:
    if not arguments.message.strip():
        raise ToolError("The message is empty. Nothing was committed.", data=_INVALID)
    if len(arguments.message.encode("utf-8", "replace")) > LONGEST_MESSAGE:
        raise ToolError(f"The message is longer than {LONGEST_MESSAGE:,} bytes.", data=_INVALID)
    _require_text("message", arguments.message)
    flags = ("--no-verify", "--no-gpg-sign", "--cleanup=whitespace")
    empty = ("--allow-empty",) if arguments.allow_empty else ()
    settings = await git.identity()
    done = await git.ask("commit", *flags, *empty, "-m", arguments.message, read=False, settings=settings)
    if not done.ok and not done.errors:  # git lists on its output why there is nothing to commit
        said = "Nothing is staged, so nothing was committed. git_add first; allow_empty=true makes an empty commit."
        raise ToolError("\n".join([said, *(await git.status(ctx)).listed]), data={"code": "nothing_to_commit"})
    if not done.ok:
        raise failed("commit", done)
    summary = printable(done.out.decode("utf-8", "replace")).split("\n")[:2]  # later lines name paths
    return ToolOutput("Committed " + "\n".join(line.strip() for line in summary).rstrip())


async def _branch(git: Git, arguments: GitBranch, ctx: ToolContext) -> ToolOutput:
    wanted, label = arguments.name, name(arguments.name)
    if not wanted and not arguments.create and not arguments.switch:
        listing = await git.run("branch", "--list", "--verbose", "--sort=-committerdate", "--no-color")
        rows = printable(listing.out.decode("utf-8", "replace")).splitlines()
        return ToolOutput("\n".join(_capped(rows)) or (await git.status(ctx)).branch)
    _require_text("name", wanted)
    if wanted.startswith("-") or not (await git.ask("check-ref-format", "--branch", wanted)).ok:
        raise ToolError(f"{one_line(wanted)!r} cannot be a branch's name.", data=_INVALID)
    if arguments.switch:
        how = ("--no-track", "-c") if arguments.create else ("--no-guess",)
        await git.run("switch", "--quiet", *how, wanted, read=False)
        return ToolOutput(f"{'Created and switched' if arguments.create else 'Switched'} to branch {label}.")
    if not arguments.create:
        raise ToolError("create=true creates the branch, switch=true switches to it.", data=_INVALID)
    await git.run("branch", "--no-track", wanted, read=False)
    return ToolOutput(f"Created branch {label}; switch=true switches to it.")


def name(path: str) -> str:
    """Return a path on one line, quoted if it could be taken for something else."""
    if printable(path) == path == path.strip() and not any(char in path for char in '\n\t"\\'):
        return path
    import json  # few paths need quotes

    return json.dumps(path, ensure_ascii=printable(path) != path)


def _diff_text(raw: bytes) -> str:
    """Return a diff as text, with carriage returns visible where old and new line ends differ."""
    text = raw.decode("utf-8", "replace")
    if "\r" in text:
        ends = {line.endswith("\r") for line in text.split("\n") if line[:1] in ("+", "-")}
        text = text.replace("\r\n", "\\r\n" if len(ends) > 1 else "\n")
    return printable(text)


def _capped(rows: list[str]) -> list[str]:
    return [*rows[:MOST], f"… and {len(rows) - MOST} more"] if len(rows) > MOST else rows


def _withheld(hidden: Sized) -> list[str]:
    return [f"({withheld(len(hidden))})"] if hidden else []


def _pathspec(path: str, ctx: ToolContext, *, write: bool = False) -> str:
    parts = parse(path, ctx.workspace)
    if write:
        guard(parts, write=True)
    return f"{_LITERAL}{'/'.join(parts)}" if parts else ":(top)"


def _excluding(paths: Sequence[str]) -> list[str]:
    if sum(len(os.fsencode(path)) for path in paths) > _MOST_EXCLUDED:
        raise ToolError("Too many of these paths are hidden by permission rules. Name fewer.", data={"code": "hidden"})
    return [f"{_EXCLUDED}{path}" for path in paths]


def _require_text(noun: str, text: str) -> None:
    if "\0" in text or text != text.encode("utf-8", "replace").decode():
        raise ToolError(f"The {noun} holds a NUL or half a character, which no command can take.", data=_INVALID)


CALLS: Mapping[str, GitCall] = {
    "status": _status,
    "diff": _diff,
    "add": _add,
    "commit": _commit,
    "branch": _branch,
}
"""The calls, by the name of their tool without `git_`."""
