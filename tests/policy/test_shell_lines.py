"""What a shell line runs, and what rules make of it."""

import shlex
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from testkit.amount import examples

from lmagent.policy.commands import Line, read
from lmagent.policy.matching import allowed, denied, describe, grants

# A line and its commands, as words joined with "|"; "!" in front: the line is unclear, whatever else is listed.
LINES = [
    ('', ''), ('   \n\t', ''), ('# only a comment', ''), ('ls', 'ls'), ('ls -la /tmp', 'ls|-la|/tmp'),
    ('ls # not rm x', 'ls'), ('ls #x\nrm y', 'ls;rm|y'), ('echo a#b', 'echo|a#b'), ("echo '#a'", 'echo|#a'),
    ('a; b', 'a;b'), ('a && b || c', 'a;b;c'), ('a | b |& c', 'a;b;c'), ('a & b &', 'a;b'), ('a\nb\n\nc', 'a;b;c'),
    ('(a; b)', 'a;b'), ('{ a; b; }', 'a;b'), ('! a', 'a'), ('time a b', 'a|b'), ('time -p a', 'a'),
    ('coproc a', '!coproc|a'), ('if a; then b; elif c; then d; else e; fi', 'a;b;c;d;e'),
    ('while a; do b; done', 'a;b'), ('until a; do b; done', 'a;b'), ('for i in 1 2; do a; done', 'a'),
    ('for i in $(a); do b; done', 'a;b'), ('for ((i=0; i<3; i++)); do a; done', '!;a'),
    ('select x in a; do b; done', '!b'), ('case x in a) b;; c|d) e;; *) f;; esac', 'b;e;f'),
    ('case $(a) in *) b;; esac', 'a;b'), ('f() { a; }', '!a'), ('function f { a; }; b', '!a;b'),
    ('f() ( a ); f', '!a;f'), ('echo $(a)', 'echo|$(a);a'), ('echo "x$(a)y"', 'echo|"x$(a)y";a'),
    ('echo `a`', '!echo|`a`;a'), ('echo "$(a "$(b)")"', 'echo|"$(a "$(b)")";a|"$(b)";b'), ('x=$(a) b', 'b;a'),
    ('x=$(a)', ';a'), ('diff <(a) >(b)', '!diff|<(a)|>(b);a;b'), ('cat <<< $(a)', 'cat;a'),
    ('echo $((1+2))', 'echo|$((1+2))'), ('echo $((1+$(a)))', '!echo|$((1+$(a)));a'),
    ('echo ${x:-$(a)}', '!echo|${x:-$(a)};a'), ('(( $(a) ))', '!a'), ('[[ -f $(a) ]] && b', '!a;b'),
    ('[ -f x ] && b', 'b'), ('[[ a < b && c ]]', '!'), ('test -f x', 'test|-f|x'), ('cat <<E\n$(a) `b`\nE', '!cat;a'),
    ("cat <<'E'\n$(a) `b`\nE", 'cat'), ('cat <<\\E\n$(a)\nE\nb', '!cat;b'), ('cat <<-E\n\tx\n\tE', '!cat'),
    ('cat <<E | b > o && c\nx\nE\nd', 'cat;b;c;d'), ('cat - <<E\nx\nE', 'cat|-'), ('cat <<E\n\\`a\\`\nE', '!cat'),
    ('cat <<E\nx \\\\`a`\nE', '!cat'), ('cat <<E\n`a\nE', '!cat'), ('cat <<E\nx', '!cat'), ('> out', ''),
    ('< in', ''), ('a > o b c', '!a'), ('> o a b', 'a|b'), ('a 2>&1 >&2 <&3 >&-', '!a'), ('FOO=1', ''),
    ('A=1 B=2', ';'), ('FOO=1 a b', 'a|b'), ('x=(1 $(a))', '!;a'), ('x[$(a)]=1', '!;a'),
    ('export A=b C', 'export|A=b|C'), ('declare -x A=$(a)', '!declare|-x|A=$(a);a'), ('unset a', 'unset|a'),
    ('r\\m x', 'rm|x'), ('"r"m x', 'rm|x'), ("$'\\x72m' x", "!$'\\x72m'|x"),
    ("$'\\162\\u006d' x", "!$'\\162\\u006d'|x"), ('r\\\nm x', '!r|m|x'), ("'rm' \\\n x", 'rm|x'), ("''rm x", 'rm|x'),
    ("echo $'a\\tb\\'c'", "!echo|$'a\\tb\\'c'"), ('echo \'a\\b\' "c\\d\\$e\\"f"', 'echo|a\\b|c\\d$e"f'),
    ('echo a\\ b', 'echo|a b'), ("echo ''", 'echo|'), ('echo "a\\\nb"', '!echo|a\\\nb'),
    ('echo ~ ~/x a=~', 'echo|~|~/x|a=~'), ('echo a$ "b$" $', '!echo|a$|b$|$'),
    ('echo {a,b} x{1..3}', '!echo|{a,b}|x{1..3}'), ('echo {} x{} {a}', 'echo|{}|x{}|{a}'), ('ls *.py', 'ls|*.py'),
    ("ls 'a*'", 'ls|a*'), ('/usr/bin/git status', '/usr/bin/git|status'), ('gіt status', 'gіt|status'),
    ('sudo rm x', 'sudo|rm|x;rm|x'), ('sudo -u root -E A=1 rm x', 'sudo|-u|root|-E|A=1|rm|x;rm|x'),
    ('doas -u a rm', 'doas|-u|a|rm;rm'), ('sudo -l', '!sudo|-l'), ('sudo -i', '!sudo|-i'),
    ('sudo --zzz rm', '!sudo|--zzz|rm'), ('env', 'env'), ('env A=1 rm x', 'rm|x'), ('env -i -u X rm', 'rm'),
    ("env -S 'rm -r' x", '!env|-S|rm -r|x'), ("env --split-string='rm x'", '!env|--split-string=rm x'),
    ("env -S '$x'", '!env|-S|$x'), ('env - rm', '!env|-|rm'), ('timeout 5 rm', 'rm'),
    ('timeout -k 1 -s KILL 5s rm x', 'rm|x'), ('timeout --foo 5 rm', '!timeout|--foo|5|rm'),
    ('timeout $t rm', '!timeout|$t|rm'), ('nice -n 5 ionice -c 3 nohup setsid -f stdbuf -oL rm', 'rm'),
    ('command rm x', 'rm|x'), ('command -v rm', 'command|-v|rm'), ('builtin cd x', 'cd|x'), ('exec rm x', 'rm|x'),
    ('exec > log', 'exec'), ('xargs', 'xargs'), ('xargs rm', 'rm'), ('xargs -0 -n 1 -P4 rm -f', 'rm|-f'),
    ('xargs -I{} rm {} x', 'rm|{}|x'), ("xargs -I{} sh -c '{}'", '!sh|-c|{}'), ('xargs sh -c', '!sh|-c'),
    ('xargs sh -c \'rm "$1"\' _', 'rm|"$1"'), ('xargs env', '!env'), ('xargs -I X X', '!X'), ('xargs bash', '!bash'),
    ('find . -name x', 'find|.|-name|x'), ('find . -delete', 'find|.|-delete;rm|-r'),
    ('find . -exec rm {} \\;', 'find|.;rm|{}'), ('find . -exec rm {} +', 'find|.;rm|{}'),
    ("find . -ok a \\; -execdir b ';'", '!find|.|-ok|a|;|-execdir|b|;'), ('find . -exec rm', '!find|.|-exec|rm'),
    ("find . -exec sh -c 'rm {}' \\;", '!find|.;sh|-c|rm {}'), ("bash -c 'a; b'", 'a;b'), ('sh -ec a', 'a'),
    ("bash -o pipefail -c 'a | b' x y", '!bash|-o|pipefail|-c|a | b|x|y'),
    ('bash -c "$x"', '!bash|-c|"$x"'), ('bash x.sh y', 'bash|x.sh|y'),
    ('bash', '!bash'), ('a | sh', '!a;sh'), ('sh < x', '!sh'), ('sh -s x', '!sh|-s|x'), ("bash <<'E'\na\nE", '!bash'),
    ('bash <<E\na\nE', '!bash'), ('bash <<E\n$a\nE', '!bash'), ("bash <<< 'rm x'", '!bash'),
    ('bash <(a)', '!bash|<(a);a'), ('bash /dev/stdin', '!bash|/dev/stdin'), ('bash --rcfile x', '!bash|--rcfile|x'),
    ('bash -c \'bash -c "rm x"\'', 'rm|x'), ('busybox sh -c a', '!busybox|sh|-c|a'),
    ('busybox rm x', '!busybox|rm|x'), ('fish -c a', '!fish|-c|a'), ('eval a b', '!eval|a|b'),
    ("eval 'a; b'", '!eval|a; b'), ('eval "$x"', '!eval|"$x"'), ('source x', 'source|x'), ('. <(a)', '!.|<(a);a'),
    ("trap 'a' EXIT", '!trap|a|EXIT'), ('trap - EXIT', '!trap|-|EXIT'), ("watch -n 1 'a; b'", '!watch|-n|1|a; b'),
    ('parallel a ::: b', '!parallel|a|:::|b'), ("python -c 'x'", 'python|-c|x'), ('perl -e x', 'perl|-e|x'),
    ('node -e x', 'node|-e|x'), ("su -c 'rm x' bob", '!su|-c|rm x|bob'), ('$x a', '!$x|a'), ('$(a) b', '!$(a)|b;a'),
    ('rm${IFS}-rf x', '!rm${IFS}-rf|x'), ('{rm,-rf,x}', '!'), ('r? x', '!r?|x'), ('/bin/r* x', '!/bin/r*|x'),
    ('~/x', '!~/x'), ('alias ls=rm', '!alias|ls=rm'), ('[ a > b ]', '!'), ('a )', '!a'), ("a 'b", '!a'),
    ('if a', '!'), ('a &&', '!a;'), ('foo (a)', '!foo|(a);a'), ('echo `a \\`b\\``', '!echo|`a \\`b\\``;a|`b`'),
    ('a\x00b', '!'), ('a\r\nb', '!'), ('a \udc80', '!'), ("printf -v 'a[$(b)]' x", '!printf|-v|a[$(b)]|x'),
    ("x='a[$(b)]'; echo $((x))", '!;echo|$((x))'), ("x='$(b)'; echo ${x@P}", '!;echo|${x@P}'), ('}', '!}'),
    ('a | b | c\nd x', 'a;b;c;d|x'), ('a\xa0b', 'a\xa0b'), ('a\x0bb', '!'), ('a <> b', '!a'),
]  # fmt: skip

