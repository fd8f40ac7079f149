"""The git calls status, diff, add, commit and branch: each runs git in the sandbox.

A repository is not trusted: its configuration and hooks may be anyone's. The programs that git would run by itself for
reading are disabled (`research/sandbox.md` §9); the filters that remain run in the sandbox, like any command.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from lmagent.core.errors import ToolError
from lmagent.core.plurals import plural
from lmagent.core.tool import ToolContext, ToolOutput
from lmagent.tools.git import GitAdd, GitBranch, GitCommit, GitDiff, GitStatus
from lmagent.tools.git_output import GitChange, GitState, describe, diff_text, listed, lists, name
from lmagent.tools.git_run import LITERAL, Git, GitResult, failed
from lmagent.tools.paths import guard, parse
from lmagent.tools.sanitize import one_line, printable
from lmagent.tools.walk import withheld

SHOWN = 1 << 20
"""Bytes of a diff that are kept."""

LONGEST_MESSAGE = 100_000
"""Bytes of a commit's message; one argument of a command has at most 128 KiB."""

BRANCHES = 50

_DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--no-relative")
_EXCLUDED = ":(exclude,top,literal)"
_MOST_EXCLUDED = 100_000  # bytes, for the same reason as the message

GitCall = Callable[[Git, Any, ToolContext], Awaitable[ToolOutput]]


async def carry_out(call: GitCall, git: Git, arguments: Any, ctx: ToolContext) -> ToolOutput:
    """Make a call; the output includes the sandbox's notes. Raises ToolError."""
    try:
        output = await call(git, arguments, ctx)
    except ToolError as refusal:
        raise ToolError("\n".join([refusal.message, *_notes(git)]), data=refusal.data) from None
    notes = _notes(git)
    return replace(output, content="\n".join([output.content, *notes]), data={**output.data, "notes": notes})


def _notes(git: Git) -> list[str]:
    return [f"[{one_line(note, 500)}]" for note in git.notes]


async def _status(git: Git, _: GitStatus, ctx: ToolContext) -> ToolOutput:
    status = (await git.status()).without(ctx.hidden)
    facts = {"branch": status.branch, "staged": len(status.staged), "changed": len(status.changed)}
    return ToolOutput(describe(status), {**facts, "untracked": len(status.untracked)})


async def _diff(git: Git, arguments: GitDiff, ctx: ToolContext) -> ToolOutput:
    where = _pathspec(arguments.path, ctx) if arguments.path else ":(top)"
    staged = ("--cached",) if arguments.staged else ()
    named = await git.run(*_DIFF, *staged, "--name-only", "--no-renames", "-z", "--", where, whole=True)
    paths = list(dict.fromkeys(filter(None, named.out.decode("utf-8", "surrogateescape").split("\0"))))
    hidden = list(filter(ctx.hidden, paths))
    if len(hidden) == len(paths):
        return await _no_difference(git, arguments, ctx, len(hidden))
    # Standard prefixes, whatever the repository's setting: programs that read diffs expect them.
    prefixes = ("--src-prefix=a/", "--dst-prefix=b/")
    done = await git.run(*_DIFF, *staged, *prefixes, "--", where, *_excluding(hidden))
    notes = [f"[cut after {SHOWN:,} bytes; name a path]"] if len(done.out) > SHOWN else []
    notes += [f"[{withheld(len(hidden))}]"] if hidden else []
    return ToolOutput(
        "\n".join([diff_text(done.out[:SHOWN]).rstrip("\n"), *notes]), {"files": len(paths) - len(hidden)}
    )


async def _no_difference(git: Git, arguments: GitDiff, ctx: ToolContext, hidden: int) -> ToolOutput:
    """Return an output that says why the diff is empty."""
    where = _pathspec(arguments.path, ctx) if arguments.path else ":(top)"
    status = (await git.status(where, every=bool(arguments.path))).without(ctx.hidden)
    label = f" in {one_line(arguments.path, 300)}" if arguments.path else ""
    said = f"No {'staged' if arguments.staged else 'unstaged'} changes{label}."
    if hidden:
        said += f" {withheld(hidden)}"
    elif arguments.path and status.clean and not status.left_out:
        known = await git.ask("ls-files", "--error-unmatch", "--", where)
        if not known.ok:
            raise ToolError(f"git knows no path {one_line(arguments.path, 300)}.", data={"code": "missing"})
    return ToolOutput("\n".join([said, *lists(status)]), {"files": 0})


