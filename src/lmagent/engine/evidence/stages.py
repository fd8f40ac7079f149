"""Stages: a line whose pipelines report their members' exit codes, so that a check is judged by its own.

`pytest | tail`, `pytest; echo $?` and `pytest || true` end with a code that is not the check's. bash knows it, in
PIPESTATUS, until the next command. So behind every pipeline that may hold a check a function of the shell is called
that notes the codes in a variable and gives the pipeline's code on: what the line does and prints stays the same. Only
lines that are read here from end to end are marked; both who marks and who judges count the pipelines by this reader.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from lmagent.engine.evidence.line import Line, Ran, Unclear, Walk
from lmagent.engine.shellline.grammar import PARSE_SECONDS, prepared, tree
from lmagent.engine.shellline.meter import Meter, TooMuchWork
from lmagent.engine.shellline.words import doubt

if TYPE_CHECKING:
    from tree_sitter import Node

Codes = Sequence[tuple[int, Sequence[int]]]
"""Which pipeline of a line, counted from 0, and the exit codes of its members."""

MARK = "__lmagent_mark"
AGAIN = "__lmagent_again"

_STATUS = re.compile(r"\$\{(?:PIPESTATUS\[(?:\d|@|\*)\]|\?)\}")
_LAST_WORD = re.compile(rb"\$(?:_|\{_)(?![A-Za-z0-9])")
_OPERANDS = {"tail": 0, "head": 0, "cat": 0, "sort": 0, "uniq": 0, "grep": 1, "egrep": 1, "fgrep": 1, "tee": 0}
"""Programs that pass lines on, and how many words they may be given that name no file."""

_OPTION = re.compile(
    r"-|-\d+|-[acinuvxABCEFHPmwos]+\d*|--(?:lines|color|colour|line-buffered|ignore-case|append)(?:=\w+)?"
)
_NUMBERED = re.compile(r"-[a-zA-Z]*[nABCmc]")


_TEED = re.compile(r"\|&?\s*tee\s+(?:-a\s+)?([\w.-][\w./-]*)")
_SAID = re.compile(r"(?:[\W\d_]|\b(?:exit|code|status|rc|ret|result|done|end|pipestatus)(?=[\W\d_]|$))*", re.IGNORECASE)
"""What `echo` may say beside a check without being taken for a check's own words."""


class Pipeline(Struct, frozen=True):
    """A pipeline, or a command by itself, that is run by the shell of the line.

    Attributes:
        at: where it begins, bytes.
        end: where it ends.
        members: for each member what has passed where its code is 0.
        alone: whether a member is one command, so that a code other than 0 is its own.
        shown: whether what a member prints is passed on as it is, if at all.
    """

    at: int
    end: int
    members: tuple[tuple[Ran, ...], ...]
    alone: tuple[bool, ...]
    shown: tuple[bool, ...]


def marked(command: str) -> str:
    """The line with a mark behind each of its pipelines; as it is where it is not understood, or has only one command.

    Args:
        command: as it is to be run.
    """
    source = command.encode("utf-8", "surrogatepass")
    found = _read(command, ".", "/")
    if isinstance(found, str) or prepared(command) != ("", source) or _LAST_WORD.search(source):
        return command
    if len(found.pipelines) == 1 and len(found.pipelines[0].members) == 1:
        return command  # the line's code is its own
    keeps = b"PIPESTATUS" in source
    for number in reversed(range(len(found.pipelines))):
        one = found.pipelines[number]
        again = " | ".join(f"{AGAIN} {at + 1}" for at in range(len(one.members)))
        mark = f"; {{ {MARK} {number}; }} 2>/dev/null{f'; {again}' if keeps and len(one.members) > 1 else ''}; }}"
        source = source[: one.at] + b"{ " + source[one.at : one.end] + mark.encode() + source[one.end :]
    return source.decode("utf-8", "surrogatepass")


def read(command: str, folder: str, workspace: str, codes: Codes) -> Line:
    """Understand a line by the codes that its pipelines reported; `ran` are commands with a code of their own.

    Args:
        command: as it was run.
        folder: where it began, relative to the workspace.
        workspace: its absolute path.
        codes: what was reported.
    """
    found = _read(command, folder, workspace)
    if isinstance(found, str):
        return Line(fault=found)
    reported = dict(codes)
    if len(reported) < len(codes) or not reported.keys() <= set(range(len(found.pipelines))):
        return Line(fault="what it reported is not what it is")
    ran = list[Ran]()
    for number, one in enumerate(found.pipelines):
        own = reported.get(number, ())
        if own and len(own) != len(one.members):
            return Line(fault="what it reported is not what it is")
        for at, code in enumerate(own):
            if code == 0 or one.alone[at]:
                ran += [replace(passed, code=code) for passed in one.members[at] if one.shown[at]]
    return Line(tuple(ran), found.folder, all=tuple(found.all))


def is_silent(ran: Ran, command: str) -> bool:
    """Whether a command beside a check prints nothing of its own that could be taken for what the check says."""
    return ran.argv == ("false",) or ("<" not in command and _passes_on((ran,)))


