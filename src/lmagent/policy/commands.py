"""Read a shell line into the simple commands that it would run; every uncertainty makes the line unclear.

No rule allows an unclear line. Where a rule denies or asks about commands, the user is asked about an unclear line.

The line is parsed with tree-sitter, whose grammar and bash disagree in corner cases: each could hide a command. A tree
is trusted only if all its nodes are of a short list of kinds, its tokens have a plain form, and only blanks are between
them.
"""

from __future__ import annotations

import itertools
import re
import time
from typing import TYPE_CHECKING

from msgspec import Struct

from lmagent.policy.wrappers import REST, RUN_BY_PROGRAMS, Word, Words, base_name, names_in, unwrap

if TYPE_CHECKING:
    from tree_sitter import Node

HARMLESS_TARGETS = frozenset(("/dev/null", "/dev/stdout", "/dev/stderr"))
_MAX_COMMANDS, _MAX_POSSIBLE, _MAX_TEXTS, _MAX_NESTING = 1000, 200, 40, 12
_NAMING = names_in("test [ printf read unset wait getopts")
_DECLARING = names_in("declare typeset local export readonly")
_HIDDEN = re.compile(r"\$\(|`|\$\{|\\(?:x|u|U|0|1)")


class Command(Struct, frozen=True):
    """A simple command. Without words, it is a command that no rule covers, such as an assignment.

    `unknown` are the positions of words that are known only at run time (past the end: any number of words); `loose`
    are those of them that may become an option or several words. `globs`: the name is built of wildcards and may be any
    name.
    """

    argv: tuple[str, ...] = ()
    unknown: tuple[int, ...] = ()
    loose: tuple[int, ...] = ()
    globs: bool = False


