"""A shell line → the simple commands it would execute, wherever they stand. A real parse, by tree-sitter.

Whatever is not understood makes the line opaque, with a reason: an opaque line is never allowed by a rule.
"""

from __future__ import annotations

import re
import time
from functools import lru_cache
from typing import TYPE_CHECKING

from lmagent.engine.shellline.segments import HARMLESS_TARGETS, MAX_DEPTH, Collector, CommandLine, Outside, Segment
from lmagent.engine.shellline.words import HEREDOC, RESERVED, STATEMENTS, WORDS, Word, doubt, read_word, run_over

if TYPE_CHECKING:
    from tree_sitter import Language, Node

# A step of tree-sitter's error recovery, which nothing interrupts, takes 8 s for 64 KB of the worst kind.
MAX_BYTES = 16 * 1024
# Line ends that are still to be mended after that many rounds make the line opaque.
_MAX_MENDED = 8
# Broken text of an evil kind takes tree-sitter seconds to recover from: it is opaque long before.
_PARSE_SECONDS = 0.25
_PLAIN_EXPANSION = re.compile(
    rb"\$\{(?:#?(?:\w+|[?$@*#!-])|\w+\[[@*\d]+\]|#\w+\[[@*\d]+\]"
    rb"|(?:\w+|[@*])(?:\[[@*\d]+\])?(?::?[-=+?]|##?|%%?|//?|\^\^?|,,?|:\s*\d).*)\}",
    re.DOTALL,
)
_WIDE = re.compile(rb"[\x80-\xff]")
_EVALUATING = re.compile(rb"-(?:v|R|eq|ne|lt|le|gt|ge)\b")
_MISPLACED = RESERVED - {"time", "coproc"}
_HIDDEN = re.compile(rb"\$\(|`|\$\{|\\(?:x|u|U|0|1)")


def parse(command: str) -> CommandLine:
    """Understand a shell line. Never raises: what cannot be understood is opaque."""
    reader = _Reader()
    reader.read(command)
    segments = tuple(reader.finished())
    return CommandLine(segments, reader.opaque, command)


@lru_cache(maxsize=1)
def _language() -> Language:
    """Imported on first use: a session that runs no shell command does not pay for it."""
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Language(tree_sitter_bash.language())


def _tree(source: bytes, deadline: float) -> Node | None:
    """The syntax tree, or None where it takes too long.

    tree-sitter-bash asks C's isalpha about code points far beyond its table and dies of it (its issue 337), so it gets
    to see ASCII only: to bash, too, all other bytes are ordinary characters of a word, as a dot is, of no name.
    """
    from tree_sitter import Parser

    text = _WIDE.sub(b".", source)

    def rest(offset: int, _point: object) -> bytes:
        return text[offset:]

    def late(_offset: int, _has_error: bool) -> bool:
        return time.perf_counter() > deadline

    try:
        # One each: the callbacks let other threads run, and they may parse as well.
        return Parser(_language()).parse(rest, progress_callback=late).root_node
    except ValueError:
        return None


def _token(root: Node, at: int) -> str:
    found = root.descendant_for_byte_range(at, at + 1)
    return found.type if found else ""