def teed(command: str) -> frozenset[str]:
    """Files that `tee` writes what was printed to, as the line names them."""
    return frozenset(_TEED.findall(command))


def _read(command: str, folder: str, workspace: str) -> _Measured | str:
    """The line read, or why that cannot be done."""
    reason, source = prepared(command)
    if reason:
        return reason
    root = tree(source, time.perf_counter() + PARSE_SECONDS)
    try:
        if root is None or root.has_error or doubt(root, source, Meter()):
            return "it cannot be read with certainty"
        walk = _Measured(source, folder, workspace)
        walk.statements(root)
    except (Unclear, TooMuchWork) as unclear:
        return str(unclear) or "it cannot be read with certainty"
    return walk


class _Measured(Walk):
    """Takes more than `Walk`: whatever stands between pipelines, since each has codes of its own."""

    def __init__(self, source: bytes, folder: str, workspace: str) -> None:
        super().__init__(source, folder, workspace)
        self.pipelines = list[Pipeline]()

    def statements(self, node: Node) -> None:
        """What is run one after the other by the shell of the line."""
        for kid in node.children:
            if kid.type == "&":
                raise Unclear("it runs something in the background")
            if not kid.is_named or kid.type == "comment":
                continue
            if kid.type == "list":
                self.statements(kid)
            elif kid.type == "redirected_statement" and self.is_around(kid):
                self.check_redirects(kid)
                self.statements(kid)
            elif not kid.type.endswith("_redirect"):
                self.leaf(kid)

    def is_around(self, node: Node) -> bool:
        """Whether a redirect belongs to the last of what it stands behind, and not to all."""
        body = node.child_by_field_name("body")
        return body is not None and body.type in ("list", "pipeline")

    def leaf(self, node: Node) -> None:
        members = [kid for kid in node.children if kid.is_named] if node.type == "pipeline" else [node]
        passed = list[tuple[Ran, ...]]()
        for member in members:
            # A member's code is known by itself. What a command by itself changes (`cd`) holds for those behind it.
            self.last = len(members) > 1
            found = self.inner(member, self.sure) if len(members) > 1 else self.single(member)
            self.pipefail, self.last = False, True
            passed.append(tuple(found))
        alone = tuple(self.is_command(member) for member in members)
        passing = [_passes_on(ran) and "<" not in self.raw(kid) for ran, kid in zip(passed, members, strict=True)]
        shown = tuple(all(passing[at + 1 :]) for at in range(len(members)))
        self.pipelines.append(Pipeline(node.start_byte, node.end_byte, tuple(passed), alone, shown))

    def single(self, node: Node) -> list[Ran]:
        text = self.raw(node)
        if node.type == "test_command" or (node.type == "command" and text.split()[0] == "exit"):
            self.check_expansions(node)
            if "$(" in text or "`" in text:
                raise Unclear("it has an expansion that may change the shell")
            return []
        self.last = node.type != "command"
        return self.sure(node)

    def is_command(self, node: Node) -> bool:
        body = node.child_by_field_name("body") if node.type == "redirected_statement" else node
        return body is not None and body.type == "command"

    def check_expansions(self, node: Node) -> None:
        """Codes may be asked for."""
        if not _STATUS.search(self.raw(node)):
            return super().check_expansions(node)
        stack = [node]
        while stack:
            one = stack.pop()
            if one.type == "expansion" and _STATUS.fullmatch(self.raw(one)):
                continue
            if one.type in ("expansion", "arithmetic_expansion", "process_substitution", "command_substitution"):
                raise Unclear("it has an expansion that may change the shell")
            stack.extend(one.children)
        return None

    def plain(self, words: list[str], assignments: list[str], known: bool) -> list[Ran]:
        """What is printed beside a check may be taken for its own words."""
        if not words or words[0] not in ("echo", "pwd", "type"):
            return super().plain(words, assignments, known)
        text = " ".join(words[1:])
        if "$(" in text or "`" in text:
            self.all.append(Ran((), self.folder))
        elif words[0] != "echo" or not _SAID.fullmatch(text):
            self.all.append(Ran(tuple(words), self.folder))
        return []

    def options(self, words: list[str]) -> None:
        """`set` by itself lists what is there, the marks too; with -x each command is printed."""
        if not words or any("x" in word for word in words if word.startswith("-")) or "xtrace" in words:
            raise Unclear("it shows what the shell does")
        super().options(words)


def _passes_on(member: tuple[Ran, ...]) -> bool:
    """Whether a member of a pipeline prints nothing but lines that it was given."""
    if len(member) != 1 or not member[0].argv or member[0].argv[0] not in _OPERANDS:
        return False
    name, *rest = member[0].argv
    operands, number = 0, False
    for word in rest:
        if number and word.isdigit():
            number = False
        elif not word.startswith("-"):
            operands += 1
        elif not _OPTION.fullmatch(word):
            return False
        else:
            number = _NUMBERED.fullmatch(word) is not None
    return name == "tee" or operands <= _OPERANDS[name]