# Not allowed, although each word of them looks like something that is.
WIDE = [
    "git *",
    "ls *",
    "cat *",
    "find *",
    "xargs *",
    "echo *",
    "rg *",
    "env *",
    "timeout *",
    "bash *",
    "sh *",
    "wc *",
    "declare *",
    "head *",
]
NOT_ALLOWED = [
    "git status; rm x", "git status && rm x", "git status | rm x", "git status & rm x", "git status\nrm x",
    "git $(rm x)",
    "git `rm x`", 'git "$(rm x)"', "git <(rm x)", "git status > x", "git status >> x", "git status &> x",
    "git status >| x",
    "./git status", "/tmp/git status", "../bin/git status", "/usr/bin/../../tmp/git status", "gіt status", "GIT status",
    "PATH=. git status", "GIT_SSH_COMMAND=x git status", "LD_PRELOAD=x ls", "GIT_PAGER=x git log", "IFS=x ls",
    "BASH_ENV=x ls",
    "PYTHONPATH=. ls", "NODE_OPTIONS=x ls", "env PATH=. git status", "PAGER=x git log", "HOME=. git status",
    "export PATH=.; ls",
    "git -c core.pager=x log", "git --exec-path=. status", "git log --output=x", "git log --outp=x", "git grep -Orm x",
    "git rebase -x rm", "git bisect run rm", "git submodule foreach rm", "git config alias.x !rm", "git difftool x",
    "git log $x",
    "git $x", 'git "$x" log', "git {log,--output=x}", "git log *", "rg --pre rm x", "rg --pre=rm x", "rg $x",
    "find . -delete", "find . -exec rm {} +", "find . -execdir rm {} \\;", "find . -ok rm {} \\;", "find . -fprint x",
    "find $x",
    "xargs rm", "ls | xargs rm -rf", "ls | xargs -I{} sh -c '{}'", "ls | xargs sh", "ls | xargs -n1 bash -c 'rm $0'",
    "cat x | sh", "cat x | bash -", "bash -c 'rm x'", "sh -c 'ls; rm x'",
    "sh -c '[[ a && ls ]]'", "sh -c '((ls x))'",
    "sh -c \"ls \\$'a\\'; ls; rm x'\"", "bash -O extglob -c ls", "bash -ic ls", "bash -kc 'ls PATH=.'",
    "declare 'PATH=.'", "env -C x ls", "echo >&'$(rm x)'",
    "ls | head | cat\nrm x", "cat #x | a | b\nrm x", "cat ''$x | xargs rm",
    "env rm x", "timeout 5 rm x", "env -S 'rm x'",
    "sudo ls", "doas ls", "ls(){ rm x; }; ls", "ls(){ echo; }; ls", "function ls { cat; }; ls", "alias ls=rm; ls",
    "eval ls $x", "$x", "ls $(", "ls '", "cat <<E\n$(rm x)\nE", "cat <<E\n`rm x`\nE", "echo x > y", "echo x | tee y",
    "if ls; then rm x; fi", "for i in 1; do rm x; done", "{ ls; } > x", "(ls) > x", "ls > $x", "ls > '&1'", "X=1; ls",
    "cat < $x",
    "cat < /dev/tcp/a/80", "trap 'rm x' EXIT; ls", "hash -p ./x ls; ls", "./timeout 5 ls", "./env ls", "time rm x",
    "! rm x",
    "coproc rm x", "case x in x) rm;; esac", "echo ${x:-$(rm x)}", "echo $((a[$(rm x)]))", "echo ${x@P}", "echo ${!x}",
    "",
    "echo $((x))", "ls\r\ncat", "ls \x00", "PATH=.", "for PATH in .; do ls; done", "ls 2> err", "cat a\\\n>b",
    "env -S 'ls ${X}'",
]  # fmt: skip

