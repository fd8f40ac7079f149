"""A shell line → the simple commands it would execute, wherever they stand. A real parse, by tree-sitter.

Whatever is not understood makes the line opaque, with a reason: an opaque line is never allowed by a rule.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from lmagent.engine.shellline.grammar import PARSE_SECONDS, prepared, tree
from lmagent.engine.shellline.mend import computes, descriptors, shown, token
from lmagent.engine.shellline.meter import Meter, TooMuchWork
from lmagent.engine.shellline.segments import HARMLESS_TARGETS, MAX_DEPTH, Collector, CommandLine, Outside, Segment
from lmagent.engine.shellline.words import HEREDOC, RESERVED, STATEMENTS, WORDS, Word, doubt, read_word, run_over

if TYPE_CHECKING:
    from tree_sitter import Node

# Line ends that are still to be mended after that many rounds make the line opaque.
_MAX_MENDED = 8
_READ = 40  # what a parse costs at least, in steps
_NO_PARSE, _NOT_CERTAIN = "it cannot be parsed", "it cannot be parsed with certainty"
_PLAIN_EXPANSION = re.compile(
    rb"\$\{(?:#?(?:\w+|[?$@*#!-])|\w+\[[@*\d]+\]|#\w+\[[@*\d]+\]"
    rb"|(?:\w+|[@*])(?:\[[@*\d]+\])?(?::?[-=+?]|##?|%%?|//?|\^\^?|,,?|:\s*\d).*)\}",
    re.DOTALL,
)
_EVALUATING = re.compile(rb"-(?:v|R|eq|ne|lt|le|gt|ge)\b")
_MISPLACED = RESERVED - {"time", "coproc"}
_HIDDEN = re.compile(rb"\$\(|`|\$\{|\\(?:x|u|U|0|1)")


def parse(command: str, meter: Meter | None = None) -> CommandLine:
    """Understand a shell line. Never raises: what cannot be understood is opaque."""
    reader = _Reader(meter or Meter())
    try:
        reader.read(command)
    except TooMuchWork:
        reader.fail("it takes too long to understand")
    segments = tuple(reader.finished())
    return CommandLine(segments, reader.opaque, command, reader.hides, tuple(reader.possible))


class _Reader(Collector):
    """Collects the segments of a line and of the texts it runs."""

    def __init__(self, meter: Meter) -> None:
        super().__init__(meter)
        self.source = b""
        self.deadline = time.perf_counter() + PARSE_SECONDS

    def late(self) -> bool:
        return time.perf_counter() > self.deadline

    def read(self, command: str) -> None:
        """Read a text: the line itself, or what one of its commands runs."""
        if self.depth >= MAX_DEPTH:
            return self.fail("it is nested too deeply")
        reason, source = prepared(command)
        root = None
        if not reason:
            reason, source, root = self.parsed(source)
        if reason or root is None:
            return self.unread(command, reason, source)
        return self.collect(root, source)

    def collect(self, root: Node, source: bytes) -> None:
        outer, self.source = self.source, source
        self.depth += 1
        self.walk(root)
        self.source = outer
        self.depth -= 1

    def unread(self, command: str, reason: str, source: bytes) -> None:
        """A text that is not understood: no rule allows it, and rules that deny look at what can be guessed of it."""
        self.fail(reason, hides=False)
        other = shown(source) if reason in (_NO_PARSE, _NOT_CERTAIN) else source
        root = self.tree(other) if other != source and not self.late() else None
        if root is not None and not root.has_error and not doubt(root, source, self.meter):
            self.collect(root, source)
            command = re.sub(r"[*?\[{]", "", command)  # what was not understood of it is understood now
        if computes(command):
            self.fail(reason)

    def tree(self, source: bytes) -> Node | None:
        self.meter.spend(_READ + len(source) // 16)
        return tree(source, self.deadline)

    def parsed(self, source: bytes) -> tuple[str, bytes, Node | None]:
        """Why it cannot be read, or nothing; the text as it was mended; its tree."""
        named = descriptors(source, lambda text, at: token(self.tree(text), at))
        source = named.source if named else source
        root = self.tree(source)
        ends: list[int] = []
        for _ in range(_MAX_MENDED):
            more = [] if root is None or root.has_error or self.late() else run_over(root, source, self.meter)
            if not more:
                break
            ends += more
            better = bytearray(source)
            for at in more:
                better[at] = ord(";")
            source = bytes(better)
            root = self.tree(source)
        if root is None or root.has_error:
            return _NO_PARSE, source, None
        if reason := doubt(root, source, self.meter):
            return reason, source, None
        self.meter.spend(len(ends))
        if any(token(root, at) != ";" for at in ends):
            return _NOT_CERTAIN, source, None
        for place, name in zip(named.places, named.names, strict=True) if named else ():
            if token(root, place) != "file_descriptor":
                return _NOT_CERTAIN, source, None
            text = f"{{{name}}}"
            self.variable(name, "10")
            self.add(Segment(text=text, assignments=(f"{name}=10",), via=self.via, barred="it names a descriptor"))
        return "", source, root

    def raw(self, node: Node) -> bytes:
        return self.source[node.start_byte : node.end_byte]

    def walk(self, node: Node, outside: Outside | None = None) -> None:
        """Collect from a node and everything below; `outside` are redirects for its last command."""
        self.meter.spend()
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
                self.variable(self.raw(name).decode("utf-8", "replace") if name else "", "$")
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
                    self.fail(_NOT_CERTAIN)
                self.word(kid, around)
            else:
                self.fail(_NOT_CERTAIN)
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
        text = self.raw(node).decode("utf-8", "replace")
        outside.assignments.append(text)
        declared = self.declared(node)
        self.variable(*re.split(r"\+?=", declared.text if declared.known else text, maxsplit=1))
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
            return self.fail(_NOT_CERTAIN)
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
            return self.fail(_NOT_CERTAIN)
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
                self.fail(_NOT_CERTAIN)
            outside.words = []
            self.emit(outside, raw)
