"""How people ask. `(a|b)` is a choice, `[x]` may be left out.

Slots: `{w}` words, `{q}` words in quotes, `{p}` a file, `{d}` a folder, `{c}` a command.

Those of `HELD_OUT` are put differently from all of `TRAINING`, and none of them is ever trained on.
"""

from __future__ import annotations

import re
from random import Random

KINDS = ("list", "read", "write", "append", "mkdir", "run", "count", "beyond", "about")

TRAINING: dict[str, tuple[str, ...]] = {
    "list": (
        "(list|show) [me] [all] [the] files",
        "(list|show) [me] [all] [the] (files|contents|entries) (here|in this folder|in the current "
        "folder|of this folder)",
        "(list|show) [me] [all] [the] (files|contents|entries|names) (in|of|inside) [the] [folder|directory] {d}",
        "(list|show) [me] (what is|what's) (here|in this folder|in the workspace)",
        "(what|which) files are (here|there|in this folder|in the workspace)[?]",
        "(what|which) files are (in|inside) [the folder|the directory] {d}[?]",
        "(what is|what's) (in|inside) [the folder|the directory] {d}[?]",
        "(what is|what's) (here|in this folder|in the current directory|in the workspace)[?]",
        "list [the] [folder|directory] {d}",
        "ls",
        "ls {d}",
        "look (in|into|inside) [the folder] {d}",
        "(list|show) [me] (what is|what's) (in|inside) [the folder|the directory] {d}",
        "(give|show) me [a list of] the (files|contents) of {d}",
        "i (want|need) [to see|to know] (the files|what is) (here|in this folder|in the workspace)",
        "let me see [what is in] the (folder|directory) {d}",
        "print [all] [the] (files|entries|contents) (here|in this folder)",
        "print [all] [the] (files|entries|names) (in|of) [the folder|the directory] {d}",
        "what [files] do (i|we) have (here|in this folder)[?]",
        "tell me what (is|files are) (here|in this folder|in the workspace)",
        "tell me what is in the (folder|directory) {d}",
        "[the] names of [all] [the] files (here|in this folder)",
        "what does the (folder|directory) {d} (contain|hold)[?]",
        "(see|view|check) the (folder|directory|contents of) {d}",
    ),
    "read": (
        "(read|open|show|print|display) [me] [the] [file] {p}",
        "(read|show|print|display) [me] [the] (content|contents|text) of [the file] {p}",
        "(what is|what's) (in|inside) the file {p}[?]",
        "(what is|what's) (in|inside) {e}[?]",
        "(show|give|read|display) me {e}",
        "(view|see|check|open) [the file] {e}",
        "i (want|need) to (see|know) what is in {e}",
        "let me (see|read) [the file] {p}",
        "open [the file] {p} and (read|print|show|tell me) (it|what it says|what is in it)",
        "(read|print) [out] the text of [the file] {p}",
        "i'd like to (see|read|know) [what is in] {e}",
        "(what do we have|what is there|what have i got) in the file {p}[?]",
        "(contents|text) of {p}",
        "give me the (text|contents) of [the file] {p}",
        "(what is|what's) written in {p}[?]",
        "what does [the file] {p} (say|contain)[?]",
        "(read|show) me what {p} says",
        "tell me what is in the file {p}",
        "cat {p}",
        "open up [the file] {p}",
        "(open|show|read) {p} and (give|tell) me the (text|content)",
        "look at [the file] {p}",
        "(read|print|show) the first line of {p}",
        "(what is|what's) the first line (of|in) {p}[?]",
        "how many lines (does|has) {p} [have][?]",
    ),
    "write": (
        "(write|put|save|store) [the words|the text|the line|the word|words|text] {w} (to|in|into) "
        "[the] [new] [file] {p}",
        "(write|put|save) {q} (to|in|into) [the] [new] [file] {p}",
        "(write|create|make) [a] [new] file {p} (with|containing|that says) [the words|the text|the content|text] {w}",
        "(write|create|make) [a] [new] file (called|named) {p} (with|containing|that says) [the "
        "words|the text|the content|text] {w}",
        "(write|create|make) {p} (with|containing) [the words|the text|the content|text] {w}",
        "create [a] [file] {p} (and write|and put) {w} (in|into|to) it",
        "(create|make) [a file] {p} with {q} (in|inside) it",
        "write [to|into] [the file] {p}: {w}",
        "save {w} as {p}",
        "(store|keep|note|record|enter|type) [the words|the text|the line] {w} in [the] [file] {p}",
        "there should be a file {p} (with|containing|that says) {w}",
        "let {p} (contain|say) {w}",
        "(make|create|write) [a] [new] file with the name {p} and [the] (text|words|content) {w}",
        "let the (text|content) of {p} be {w}",
        "i (want|need) the (text|line|word) {w} in [a|the] [new] [file] {p}",
        "(write|create|make) the [new] file {p}, it should say {w}",
        "{p} should (contain|say) {w}",
        "[i need] a [new] file {p} with [the words|the text] {w}",
        "make {p} say {w}",
        "(write|put) [the words|the text] {w} (in|into|to) a [new] file (called|named) {p}",
        "i (need|want) {w} (saved|written|stored) in [the file] {p}",
        "fill [the] [file] {p} with [the words|the text] {w}",
        "(create|make) [a] file, (name|call) it {p} and (write|put) {w} (in|into) it",
        "new file {p}: {w}",
        "i want {w} to be in [the file] {p}",
        "make [a] [new] file {p}, (content|text|containing|with): {w}",
        "into [the] [file] {p} (write|put) [the words|the text] {w}",
        "(in|to) [the] [file] {p}, (write|put|save) {w}",
        "overwrite {p} with {w}",
        "replace [the] (content|contents|text) of {p} (with|by) {w}",
        "i want [a file] {p} (with|containing|that says) {w}",
    ),
    "append": (
        "(append|add) [the words|the text|the line|the word|words|text] {w} to [the] [end of] [file] {p}",
        "(append|add) {q} to [the] [end of] [file] {p}",
        "(append|add) [a|the] [new] line {w} to [the file] {p}",
        "(append|add) to [the file] {p}: {w}",
        "(append|add) to {p} the (line|words|text) {w}",
        "(put|write) {w} at the end of [the file] {p}",
        "(put|add|append|write) the (text|line|word|words) {w} (at|to) the (bottom|end) of [the file] {p}",
        "(put|write) the (text|line|words) {w} (after|below|behind) the last line of [the file] {p}",
        "(put|write) [the line|the words] {w} at the (very|far) end of [the file] {p}",
        "(put|add|append|write) {q} (at|to) the (bottom|end) of [the file] {p}",
        "(append|add|write) (at|to) the end of [the file] {p}: {w}",
        "at the end of [the file] {p} (write|put) {w}",
        "in {p}, (add|append|write) [the words|the line] {w} at the end",
        "add a line (that says|with|saying) {w} to {p}",
        "(extend|continue) [the file] {p} with [the line|the words] {w}",
        "(put|write|add) {w} (after|below|behind) the last line of {p}",
        "{p} needs (one more|another) line: {w}",
        "(append|add) (another|one more) line to {p}: {w}",
        "let [the file] {p} end with [the line] {w}",
        "to {p} (add|append) [the line|the words|the text] {w}",
        "at the bottom of [the file] {p} (write|put|add) [the line] {w}",
        "{p}: (add|append) [the line] {w}",
        "[the] file {p} should end with {w}",
        "one more line for [the file] {p}: {w}",
        "(append|add) [the] (following|new) (words|text) to [the file] {p}: {w}",
        "at its end, [the file] {p} should say {w}",
        "go to the end of {p} and (write|add) {w}",
        "add a line to {p} (that says|with|saying) {w}",
        "also (add|append|write) {w} to [the] [end of] {p}",
        "(the words|the line) {w} (go|goes|come|comes|stand|stands) at the end of {p}",
        "let [the line|the words] {w} (be|stand|come|go) at the end of {p}",
        "[the line] {w} should be the last line of {p}",
    ),
    "mkdir": (
        "(make|create|add) [a] [new] (folder|directory) [called|named] {d}",
        "(make|create) the (folder|directory) {d}",
        "mkdir {d}",
        "(make|create) (an|a new) empty (folder|directory) [called|named] {d}",
        "(make|create|add) me a [new] (folder|directory) [called|named] {d}",
        "let there be a (folder|directory) [called|named] {d}",
        "there should be a (folder|directory) [called|named] {d}",
        "a [new] (folder|directory) [called|named] {d}",
        "(make|create) a (folder|directory) and (call|name) it {d}",
        "{d} should be a [new] (folder|directory)",
        "(prepare|generate|start|open) [me] a [new] (folder|directory) [called|named] {d}",
        "i (need|want) {d} as a [new] (folder|directory)",
        "(make|create|add) {d} as a (folder|directory)",
        "(make|create) a (folder|directory), name: {d}",
        "add the {d} (folder|directory)",
        "the name of the new (folder|directory) is {d}",
        "i (need|want) the (folder|directory) {d}, (make|add) it",
        "(make|create) a (folder|directory) that is (called|named) {d}",
        "i (need|want) a [new] (folder|directory) (called|named) {d}",
    ),
    "run": (
        "(run|execute) [the] [shell] [command] {c}",
        "(run|execute) `{c}`",
        "(run|execute) [the] command: {c}",
        "(run|execute): {c}",
        "(run|execute) the (following|shell) command {c}",
        "(run|execute) {c} in the (shell|terminal)",
        "use the shell to run {c}",
        "(run|execute) (that|this) [command] for me: {c}",
        "(start|try|call) [the] command {c}",
        "the command to run is {c}",
        "let the shell run {c}",
        "type {c} in the (shell|terminal)",
        "with the shell, (run|do) {c}",
        "shell: {c}",
        "$ {c}",
    ),
    "count": (
        "(count|number) [all] [the] files",
        "count [all] [the] files (here|in this folder|in the workspace|in the current folder)",
        "count [all] [the] files (in|inside|of) [the] [folder|directory] {d}",
        "how many files are [there] (here|in this folder|in the workspace)[?]",
        "how many files are [there] (in|inside) [the] [folder|directory] {d}[?]",
        "how many files (does|do) [the folder] {d} (have|hold|contain)[?]",
        "[what is] the (count|total) of [all] files in {d}[?]",
        "(give|show) me the (number|count) of files [in {d}]",
        "i (need|want) [to know] the (number|count) of files (here|in this folder)",
        "number of files in {d}[?]",
        "{d}: how many files are [in] there[?]",
        "count what is in [the folder|the directory] {d}",
        "(say|know|see) how many files are in {d}",
        "how many files do i have [here|in this folder][?]",
        "tell me how many files [there] are (in|inside) {d}",
    ),
}

