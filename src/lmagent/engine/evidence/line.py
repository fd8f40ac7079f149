"""Line: which commands of a shell line have surely run, and passed, when the line's exit code is 0.

Only lines that bash and we read alike are taken: commands joined by `&&`, lines one after the other, pipelines, a
subshell. In what is left out (`||`, `!`, `&`, `if`, functions, `exec`) an exit code says nothing about one command.
"""

from __future__ import annotations

import posixpath
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from lmagent.engine.shellline.grammar import PARSE_SECONDS, prepared, tree
from lmagent.engine.shellline.meter import Meter, TooMuchWork
from lmagent.engine.shellline.words import doubt, names_in, read_word

if TYPE_CHECKING:
    from tree_sitter import Node

HARMLESS = names_in(
    "CI FORCE_COLOR NO_COLOR CLICOLOR COLUMNS LINES TERM TZ LANG LANGUAGE LC_ALL LC_CTYPE PYTHONDONTWRITEBYTECODE "
    "PYTHONUNBUFFERED PYTHONHASHSEED RUST_BACKTRACE NODE_ENV DEBIAN_FRONTEND QT_QPA_PLATFORM PS1"
)
"""Variables that do not decide what a check checks."""

_PASSIVE = names_in("echo pwd true : type test")
_READING = names_in(
    "cat head tail grep egrep ls wc sleep date which tee sort uniq nproc uname stat file du diff cmp echo pwd type"
)
_GIT_READING = names_in("status diff log show")
_BUILTINS = names_in(
    ". alias bg bind break builtin caller compgen complete compopt continue declare dirs disown enable eval exec exit "
    "fc fg getopts hash help history jobs kill let local logout mapfile popd printf pushd read readarray readonly "
    "return shift shopt source suspend times trap typeset ulimit umask unalias unset wait ["
)
"""Builtins that can change what the commands behind them are, or the exit code."""
_OPTIONS = re.compile(r"-[eux]+|-[eux]*o")
_OPTION_NAMES = names_in("errexit nounset pipefail xtrace")
_EXPANDS = frozenset(("expansion", "arithmetic_expansion", "process_substitution"))


class Ran(Struct, frozen=True):
    """A command that has run and passed where the line has.

    Attributes:
        argv: its words; empty where one of them is only known at run time.
        folder: where, relative to the workspace.
        assignments: `NAME=value` before it.
        code: the exit code of its own, where the shell reported that; None where the line's has to do.
    """

    argv: tuple[str, ...]
    folder: str
    assignments: tuple[str, ...] = ()
    code: int | None = None


class Line(Struct, frozen=True):
    """What a line's exit code 0 proves.

    Attributes:
        ran: commands that have run and passed.
        folder: where it ends.
        fault: why it proves nothing; empty when it does.
        all: every command that may have run, in order, those without words of its own (`echo`, `cd`) left out.
    """

    ran: tuple[Ran, ...] = ()
    folder: str = "."
    fault: str = ""
    all: tuple[Ran, ...] = ()


def is_harmless(assignment: str) -> bool:
    """Whether `NAME=value` does not decide what a check checks; pytest looks into its own folder by itself, too."""
    return assignment == "PYTHONPATH=." or assignment.partition("=")[0] in HARMLESS


def only_reads(ran: Ran) -> bool:
    """Whether a command surely changes nothing that a check looks at, but for what the record of changes shows."""
    name = ran.argv[0] if ran.argv else ""
    return name in _READING or (name == "git" and ran.argv[1:2] != () and ran.argv[1] in _GIT_READING)


class Unclear(Exception):
    """The line is none of those that are taken."""


def read(command: str, folder: str, workspace: str) -> Line:
    """Understand a line.

    Args:
        command: as it was run.
        folder: where it begins, relative to the workspace.
        workspace: its absolute path.
    """
    reason, source = prepared(command)
    if reason:
        return Line(fault=reason)
    root = tree(source, time.perf_counter() + PARSE_SECONDS)
    try:
        if root is None or root.has_error or doubt(root, source, Meter()):
            return Line(fault="it cannot be read with certainty")
        walk = Walk(source, folder, workspace)
        ran = walk.sequence(root)
    except (Unclear, TooMuchWork) as unclear:
        return Line(fault=str(unclear) or "it cannot be read with certainty")
    return Line(tuple(ran), walk.folder, all=tuple(walk.all))