class _Reader(Collector):
    """Collects the segments of a line and of the texts it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.source = b""
        self.deadline = time.perf_counter() + _PARSE_SECONDS

    def late(self) -> bool:
        return time.perf_counter() > self.deadline

    def read(self, command: str) -> None:
        """Read a text: the line itself, or what one of its commands runs."""
        if self.depth >= MAX_DEPTH:
            return self.fail("it is nested too deeply")
        try:
            source = command.encode() if len(command) <= MAX_BYTES else b" " * (MAX_BYTES + 1)
        except UnicodeEncodeError:
            return self.fail("it is not valid UTF-8")
        if len(source) > MAX_BYTES:
            return self.fail(f"it is longer than {MAX_BYTES // 1024} KB")
        if b"\x00" in source or b"\r" in source:
            return self.fail("it contains a NUL or a carriage return")
        if b"\\\n" in source and not re.search(rb"['#]|<<", source):
            source = re.sub(rb"(?<!\\)((?:\\\\)*)\\\n", rb"\1", source)
        # tree-sitter-bash loses the dash of `python - <<EOF`; quoted, it is the same word to bash.
        source = re.sub(rb"(?<=[ \t])-(?=[ \t]*<<)", b"'-'", source)
        root = _tree(source, self.deadline)
        ends: list[int] = []
        for _ in range(_MAX_MENDED):
            more = [] if root is None or root.has_error or self.late() else run_over(root, source)
            if not more:
                break
            ends += more
            better = bytearray(source)
            for at in more:
                better[at] = ord(";")
            source = bytes(better)
            root = _tree(source, self.deadline)
        if root is None or root.has_error:
            return self.fail("it cannot be parsed")
        if reason := doubt(root, source):
            return self.fail(reason)
        if any(_token(root, at) != ";" for at in ends):
            return self.fail("it cannot be parsed with certainty")
        outer, self.source = self.source, source
        self.depth += 1
        self.walk(root)
        self.source = outer
        self.depth -= 1
        return None

    def raw(self, node: Node) -> bytes:
        return self.source[node.start_byte : node.end_byte]

    def walk(self, node: Node, outside: Outside | None = None) -> None:
        """Collect from a node and everything below; `outside` are redirects for its last command."""
        self.note(node)
        match node.type:
            case "command" | "declaration_command" | "unset_command":
                self.command(node, outside)
            case "variable_assignment" | "variable_assignments":
                self.assignments(node, outside or Outside())
            case "redirected_statement":
                self.redirected(node, outside)
            case "command_substitution" if self.raw(node).startswith(b"`"):
                self.backticks(self.raw(node)[1:-1])
            case "heredoc_body":
                self.heredoc_text(node)
            case "function_definition":
                self.function(node)
            case "file_redirect" | "heredoc_redirect" | "herestring_redirect":
                around = Outside()
                self.redirect(node, around)
                self.bare(around, self.raw(node))
            case "list" | "pipeline" | "negated_command" if outside is not None:
                self.below(node.children[:-1])
                self.walk(node.children[-1], outside)
            case _:
                self.below(node.children)
                if outside is not None:
                    self.bare(outside, self.raw(node))

    def below(self, nodes: list[Node]) -> None:
        for node in nodes:
            self.walk(node)

    def note(self, node: Node) -> None:
        """Take down what evaluates the contents of variables, and text that such an evaluation might run."""
        kind = node.type
        if kind in ("raw_string", "ansi_c_string", "word", "string_content", "heredoc_body"):
            raw = self.raw(node)
            self.hidden = self.hidden or (_HIDDEN.search(raw) is not None and (kind != "word" or b"\\" in raw))
            return
        raw = self.raw(node)
        match kind:
            case "expansion":
                found = _PLAIN_EXPANSION.fullmatch(raw) is None
            case "arithmetic_expansion" | "c_style_for_statement":
                head = raw.partition(b"))")[0]
                found = re.search(rb"[A-Za-z_$`]", head if kind.startswith("c") else raw[1:]) is not None
            case "compound_statement" if raw.startswith(b"(("):
                found = re.search(rb"[A-Za-z_$`]", raw) is not None
            case "test_command":
                self.evaluates = self.evaluates or b"$" in raw
                found = _EVALUATING.search(raw) is not None and (raw.startswith(b"[[") or b"$" in raw or b"-v" in raw)
            case "subscript":
                found = re.fullmatch(rb"\w+\[(?:\d+|[@*])\]", raw) is None
            case "for_statement":
                name = node.child_by_field_name("variable")
                found = name is not None and self.raw(name).isupper()
            case _:
                found = False
        if found:
            self.evaluates = True
            text = raw.decode("utf-8", "replace")
            self.add(Segment(text=text, via=self.via, barred="it evaluates what variables contain"))

    def redirected(self, node: Node, outside: Outside | None) -> None:
        outside = outside or Outside()
        body = node.child_by_field_name("body")
        for kid in node.children:
            if body is None or kid != body:
                self.redirect(kid, outside)
        if body is not None:
            self.walk(body, outside)
        else:
            self.emit(outside, self.raw(node))

    def function(self, node: Node) -> None:
        name = node.child_by_field_name("name")
        word = read_word(name, self.source) if name else None
        if name is None or word is None or not word.known:
            return self.fail("it defines a function in a way that is not understood")
        self.functions.add(word.text)
        outside = Outside()
        for kid in node.children:
            if kid.type.endswith("redirect"):
                self.redirect(kid, outside)
            elif kid != name:
                self.walk(kid)
        return self.bare(outside, self.raw(node))

    def command(self, node: Node, outside: Outside | None) -> None:
        around = Outside()
        for kid in node.children:
            if kid.type == "variable_assignment" and node.type != "command":
                self.assignment(kid, around)
                around.words.append(self.declared(kid))
            elif kid.type == "variable_assignment":
                self.assignment(kid, around)
            elif not kid.is_named and node.type != "command":
                around.words.append(Word(kid.type))
            elif kid.type.endswith("redirect"):
                self.redirect(kid, around)
            elif kid.type in WORDS or kid.type in ("command_name", "variable_name", "$", "==", "=~"):
                if kid.type == "command_name" and self.raw(kid).decode("utf-8", "replace") in _MISPLACED:
                    self.fail("it cannot be parsed with certainty")
                self.word(kid, around)
            else:
                self.fail("it cannot be parsed with certainty")
        if outside is not None:
            around.add(outside)
        self.emit(around, self.raw(node))

    def word(self, node: Node, outside: Outside) -> Word:
        word = read_word(node, self.source)
        if word is None:
            self.fail("it contains a word that is not understood")
            word = Word(self.raw(node).decode("utf-8", "replace"), known=False, loose=True)
        outside.words.append(word)
        self.walk(node)
        return word

    def assignment(self, node: Node, outside: Outside) -> None:
        """`name=value`: the value's substitutions are commands, too."""
        outside.assignments.append(self.raw(node).decode("utf-8", "replace"))
        self.note(node)
        self.below(node.children)

    def assignments(self, node: Node, outside: Outside) -> None:
        for kid in node.children if node.type.endswith("s") else [node]:
            self.assignment(kid, outside)
        self.emit(outside, self.raw(node))

    def declared(self, node: Node) -> Word:
        """`name=value` as an argument of `export` and its kin."""
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        word = read_word(value, self.source) if value else Word("")
        if name is None or word is None or not word.known or name.type != "variable_name":
            return Word(self.raw(node).decode("utf-8", "replace"), known=False)
        return Word(self.raw(node)[: name.end_byte - node.start_byte].decode() + "=" + word.text)

    def redirect(self, node: Node, outside: Outside) -> None:
        if node.type == "heredoc_redirect":
            return self.heredoc(node, outside)
        if node.type == "herestring_redirect":
            text = self.word(node.children[-1], Outside())
            outside.inputs.append(text.text + "\n" if text.known else None)
            return None
        sign = next((kid.type for kid in node.children if kid.type[:1] in "<>&"), "")
        targets = [kid for kid in node.children if kid.is_named and kid.type != "file_descriptor"]
        # The tree takes words that follow a target for targets; to bash they are arguments.
        rest = Outside()
        words = [self.word(kid, rest) for kid in targets]
        if sign.endswith("&-"):
            outside.words += words
            return None
        if not words or not sign:
            return self.fail("it cannot be parsed with certainty")
        outside.words += words[1:]
        target = words[0]
        # bash expands the target of `>&` twice, so that quotes do not protect what is in it.
        if target.known and re.search(r"[$`]", target.text):
            self.fail("it redirects to a name that would be expanded again")
        if sign in (">&", "<&") and target.known and re.fullmatch(r"\d+-?|-", target.text):
            if sign == "<&":
                outside.inputs.append(None)
            return None
        if sign.startswith("<"):
            outside.reads.append(target.text)
            outside.inputs.append(None)
            substitution = targets[0].type == "process_substitution"
            if (not target.known and not substitution) or target.text.startswith(("/dev/tcp", "/dev/udp")):
                outside.barred = "what it reads is only known at run time, or a connection"
        else:
            outside.writes.append(target.text)
        return None

    def heredoc(self, node: Node, outside: Outside) -> None:
        start = next((self.raw(kid) for kid in node.children if kid.type == "heredoc_start"), b"")
        body = next((kid for kid in node.children if kid.type == "heredoc_body"), None)
        end = next((self.raw(kid) for kid in node.children if kid.type == "heredoc_end"), b"")
        quoted = re.search(rb"['\"\\]", start) is not None
        name = re.sub(rb"['\"\\]", b"", start)
        raw = self.raw(body) if body else b""
        text = raw if quoted else re.sub(rb"\\\n", b"", raw)
        tabs = any(kid.type == "<<-" for kid in node.children)
        lines = [line.lstrip(b"\t") if tabs else line for line in text.split(b"\n")]
        if not name or end.strip() != name or name in lines or (body and not raw.rstrip(b"\t").endswith(b"\n")):
            return self.fail("it cannot be parsed with certainty")
        static = quoted or not re.search(rb"[$`\\]", raw)
        outside.inputs.append(b"\n".join(lines).decode("utf-8", "replace") if static else None)
        for kid in node.children:
            if kid.type in WORDS:
                self.word(kid, outside)
            elif kid.type.endswith("redirect"):
                self.redirect(kid, outside)
            elif kid.type in STATEMENTS or (kid.type == "heredoc_body" and not quoted):
                self.walk(kid)
            elif kid.type == "heredoc_body":
                self.note(kid)
        return None

    def heredoc_text(self, node: Node) -> None:
        """A here-document with expansions; tree-sitter does not see the backticks in it."""
        at = node.start_byte
        for kid in [*node.children, None]:
            text_end = kid.start_byte if kid else node.end_byte
            chunk = self.source[at:text_end]
            if kid is None or kid.type != "heredoc_content":
                ticks = re.split(rb"(?<!\\)`", chunk)
                if not HEREDOC.fullmatch(chunk) or len(ticks) % 2 == 0 or b"\\\\`" in chunk:
                    return self.fail("it has backticks that are not understood")
                for inner in ticks[1::2]:
                    self.backticks(inner)
                at = kid.end_byte if kid else at
                if kid:
                    self.walk(kid)
        return None

    def backticks(self, raw: bytes) -> None:
        """The text between backticks is unescaped first and parsed then."""
        if re.search(rb"\\[$`\\\"]", raw):
            return self.fail("it has escapes inside of backticks")
        return self.read(raw.decode("utf-8", "replace"))

    def bare(self, outside: Outside, raw: bytes) -> None:
        """Redirects of a loop or a group: of interest where they write, or where they read what is not known."""
        if outside.barred or outside.reads or set(outside.writes) - HARMLESS_TARGETS or outside.words:
            if outside.words:
                self.fail("it cannot be parsed with certainty")
            outside.words = []
            self.emit(outside, raw)