PLAIN: dict[str, tuple[str, ...]] = {
    "list": ("list the files", "ls", "what files are here?", "list {d}", "ls {d}", "(list|show) the files in {d}"),
    "read": (
        "read {p}",
        "show {e}",
        "open {p}",
        "show me {e}",
        "(what is|what's) in {e}?",
        "cat {p}",
        "read the file {p}",
    ),
    "write": (
        "write {w} to {p}",
        "write {w} (in|into) {p}",
        "put {w} (in|into) {p}",
        "save {w} (in|to) {p}",
        "write {q} to {p}",
        "create {p} with {w}",
        "(create|make) a file {p} with {w}",
        "write to {p}: {w}",
    ),
    "append": (
        "append {w} to {p}",
        "add {w} to {p}",
        "append {q} to {p}",
        "add the line {w} to {p}",
        "put {w} at the end of {p}",
    ),
    "mkdir": ("make a folder called {d}", "(make|create) the folder {d}", "(make|create) a folder {d}", "mkdir {d}"),
    "run": ("run {c}", "run the command {c}", "execute {c}"),
    "count": (
        "how many files are (here|there)?",
        "count the files",
        "count the files in {d}",
        "how many files are in {d}?",
    ),
}
"""What most people say: without a word too many. Drawn from all of `TRAINING`, each would come a few times at most."""