# Denied, however it is dressed up: by `rm -rf *`, `rm *` or `git push *`.
DENIED = [
    "rm -rf x", "rm -r -f x", "rm -fr x", "rm x -rf", "rm -Rrf x", "rm --recursive -rf x", "/bin/rm -rf x",
    "/tmp/rm x", "./rm x",
    "RM x", "r\\m x", "'r'm x", '"rm" x', "$'\\x72m' x", "r\\\nm x", "ls; rm x", "ls && rm x", "ls || rm x",
    "ls | rm x", "ls & rm x",
    "(rm x)", "{ rm x; }", "echo $(rm x)", "echo `rm x`", 'echo "$(rm x)"', "cat <(rm x)", "cat <<E\n$(rm x)\nE",
    "cat <<E\n`rm x`\nE",
    "sudo rm x", "env A=1 rm x", "timeout 5 nice rm x", "nohup rm x &", "command rm x", "exec rm x", "xargs rm",
    "ls | xargs -0 rm -f",
    "find . -exec rm {} +", "find . -delete", "bash -c 'rm x'", "sh -c \"bash -c 'rm x'\"", "eval rm x",
    "eval \"$(echo rm x)\"",
    "rm${IFS}-rf${IFS}x", "{rm,x}", "x=rm; $x y", "echo rm x | sh", "trap 'rm x' EXIT", "busybox rm x",
    "f(){ rm x; }; f", "A=1 rm x",
    "if true; then rm x; fi", "while rm x; do :; done", "case a in *) rm x;; esac", "! rm x", "time rm x",
    "coproc rm x", "\\rm x",
    "env -S 'rm x'", "watch rm x", "parallel rm ::: x", "flock l rm x", "strace rm x", "su -c 'rm x'",
    "sudo --zzz rm x", "rm x '",
    "git push", "git push -f", "git -C d push", "git -c a=b push", "git --git-dir=x push", "git $x", "git {push,x}",
    "/usr/bin/git push",
    "git --no-pager push origin", "bash <<'E'\nrm x\nE", "sh -c 'git \"$@\"' _ push", "alias x=rm; x",
    "rm x" + " y" * 40_000,
]  # fmt: skip
DENY = ["rm -rf *", "rm *", "git push *"]