async def _add(git: Git, arguments: GitAdd, ctx: ToolContext) -> ToolOutput:
    if not arguments.paths:
        raise ToolError('Name what to stage; "." is everything.', data={"code": "invalid_arguments"})
    wanted = [_pathspec(path, ctx, write=True) for path in arguments.paths]
    there = await git.status(*wanted, every=True)
    hidden = sorted(there.every_path() - there.without(ctx.hidden).every_path())
    done = await git.run("add", "--", *wanted, *_excluding([".lmagent", *hidden]), read=False)
    notes = [f"[{withheld(len(hidden))}]"] if hidden else []
    notes += [f"[{one_line(line, 300)}]" for line in done.errors.split("\n") if line.startswith("warning: ")][:5]
    status = (await git.status()).without(ctx.hidden)
    staged = list(map(str, status.staged))
    return ToolOutput("\n".join([listed("staged", staged) if staged else "Nothing is staged.", *notes]))


async def _commit(git: Git, arguments: GitCommit, ctx: ToolContext) -> ToolOutput:
    if not arguments.message.strip():
        raise ToolError("The message is empty. Nothing was committed.", data={"code": "invalid_arguments"})
    if len(arguments.message.encode("utf-8", "replace")) > LONGEST_MESSAGE:
        raise ToolError(f"The message is longer than {LONGEST_MESSAGE:,} bytes.", data={"code": "invalid_arguments"})
    _require_text("message", arguments.message)
    flags = ("--no-verify", "--no-gpg-sign", "--cleanup=whitespace", "-q")
    empty = ("--allow-empty",) if arguments.allow_empty else ()
    identity = await git.identity()
    done = await git.ask("commit", *flags, *empty, "-m", arguments.message, read=False, settings=identity)
    if not done.ok:
        raise _uncommitted(done, (await git.status()).without(ctx.hidden))
    shown = await git.run(
        "log", "-1", "--no-ext-diff", "--no-textconv", "--first-parent", "-m", "--format=%h%x00%s", "--shortstat"
    )
    head, _, counts = printable(shown.out.decode("utf-8", "replace").replace("\0", " ")).strip().partition("\n")
    short = head.split(" ", 1)[0]
    return ToolOutput(f"Committed {head}\n{counts.strip() or 'no file changed'}", {"commit": short})


def _uncommitted(done: GitResult, status: GitState) -> ToolError:
    rest = "\n".join(lists(status))
    if status.conflicts:
        said = "There are unmerged paths, so nothing was committed. Resolve and git_add them first."
    elif status.staged:
        return failed("commit", done)
    elif status.clean:
        said = "There is nothing to commit: the tree is clean. allow_empty=true makes an empty commit."
    else:
        said = "Nothing is staged, so nothing was committed. git_add what belongs to it first."
    return ToolError(
        f"{said}\n{rest}".strip(), data={"code": "nothing_to_commit" if not status.conflicts else "conflict"}
    )


async def _branch(git: Git, arguments: GitBranch, ctx: ToolContext) -> ToolOutput:
    wanted = arguments.name
    if not wanted:
        if arguments.create or arguments.switch:
            raise ToolError("Name the branch.", data={"code": "invalid_arguments"})
        return await _branches(git)
    _require_text("name", wanted)
    if wanted.startswith("-") or not (await git.ask("check-ref-format", "--branch", wanted)).ok:
        raise ToolError(f"{one_line(wanted)!r} cannot be a branch's name.", data={"code": "invalid_arguments"})
    there = (await git.ask("show-ref", "--verify", "--quiet", f"refs/heads/{wanted}")).ok
    label = name(wanted)
    if arguments.create and there:
        raise ToolError(f"Branch {label} exists already; leave create out.", data={"code": "exists"})
    if not arguments.create and not there:
        raise ToolError(f"There is no branch {label}; create=true makes it.", data={"code": "missing"})
    if arguments.switch:
        return await _switch(git, wanted, create=arguments.create)
    if not arguments.create:
        return ToolOutput(f"Branch {label} exists; switch=true switches to it.")
    if not (await git.ask("rev-parse", "--verify", "--quiet", "HEAD")).ok:
        raise ToolError("There is no commit yet for a branch to begin at. Commit first, or add switch=true.")
    await git.run("branch", "--no-track", wanted, read=False)
    return ToolOutput(f"Created branch {label}; switch=true switches to it.", {"branch": wanted})