HELD_OUT: dict[str, tuple[str, ...]] = {
    "list": (
        "tell me which files are in {d}",
        "which files does the folder {d} contain?",
        "please display the files in the directory {d}",
        "print the names of all files here",
        "i want to see the files in {d}",
    ),
    "read": (
        "open up {p} and show me the text",
        "let me see what is written in the file {p}",
        "i want to read {p}",
        "print out the file {p}",
        "tell me what {p} says",
    ),
    "write": (
        "i want the words {w} in a new file named {p}",
        "make me a file called {p} with the text {w}",
        "please store the line {w} in {p}",
        "create the file {p} with the content {w}",
        "a file called {p} should hold the text {w}",
    ),
    "append": (
        "add one more line to the file {p}, saying {w}",
        "please let the line {w} follow at the end of {p}",
        "at the end of {p}, add {w}",
        "the words {w} belong at the end of {p}",
        "add the following line to {p}: {w}",
        "to the file {p}, append {w}",
    ),
    "mkdir": (
        "please make me a folder with the name {d}",
        "set up a new folder called {d}",
        "create one more directory named {d}",
        "i need the directory {d}, please create it",
    ),
    "run": (
        "please run this command: {c}",
        "in the terminal, run {c}",
        "execute this shell command: {c}",
        "run this: {c}",
    ),
    "count": (
        "tell me the number of files in {d}",
        "count up the files in the folder {d}",
        "what is the number of files in this folder?",
        "i want to know how many files are in {d}",
    ),
}