def _listed(line: Line) -> str:
    return ("!" if line.unclear else "") + ";".join("|".join(command.argv) for command in line.commands)


@pytest.mark.parametrize(("command", "expected"), LINES)
def test_a_line_is_taken_apart_into_the_commands_it_runs(command, expected):
    assert _listed(read(command)) == expected


@pytest.mark.parametrize("command", NOT_ALLOWED)
def test_a_line_that_hides_something_is_not_allowed(command):
    assert not allowed(read(command), WIDE)


@pytest.mark.parametrize("command", DENIED)
def test_a_denied_command_is_found_wherever_it_hides(command):
    assert denied(read(command), DENY)


@pytest.mark.parametrize(
    "command",
    [
        "git status", "git log --oneline -5 -- src", "cd", "ls *.py", "cat 'a b' ~/x",
        "git diff | cat", "ls 2>/dev/null",
        "/usr/bin/git status", "timeout 5 git log", "env LANG=C git log", "CI=1 git log", "bash -c 'git log | cat'",
        'cat "$x"', "ls $x",
        "if ls; then cat x; fi", "for f in *.py; do cat $f; done", "[ -f x ] && ls", "find . -name '*.py' | xargs cat",
        "ls | xargs -n1 cat",
        "find . -name x -exec cat {} +", "cat <<'E'\n$(rm x)\nE", "git log -- $x", "cat < in", "ls 2>&1", "! ls",
        "git log # rm x",
        "git log -- *.py", 'git show "v$x"', "echo 'rm x; $(rm)'", "wc -l $(git ls-files)",
        "(git log; ls) | cat",
    ],
)  # fmt: skip
def test_harmless_lines_are_allowed_by_their_rules(command):
    assert allowed(read(command), [*WIDE, "cd"])