async def _switch(git: Git, wanted: str, *, create: bool) -> ToolOutput:
    how = ("--no-track", "-c") if create else ("--no-guess",)
    done = await git.ask("switch", *how, wanted, read=False)
    if not done.ok:
        raise _unswitched(done, (await git.status()).conflicts)
    did = "Created and switched" if create else "Switched"
    kept = len(done.out.splitlines())
    carried = f" Uncommitted changes of {plural(kept, 'path')} came along." if kept else ""
    return ToolOutput(f"{did} to branch {name(wanted)}.{carried}", {"branch": wanted})


def _unswitched(done: GitResult, conflicts: Sequence[GitChange]) -> ToolError:
    lost = [line.strip() for line in done.errors.split("\n") if line.startswith("\t")]
    if lost:
        said = "Not switched: these would be overwritten. Commit, move or restore them first."
        return ToolError(f"{said}\n{listed('in the way', lost)}", data={"code": "dirty"})
    if conflicts:
        said = "Not switched: a merge is unfinished. Resolve, git_add and commit first."
        return ToolError(f"{said}\n{listed('conflicts', list(map(str, conflicts)))}", data={"code": "conflict"})
    return failed("switch", done)


async def _branches(git: Git) -> ToolOutput:
    current = (await git.run("branch", "--show-current")).out.decode("utf-8", "replace").strip()
    form = "--format=%(refname:lstrip=2)%00%(objectname:short)%00%(contents:subject)"
    listing = await git.run("for-each-ref", "--sort=-committerdate", form, "refs/heads")
    rows = list[str]()
    for line in listing.out.decode("utf-8", "replace").splitlines():
        branch, commit, subject = [*line.split("\0"), "", ""][:3]
        rows.append(f"{'* ' if branch == current else '  '}{name(branch)} {commit} {one_line(subject, 80)}".rstrip())
    told = [f"current: {name(current)}" if current else "current: none (detached HEAD)", *rows[:BRANCHES]]
    if len(rows) > BRANCHES:
        told.append(f"… and {len(rows) - BRANCHES} more")
    if not rows:
        told.append("no commits yet")
    return ToolOutput("\n".join(told), {"branch": current})


def _pathspec(path: str, ctx: ToolContext, *, write: bool = False) -> str:
    parts = parse(path, ctx.workspace)
    if write:
        guard(parts, write=True)
    return f"{LITERAL}{'/'.join(parts)}" if parts else ":(top)"


def _excluding(paths: Sequence[str]) -> list[str]:
    if sum(len(os.fsencode(path)) for path in paths) > _MOST_EXCLUDED:
        raise ToolError("Too many of these paths are hidden by permission rules. Name fewer.", data={"code": "hidden"})
    return [f"{_EXCLUDED}{path}" for path in paths]


def _require_text(what: str, text: str) -> None:
    """Refuse text that no argument of a command can hold."""
    if "\0" in text:
        raise ToolError(f"The {what} holds a NUL character. Write it without.", data={"code": "invalid_arguments"})
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ToolError(f"The {what} holds half a character.", data={"code": "invalid_arguments"}) from None


CALLS: Mapping[str, GitCall] = {
    "status": _status,
    "diff": _diff,
    "add": _add,
    "commit": _commit,
    "branch": _branch,
}
"""The calls, by the name of their tool without `git_`."""