BEFORE = ("please ",) * 5 + ("can you ", "could you ", "can you please ", "could you please ", "now ", "hey, ", "ok, ")
BEFORE += ("then ", "i want you to ", "would you ", "hi, ", "ok now ", "next, ", "just ", "i need you to ", "quickly ")
BEFORE += ("kindly ", "i'd like you to ", "you should ", "first ", "go and ", "so, ", "well, ", "and ", "also, ")
AFTER = (" please", " for me", ", please", ", thanks", " now", " please", ".", ".", ".", ".")

_PART = re.compile(r"\(([^()\[\]]*)\)|\[([^()\[\]]*)\]")


def expand(random: Random, pattern: str) -> str:
    """One of the sentences that a pattern stands for; the slots stay."""

    def pick(found: re.Match[str]) -> str:
        if found[1] is not None:
            return random.choice(found[1].split("|"))
        return random.choice(found[2].split("|")) if random.random() < 0.5 else ""

    text = _PART.sub(pick, pattern)
    return " ".join(text.split()).replace(" ?", "?").replace(" :", ":")


def dress(random: Random, text: str, *, ends_open: bool) -> str:
    """A sentence with a courtesy, a capital letter, a full stop.

    Args:
        ends_open: its end is words or a command, where a word more would belong to them.
    """
    if random.random() < 0.3 and not text.startswith(
        (
            "$",
            "ls",
            "cat",
            "mkdir",
            "i ",
            "(",
            "please",
            "what",
            "which",
            "how",
            "there",
            "let",
            "in",
            "at ",
            "to ",
            "the ",
            "tell me",
            "new ",
            "{",
        )
    ):
        text = random.choice(BEFORE) + text
    if random.random() < 0.25 and not ends_open and text[-1] not in "?:":
        text += random.choice(AFTER)
    elif random.random() < 0.15 and text.endswith(("{p}", "{d}")):
        text += "."
    if random.random() < 0.5 and not text.startswith(("ls", "cat", "mkdir", "{")):
        text = text[0].upper() + text[1:]
    return text