class Walk:
    """Reads a tree from left to right; raises `Unclear` at what it does not take."""

    def __init__(self, source: bytes, folder: str, workspace: str) -> None:
        self.source = source
        self.folder = folder
        self.workspace = workspace
        self.pipefail = False
        self.all = list[Ran]()
        self.last = True  # what runs here has passed where the line has
        self.surely = True  # what runs here is reached, whatever failed before
        self.depth = 0  # of subshells: where they end up is not reported
        self.moves = 0
        self.guessed = False  # whether a `cd` may have failed without anybody noticing

    def raw(self, node: Node) -> str:
        """The text of a node."""
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def sequence(self, node: Node) -> list[Ran]:
        """Statements one after the other: only the last one's exit code counts."""
        statements = list["Node"]()
        for kid in node.children:
            if kid.type == "&":
                raise Unclear("it runs something in the background")
            if kid.is_named and kid.type != "comment":
                statements.append(kid)
        found, outer = list[Ran](), (self.last, self.surely)
        for at, statement in enumerate(statements, 1):
            self.last = outer[0] and at == len(statements)
            found = self.sure(statement)
            self.surely = outer[1]
        self.last = outer[0]
        return found

    def sure(self, node: Node) -> list[Ran]:
        """Commands that have passed where this has."""
        match node.type:
            case "command":
                return self.command(node)
            case "list":
                return self.chain(node)
            case "pipeline":
                return self.pipeline(node)
            case "redirected_statement":
                return self.redirected(node)
            case "subshell":
                return self.inner(node, self.sequence)
            case "declaration_command" | "variable_assignment" | "variable_assignments":
                return self.assigned(node)
            case "negated_command":
                raise Unclear("its exit code is turned round")
            case _:
                raise Unclear("its exit code may come from something else")

    def pipeline(self, node: Node) -> list[Ran]:
        """Every member is a shell of its own: where it goes and what it sets is gone with it."""
        members = [kid for kid in node.children if kid.is_named]
        last, pipefail = self.last, self.pipefail
        passed = list[list[Ran]]()
        for kid in members:
            self.last = last and (pipefail or kid == members[-1])
            passed.append(self.inner(kid, self.sure))
        self.last = last
        return [ran for kid in passed for ran in kid] if pipefail else passed[-1]

    def inner(self, node: Node, walk: Callable[[Node], list[Ran]]) -> list[Ran]:
        """What a shell of its own runs: the folder and the options are as before it."""
        outer = (self.folder, self.pipefail)
        self.depth += 1
        found = walk(node)
        self.depth -= 1
        self.folder, self.pipefail = outer
        return found

    def chain(self, node: Node) -> list[Ran]:
        """Commands joined by `&&`: all have passed."""
        found = list[Ran]()
        for kid in node.children:
            if kid.is_named:
                found += self.sure(kid)
                self.surely = self.surely and self.last
            elif kid.type != "&&":
                raise Unclear("its exit code may come from something else")
        return found

    def redirected(self, node: Node) -> list[Ran]:
        """What is redirected to where its words say."""
        return self.sure(self.check_redirects(node))

    def check_redirects(self, node: Node) -> Node:
        """What is redirected."""
        body = node.child_by_field_name("body")
        for kid in node.children:
            if body is not None and kid == body:
                continue
            targets = [one for one in kid.children if one.is_named and one.type != "file_descriptor"]
            if kid.type != "file_redirect" or len(targets) != 1:
                raise Unclear("it has a redirect that is not understood")
            word = read_word(targets[0], self.source)
            if word is None or not word.known:
                raise Unclear("it has a redirect that is not understood")
        if body is None:
            raise Unclear("it has a redirect that is not understood")
        return body

    def assigned(self, node: Node) -> list[Ran]:
        """Variables that are set for what follows."""
        text = self.raw(node)
        pieces = text.split()[1:] if node.type == "declaration_command" else text.split()
        if node.type == "declaration_command" and not text.startswith("export "):
            raise Unclear("it changes the shell")
        if not pieces or not all(map(is_harmless, pieces)) or re.search(r"[$`(]", text):
            raise Unclear("it sets variables that may decide what is run")
        return []

    def command(self, node: Node) -> list[Ran]:
        """A simple command."""
        words = list[str]()
        assignments = list[str]()
        known = True
        self.check_expansions(node)
        for kid in node.children:
            if kid.type == "variable_assignment":
                assignments.append(self.raw(kid))
                if re.search(r"[$`(]", assignments[-1]):
                    raise Unclear("it sets variables that may decide what is run")
                continue
            if kid.type.endswith("redirect"):
                raise Unclear("it has a redirect that is not understood")
            word = read_word(kid, self.source)
            if word is None or (not words and not word.known):
                raise Unclear("it has a word that is not understood")
            words.append(word.text)
            known = known and word.known
        return self.plain(words, assignments, known)

    def check_expansions(self, node: Node) -> None:
        """`${x:=y}` and `$((x = 1))` set variables; `$x` and `$(y)` do not."""
        stack = [node]
        while stack:
            one = stack.pop()
            if one.type in _EXPANDS:
                raise Unclear("it has an expansion that may change the shell")
            stack.extend(one.children)

    def plain(self, words: list[str], assignments: list[str], known: bool) -> list[Ran]:
        """A simple command by its words."""
        name = words[0] if words else ""
        if name == "cd":
            self.change(words, known)
        elif name == "set":
            self.options(words[1:])
        elif name in _BUILTINS or not name:
            raise Unclear(f"{name or 'it'} can change what is run, or the exit code")
        elif name not in _PASSIVE:
            words[0] = name.removeprefix(f"{self.workspace}/").removeprefix("/workspace/")
            ran = Ran(tuple(words) if known else (), self.folder, tuple(assignments))
            self.all.append(ran)
            return [ran]
        elif not known:
            self.all.append(Ran((), self.folder))  # `echo $(rm x)` does more than it seems to
        return []

    def change(self, words: list[str], known: bool) -> None:
        """Go to another folder."""
        if len(words) != 2 or not known or words[1].startswith("-"):
            raise Unclear("it goes to a folder that is only known at run time")
        self.moves += 1
        self.guessed = self.guessed or not self.last
        if self.guessed and (self.depth or self.moves > 1):
            raise Unclear("it goes to a folder, which may fail without ending it")
        target = words[1]
        for root in (self.workspace, "/workspace"):
            if target == root or target.startswith(f"{root}/"):
                self.folder = posixpath.normpath(target[len(root) :].lstrip("/") or ".")
                return
        self.folder = posixpath.normpath(posixpath.join(self.folder, target))

    def options(self, words: list[str]) -> None:
        """The options of `set`."""
        at = 0
        while at < len(words):
            if not _OPTIONS.fullmatch(words[at]):
                raise Unclear("it changes the shell")
            if words[at].endswith("o"):
                at += 1
                if at >= len(words) or words[at] not in _OPTION_NAMES:
                    raise Unclear("it changes the shell")
                self.pipefail = self.pipefail or (words[at] == "pipefail" and self.surely)
            at += 1