@pytest.mark.parametrize(
    "command",
    ["git status", "git log push", "git commit -m push", "ls rm", "echo 'rm x'",
     "git -C \"$d\" status", "farm x", "rmdir x",
     "git stash # rm x", "cat <<'E'\nrm x\nE", "grep rm x | cat", "for f in *; do cat $f; done"],
)  # fmt: skip
def test_a_deny_rule_leaves_other_commands_alone(command):
    assert denied(read(command), DENY) == ""


@pytest.mark.parametrize(
    ("pattern", "command", "expected"),
    [
        ("git status", "git status", True), ("git status", "git status -s", False), ("git status", "git", False),
        ("git log *", "git log", True), ("git log *", "git log -5 a", True), ("git log *", "git status", False),
        ("git *", "git", True), ("git", "git", True), ("git", "git log", False), ("*", "anything at all", True),
        ("npm run test:*", "npm run test:unit", True), ("npm run test:*", "npm run build", False),
        ("npm run * x", "npm run -a x", False), ("'a b' c", "'a b' c", True), ("echo '*'", "echo '*'", True),
        ("echo '*'", "echo a", False), ('echo "a b"', "echo 'a b'", True), ("./x.sh *", "./x.sh a", True),
        ("./s/*", "./s/a", True), ("./s/*", "./s/../a", False), ("./s/*", "./s/a/b", False),
        ("cat s/*", "cat s/../../a", False),
        ("git log --output=x", "git log --output=x", True), ("git config *", "git config a b", False),
        ("git config *", "git config user.name b", True),
        ("git 'log", "git log", False),
        ("", "git", False), ("git lo*", "git $x", False), ("git log x", "git log $x", False),
        ("find * -name *", "find . -name x", True),
    ],
)  # fmt: skip
def test_a_pattern_covers_a_command_word_by_word(pattern, command, expected):
    assert allowed(read(command), [pattern]) is expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("git status", ("git status *",)), ("git log -5 | head -3", ("git log *", "head *")),
        ("npm run test", ("npm run test",)),
        ("cargo test x", ("cargo test *",)), ("rm -rf build", ("rm -rf build",)), ("./x 'a b'", ("./x 'a b'",)),
        ("x '*'", ("x '*'",)),
        ("git log --output=x", ("git log --output=x",)), ("timeout 9 pytest -q", ("pytest *",)), ("ls > x", ()),
        ("sudo ls", ()),
        ("eval $x", ()), ("make $x", ()), ("python -", ()), ("X=1", ()), ("ls | xargs rm", ()),
        ("python3 -c 'x'", ("python3 -c x",)),
        ("ls; ls -l", ("ls *",)), ("a 'b\nc'", ()), ("", ()), ("PATH=. ls", ()), ("find . -delete", ()),
        ("cd x && ls", ()),
    ],
)  # fmt: skip
def test_always_grants_what_is_narrow_and_nothing_else(command, expected):
    line = read(command)
    assert grants(line) == expected
    assert not expected or allowed(line, expected)


def test_redirects_and_assignments_are_told_apart():
    line = read("A=1 B='x y' cmd <in >out 2>>err &>both 2>&1 >|force")
    assert [command.argv for command in line.commands] == [("cmd",)]
    assert (line.writes, line.unclear) == (["out", "err", "both", "force"], "")
    assert line.assignments == ["A=1", "B='x y'"]


def test_a_description_names_programs_wrappers_and_files_and_escapes_control_characters():
    assert describe(read("git log | sh -c 'rm -rf build' > out.txt")).startswith("runs: git log, ")
    assert "writes: out.txt" in describe(read("ls > out.txt 2>/dev/null"))
    assert "\x1b" not in describe(read("echo $'\\x1b[2J' '\u202e' > $'\\x07'"))
    assert "eval" in describe(read("eval $x"))