class Line:
    """The reading of a shell line; to allow the line, rules must allow all of its commands.

    `possible` are wrappers, and commands that it may run, for rules that deny; `unclear` says why the commands may be
    others, or more.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.commands: list[Command] = []
        self.possible: list[Command] = []
        self.writes: list[str] = []
        self.assignments: list[str] = []
        self.unclear = ""


def read(text: str) -> Line:
    """Read a shell line. Never raises: a line that cannot be read is unclear."""
    reader = _Reader(Line(text))
    reader.read(text)
    if reader.evaluates and reader.hidden:
        reader.doubt("it may run text that is hidden in a variable")
    return reader.line


class _Reader:
    def __init__(self, line: Line) -> None:
        self.line = line
        self.source = b""
        self.texts = self.nesting = 0
        self.evaluates = self.hidden = self.guessing = False

    def doubt(self, reason: str) -> None:
        self.line.unclear = self.line.unclear or reason

    def read(self, text: str) -> None:
        self.texts += 1
        if self.texts > _MAX_TEXTS:
            return self.doubt("it runs too many shells")
        source, root, unsure = _parse(text)
        self.doubt(unsure)
        if root is not None:
            outer, self.source = self.source, source
            self.walk(root, 0)
            self.source = outer
        return None

    def raw(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def walk(self, node: Node, depth: int) -> None:
        """Collect the commands of a node of the tree."""
        if depth > _MAX_DEPTH:
            return self.doubt("it is nested too deeply")
        kind, raw = node.type, self.raw(node)
        if kind in ("command", "declaration_command", "unset_command"):
            self.command(node)
        elif kind == "variable_assignment":
            self.assign(raw)
            if node.parent is None or not node.parent.type.endswith("command"):
                self.add(())
        elif kind == "file_redirect":
            self.redirect(node)
        elif kind == "redirected_statement":
            if node.children[0].type not in ("command", "pipeline", "list", "negated_command"):
                self.add(())
        elif kind == "for_statement" and not re.match(r"for [a-z_]+\b", raw):
            self.doubt("its loop may set a variable that decides what programs run")
        elif kind in ("raw_string", "heredoc_body", "string_content", "word"):
            self.hidden = self.hidden or (_HIDDEN.search(raw) is not None and (kind != "word" or "\\" in raw))
        for kid in node.children:
            self.walk(kid, depth + 1)
        return None

    def command(self, node: Node) -> None:
        words = list[Word]()
        for kid in node.children:
            if kid.type == "variable_assignment" or kid.type.endswith("redirect"):
                if node.type != "command" and kid.type == "variable_assignment":
                    words.append(Word(self.raw(kid), known=re.search(r"[\"'$`\\]", self.raw(kid)) is None))
            elif node.type != "command" and not kid.is_named:
                words.append(Word(kid.type))
            else:
                words.append(self.word(kid))
                if kid.type not in _WORDS and kid.type not in ("command_name", "variable_name"):
                    self.doubt("it cannot be parsed with certainty")
        self.run(tuple(words))

    def assign(self, text: str) -> None:
        self.line.assignments.append(text)
        name = re.split(r"\+?=|%", text, maxsplit=1)[0]
        if RUN_BY_PROGRAMS.fullmatch(name) or not name.isidentifier():
            self.doubt("it sets a variable that decides what programs run")

    def redirect(self, node: Node) -> None:
        named = [kid for kid in node.children if kid.is_named and kid.type != "file_descriptor"]
        sign = next((kid.type for kid in node.children if kid.type[:1] in "<>&"), "")
        target = self.word(named[0]) if len(named) == 1 else REST
        # bash expands some targets twice: quotes do not protect them.
        odd = re.search(r"[$`]", target.text) if target.known else sign == "<"
        if sign not in ("<", ">", ">>", ">|", "&>", "&>>", ">&") or not target.text:
            self.doubt("it redirects in a way that is not understood")
        elif odd or target.text.startswith(("/dev/tcp", "/dev/udp")):
            self.doubt("it redirects to a connection, or to a target known only at run time")
        elif sign != "<" and not (sign == ">&" and re.fullmatch(r"\d", target.text)):
            self.line.writes.append(target.text)

    def add(self, words: Words) -> None:
        if len(self.line.commands) + len(self.line.possible) > _MAX_COMMANDS:
            return self.doubt("it runs too many commands")
        unknown = tuple(at for at, word in enumerate(words) if not word.known)
        loose = tuple(at for at in unknown if words[at].loose)
        argv = tuple(word.text for word in words if word is not REST)
        into = self.line.possible if self.guessing else self.line.commands
        into.append(Command(argv, unknown, loose, bool(words) and words[0].globs))
        return None

    def run(self, words: Words) -> None:
        """Add a command and the commands that it runs in turn."""
        if self.nesting > _MAX_NESTING or len(self.line.possible) > _MAX_POSSIBLE:
            return self.doubt("it is nested too deeply, or may run too many commands")
        if not words or not words[0].known or not words[0].text:
            self.doubt("the name of a command is known only at run time")
            return self.add(words)
        self.check(words)
        inner = unwrap(words)
        self.doubt(inner.unclear)
        for word in inner.assigned:
            self.assign(word.text)
        if inner.kept:
            self.add(inner.kept)
        self.nesting += 1
        for command in inner.commands:
            self.run(command)
        if inner.text:
            self.read(inner.text)
        guessing, self.guessing = self.guessing, True
        if inner.around:
            self.add(inner.around)
        for command in inner.maybe:
            self.run(command)
        self.guessing = guessing
        self.nesting -= 1
        return None

    def check(self, words: Words) -> None:
        """Doubt builtins that set variables, or run the text in a name such as `a[$(x)]`."""
        name = base_name(words[0].text)
        declares, tests = name in _DECLARING, name in ("test", "[")
        if not declares and name not in _NAMING:
            return
        self.evaluates = self.evaluates or any(not word.known for word in words)
        for word in words[1:]:
            if declares:
                self.assign(word.text)
            runs = "[" in word.text and ("$(" in word.text or "`" in word.text)
            sets = not tests and (RUN_BY_PROGRAMS.fullmatch(word.text) or (not word.known and name != "printf"))
            if (
                runs
                or (word.text == "-v" and name != "[")
                or (sets and not declares)
                or (declares and (word.loose or word.text.startswith("-")))
            ):
                self.doubt(f"{name} may set a variable that decides what programs run")

    def word(self, node: Node) -> Word:
        value, marks = self.spell(node)
        braces = "{" in marks and "}" in marks and ("," in marks or ".." in marks)
        globs = braces or "*" in marks or "?" in marks or ("[" in marks and "]" in marks)
        if not globs and not re.search(r"[\2\3]|^~|[:=]~", marks):
            return Word(value)
        raw = self.raw(node)
        head = re.match(r"[\2*?\[{-]", marks) is not None or value.startswith("-")
        loose = braces or head or "\3" in marks or re.search(r"\$\{?@", raw) is not None
        return Word(raw, known=False, loose=loose, globs=globs and not re.search(r"[\2\3]", marks))

    def spell(self, node: Node) -> tuple[str, str]:
        """Return the value of a word, and the same with quoted characters as 1, quoted expansions 2, others 3."""
        raw = self.raw(node)
        match node.type:
            case "raw_string":
                return raw[1:-1], "\1" * (len(raw) - 2)
            case "string" if not re.search(r"[$`]", re.sub(r"\\.|\$[\" ]", "", raw)):
                value = re.sub(r"\\([$`\"\\])", r"\1", raw[1:-1])
                return value, "\1" * len(value)
            case "string":
                return raw[1:-1], ("\2" if raw[1] == "$" else "\1") + "\2"
            case "concatenation" | "command_name" if node.child_count:
                parts = [self.spell(kid) for kid in node.children]
                return "".join(part[0] for part in parts), "".join(part[1] for part in parts)
            case "simple_expansion" | "expansion" | "command_substitution" | "arithmetic_expansion":
                return raw, "\3"
            case "word" | "number" | "variable_name":
                return re.sub(r"\\(.)", r"\1", raw, flags=re.DOTALL), re.sub(r"\\.", "\1", raw, flags=re.DOTALL)
            case _:
                return raw, "*"  # such as $'\x41': any text


_MAX_BYTES = 16 * 1024
_MAX_DEPTH = 60
_MAX_PIPES = 2000  # the end of an unfinished pipeline takes time that grows with the square of its length
_PARSE_SECONDS = 0.25

_STATEMENTS = names_in(
    "command redirected_statement pipeline list subshell compound_statement if_statement while_statement for_statement"
    " case_statement negated_command test_command declaration_command unset_command variable_assignment"
)
_WORDS = names_in(
    "word number string raw_string simple_expansion expansion command_substitution concatenation arithmetic_expansion"
)
_OTHERS = names_in(
    "program command_name variable_assignments do_group elif_clause else_clause case_item file_redirect"
    " heredoc_redirect herestring_redirect unary_expression binary_expression"
)
_KNOWN = _STATEMENTS | _WORDS | _OTHERS
_ONE_LINE = names_in("command declaration_command unset_command redirected_statement file_redirect herestring_redirect")
_SPACED = _ONE_LINE - {"file_redirect", "herestring_redirect"}
_TIGHT = names_in("concatenation simple_expansion variable_assignment")
_KEYWORDS = names_in("{ } ! [ ] [[ ]] if then elif else fi for while until do done case in esac")
_EDGES = frozenset((b"", *(bytes((char,)) for char in b" \t\n;&|()")))
_TEXT = rb"(?:\\[^\n]|[^\"`$\\])*"
_LEAVES = {
    "program": rb"", "word": rb"(?!#)(?:\\[^\n]|[^\x00-\x20\x7f'\"`$|&;<>()\\])+", "number": rb"-?\d+",
    "variable_name": rb"\w+", "test_operator": rb"-[a-zA-Z]+",
    "special_variable_name": rb"[?$!#@*0_-]", "raw_string": rb"'[^']*'", "string": rb'""', "string_content": _TEXT,
    "comment": rb"#[^\n]*", "file_descriptor": rb"\d+", "extglob_pattern": rb"[\w.*/-]+",
    "heredoc_start": rb"\w+|'\w+'|\"\w+\"", "heredoc_end": rb"\w+",
}  # fmt: skip
_WHOLE = {
    "arithmetic_expansion": rb"\$\(\([\d\s+*/%()-]*\)\)",
    "expansion": rb"\$\{#?(?:\w+|[@*#?])(?:(?::?[-+?]|##?|%%?|//?)[\w ./*@:,-]*)?\}",
    # Also with expansions of variables; tree-sitter does not see the backticks in it.
    "heredoc_body": rb"(?:[^`$\\]|\$\w+|\$\{\w+\})*",
}
"""Forms of nodes that are checked as a whole, without their children."""
_EVALUATES = re.compile(rb"-(?:v|R|eq|ne|lt|le|gt|ge)\b|[<>&|;()]")
"""In a test: operators that evaluate text as arithmetic, and characters that `[` reads as a redirection."""


def _parse(text: str) -> tuple[bytes, Node | None, str]:
    """Return the parsed bytes, their tree, and why the tree cannot be trusted."""
    try:
        source = text.encode() if len(text) <= _MAX_BYTES else b" " * (_MAX_BYTES + 1)
    except UnicodeEncodeError:
        return b"", None, "it is not valid UTF-8"
    if len(source) > _MAX_BYTES or source.count(b"|") > _MAX_PIPES:
        return b"", None, f"it is longer than {_MAX_BYTES // 1024} KB or {_MAX_PIPES} pipes"
    if re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", source):
        return b"", None, "it contains control characters"
    # tree-sitter-bash loses the dash of `python - <<EOF`; quoted, it is the same word to bash.
    source = re.sub(rb"(?<=[ \t])-(?=[ \t]*<<)", b"'-'", source)
    root = _tree(source)
    if root is None:
        return source, None, "it takes too long to parse"
    outside = source[: root.start_byte] + source[root.end_byte :]
    sure = not root.has_error and not outside.strip(b" \t\n") and _is_sure(root, source)
    return source, root, "" if sure else "it cannot be parsed with certainty"


def _tree(source: bytes) -> Node | None:
    """Return the syntax tree, or None if the parse takes too long.

    tree-sitter-bash calls C's isalpha with code points far beyond its table and crashes (its issue 337), so it gets
    ASCII only. bash, too, takes all other bytes for ordinary characters of a word, such as a dot, and not of a name.
    """
    import tree_sitter  # only for a session that runs shell commands
    import tree_sitter_bash

    text, deadline = re.sub(rb"[\x80-\xff]", b".", source), time.perf_counter() + _PARSE_SECONDS
    # One parser for each parse: the callbacks let other threads run, and they may parse too.
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
    try:
        return parser.parse(
            lambda offset, _point: text[offset:],
            progress_callback=lambda _offset, _error: time.perf_counter() > deadline,
        ).root_node
    except ValueError:
        return None


def _is_sure(root: Node, source: bytes) -> bool:
    pending: list[tuple[Node, str, int]] = [(root, "", 0)]
    while pending:
        node, parent, depth = pending.pop()
        kind, raw = node.type, source[node.start_byte : node.end_byte]
        if kind in _WHOLE:
            sure = re.fullmatch(_WHOLE[kind], raw) is not None or (kind == "heredoc_body" and parent == "quoted")
        elif not node.child_count:
            sure = _is_plain_leaf(node, raw, source, parent)
        else:
            sure = kind in _KNOWN and _is_plain_node(node, raw, source)
            label = "quoted" if kind == "heredoc_redirect" and _is_quoted(node, source) else kind
            pending += [(kid, label, depth + 1) for kid in node.children]
        if not sure or depth > _MAX_DEPTH:
            return False
    return True


def _is_quoted(node: Node, source: bytes) -> bool:
    return any(kid.type == "heredoc_start" and source[kid.start_byte] in b"'\"" for kid in node.children)


def _is_plain_leaf(node: Node, raw: bytes, source: bytes, parent: str) -> bool:
    before, after = source[max(0, node.start_byte - 1) : node.start_byte], source[node.end_byte : node.end_byte + 1]
    if node.is_named:
        form = _LEAVES.get(node.type)
        if form is None or re.fullmatch(form, raw, re.DOTALL) is None:
            return False
        if node.type == "variable_name" and raw[:1].isdigit():
            return parent.endswith("expansion")
        if node.type in ("comment", "file_descriptor"):
            return before in _EDGES
        return node.type != "heredoc_start" or after in _EDGES
    if raw != node.type.encode() and node.type.strip():
        return False
    if node.type in _KEYWORDS:
        return before in _EDGES and after in _EDGES
    if node.type == "$" and parent != "simple_expansion":
        return parent == "string" and after in (b'"', b" ")
    return node.type != "`"


def _is_plain_node(node: Node, raw: bytes, source: bytes) -> bool:
    """Return whether only blanks are between the parts of a node, and blanks are where bash needs them."""
    kind, kids = node.type, node.children
    if kind == "test_command" and (kids[0].type not in ("[", "[[") or _EVALUATES.search(raw)):
        return False
    if kind == "compound_statement" and kids[0].type != "{":
        return False
    if kind == "heredoc_redirect" and not _is_plain_heredoc(node, source):
        return False
    rest = source[kids[-1].end_byte : node.end_byte]
    if kids[0].start_byte != node.start_byte or rest.strip(b"\n") or (rest and kind != "program"):
        return False
    return all(
        one.end_byte <= two.start_byte and _is_plain_gap(kind, one, two, source[one.end_byte : two.start_byte])
        for one, two in itertools.pairwise(kids)
    )


def _is_plain_gap(kind: str, before: Node, after: Node, gap: bytes) -> bool:
    if kind == "string":
        return re.fullmatch(_TEXT, gap) is not None and bool(
            gap or before.type not in _WORDS or after.type not in _WORDS
        )
    plain = gap.replace(b"\\\n", b"")
    if plain.strip(b" \t" if kind in _ONE_LINE else b" \t\n") or (gap and not plain) or (gap and kind in _TIGHT):
        return False
    if before.type == "comment" and b"\n" not in gap and after.type != "\n":
        return False
    if not gap and kind in _SPACED:
        return False
    if not (before.is_named and after.is_named) or kind in _TIGHT or kind in ("heredoc_redirect", "file_redirect"):
        return True
    if before.type in _STATEMENTS and after.type in _STATEMENTS and kind not in ("command", "variable_assignments"):
        return b"\n" in plain
    return bool(gap)


def _is_plain_heredoc(node: Node, source: bytes) -> bool:
    """Return whether a here-document ends where bash ends it."""
    part = {kid.type: source[kid.start_byte : kid.end_byte] for kid in node.children}
    name, body = part.get("heredoc_start", b"").strip(b"'\""), part.get("heredoc_body", b"")
    ended = part.get("heredoc_end", b"") == name and body.endswith(b"\n") and "<<-" not in part
    return bool(name) and ended and name not in body.split(b"\n")
