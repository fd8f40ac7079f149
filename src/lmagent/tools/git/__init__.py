"""git: status, diff, add, commit and branch. The code of the calls is in `calls.py`, imported at the first call."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from msgspec import Meta, Struct

from lmagent.core.sandbox import GetSandbox
from lmagent.core.tool import Run, Tool, ToolContext, ToolOutput
from lmagent.tools.paths import lexical
from lmagent.tools.read import PATH_NAMES
from lmagent.tools.sanitize import one_line


class GitStatus(Struct, frozen=True):
    """Arguments of git_status."""


class GitDiff(Struct, frozen=True):
    """Arguments of git_diff."""

    path: str = ""
    staged: bool = False


class GitAdd(Struct, frozen=True):
    """Arguments of git_add."""

    paths: list[str]


class GitCommit(Struct, frozen=True):
    """Arguments of git_commit."""

    message: str
    allow_empty: bool = False


class GitBranch(Struct, frozen=True):
    """Arguments of git_branch."""

    name: Annotated[str, Meta(description="none: list branches")] = ""
    create: bool = False
    switch: bool = False


def git_tools(sandbox: GetSandbox, *, author: tuple[str, str] = ("lmagent", "lmagent@localhost")) -> tuple[Tool, ...]:
    """Return the git tools; `author` is name and address for commits in a repository without an author."""

    calling = partial(_calling, sandbox, author)
    read = partial(Tool, effect="read", replay_safe=True, deferred=True)
    change = partial(Tool, effect="exec", deferred=True)
    return (
        read(
            name="git_status",
            description="Branch, staged, changed and untracked files.",
            arguments=GitStatus,
            run=calling("status"),
        ),
        read(
            name="git_diff",
            description="Diff of what is not staged, or of what is.",
            arguments=GitDiff,
            run=calling("diff"),
            renames={**PATH_NAMES, "cached": "staged"},
            targets=lambda arguments: (lexical(arguments.path or "."),),
        ),
        change(
            name="git_add",
            description="Stage files.",
            arguments=GitAdd,
            run=calling("add"),
            renames=dict.fromkeys(("path", "files", "file"), "paths"),
            summary=lambda arguments: f"git add {one_line(' '.join(arguments.paths))}",
            targets=lambda arguments: tuple(map(lexical, arguments.paths)),
        ),
        change(
            name="git_commit",
            description="Commit what is staged.",
            arguments=GitCommit,
            run=calling("commit"),
            unlisted=("allow_empty",),
            renames={"msg": "message"},
            summary=lambda arguments: f"git commit {one_line(arguments.message, 100)}",
        ),
        change(
            name="git_branch",
            description="List branches, create one, switch to one, or both.",
            arguments=GitBranch,
            run=calling("branch"),
            renames={"branch": "name", "branch_name": "name"},
            summary=_branch_summary,
        ),
    )


def _calling(sandbox: GetSandbox, author: tuple[str, str], name: str) -> Run:
    async def run(arguments: Any, ctx: ToolContext) -> ToolOutput:
        from lmagent.tools.git.calls import CALLS, Git, carry_out

        return await carry_out(CALLS[name], Git(sandbox, author), arguments, ctx)

    return run


def _branch_summary(arguments: GitBranch) -> str:
    flags = f"{' -c' if arguments.create else ''} {one_line(arguments.name)}"
    return f"git {'switch' if arguments.switch else 'branch'}{flags}".rstrip()