@pytest.mark.parametrize(
    "command",
    ["a " * 40_000, "x" * 1_000_000, "(" * 30_000, "$(" * 15_000,
     '"$(' * 10_000, "((a " * 16_000, "|!" * 30_000, "{a," * 20_000,
     "a;" * 30_000, "sudo " * 10_000, "bash -c '" * 5_000, "a && " * 10_000 + "a", "`" * 60_000, "<<a " * 15_000,
     "=((" * 20_000,
     "echo " + "$(" * 200 + "ls" + ")" * 200],
)  # fmt: skip
def test_huge_and_deep_lines_are_unclear_and_quickly_so(command):
    read("ls")
    began = time.perf_counter()
    line = read(command)
    # Not a benchmark: the bound is what a person would notice, far above what is measured.
    assert line.unclear
    assert time.perf_counter() - began < 5


@given(
    st.lists(
        st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\x00\r"), max_size=12), min_size=1
    )
)
@settings(deadline=None)
def test_quoted_words_come_back_as_they_were(words):
    line = read(shlex.join(["printf", *words]))
    if not line.unclear:
        assert line.commands[0].argv == ("printf", *words)
        assert not line.commands[0].unknown


@given(st.lists(st.text("abc -_=/.:,'\"\\$`*~é\n\t", max_size=8), max_size=5))
@settings(deadline=None)
def test_words_of_ordinary_characters_are_always_understood(words):
    # The grammar takes a bare == for an operator: such a line is opaque, which is safe.
    words = [word for word in words if word != "=="]
    line = read(shlex.join(["printf", *words]))
    assert line.unclear == ""
    assert line.commands[0].argv == ("printf", *words)


@given(st.one_of(st.text(), st.text("ab $(){}[]<>|&;'\"`\\\n#!=*?~E-")))
@settings(deadline=None, max_examples=examples(300))
def test_no_text_makes_the_parser_or_the_rules_raise(text):
    line = read(text)
    allowed(line, [*WIDE, text])
    denied(line, [*DENY, text])
    grants(line)
    assert describe(line).isprintable()


@pytest.mark.parametrize(
    "command",
    ["{\U00031860", "echo {😀", "$😀", "${x😀}", "cat <<É\nÈ\nÉ", "😀=1", "[[ -😀 ]]", "cat <<E\n$\U0010ffff\nE",
     "a -\U0010ffff\x01"],
)  # fmt: skip
def test_wide_characters_do_not_reach_the_native_scanner_that_dies_of_them(command):
    # The address that is read decides whether it dies: many neighbours make it sure.
    for point in range(0x80, 0x110000, 0x3331):
        if not 0xD800 <= point <= 0xDFFF:
            read(command + chr(point) + "{" + chr(point) + " -" + chr(point))
    assert read("echo '😀' é$x").commands[0].argv == ("echo", "😀", "é$x")
    assert read("cat <<É\nÈ\nÉ\nrm x").unclear


def test_many_threads_may_parse_at_once():
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: _listed(read(f"git log | head -{n} | cat\nls")), range(400)))
    assert results == [f"git|log;head|-{n};cat;ls" for n in range(400)]


SAFE = ["git status", "ls -la", "cat 'a b'", "git log -3 | cat", "(ls)", "timeout 5 ls", "if ls; then cat x; fi"]
JOINS = st.sampled_from([" ; ", " && ", " || ", "\n", " | ", " & "])


# Behind a pipeline the grammar may run over the end of a line: such a line is asked about.
@given(st.lists(st.tuples(st.sampled_from(SAFE), JOINS.filter(lambda join: join != "\n")), min_size=1, max_size=8))
@settings(deadline=None)
def test_allowed_commands_stay_allowed_when_joined(parts):
    assert allowed(read("".join(part + join for part, join in parts) + "ls"), WIDE)


@given(st.lists(st.tuples(st.sampled_from(SAFE), JOINS), max_size=6), st.sampled_from(DENIED[:60]), JOINS, st.data())
@settings(deadline=None)
def test_a_denied_command_is_denied_in_any_company(parts, bad, join, data):
    at = data.draw(st.integers(0, len(parts)))
    line = "".join(part + sep for part, sep in [*parts[:at], (bad, "\n" if "\n" in bad else join), *parts[at:]]) + "ls"
    assert denied(read(line), DENY)
    assert not allowed(read(line), WIDE)
