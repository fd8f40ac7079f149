"""Options with which a program runs another one, loads code, or writes: a rule covers them only spelled out."""

import pytest

from lmagent.policy.commands import read
from lmagent.policy.matching import allowed

# A pattern, lines that it must not cover, and lines that it must; one a line.
TABLE = {
    'go test *': (
        'go test --exec=./evil ./...|go test -exec ./evil|go test --exec ./evil|go test -toolexec=x'
        '|go test -o x|go test -ldflags=-extld=./evil|go test -coverprofile=c|go test -test.cpuprofile=x',
        'go test ./...|go test -run TestX -v -count=1 ./...|go test -race -short -timeout 30s .',
    ),
    'go vet *': (
        'go vet --vettool=./evil|go vet -vettool ./evil',
        'go vet ./...|go vet -json .',
    ),
    'go build *': (
        'go build --toolexec ./evil|go build -o /x|go build -overlay=x',
        'go build ./...|go build -v .',
    ),
    'go *': (
        'go env -w CC=./evil|go build -toolexec=x',
        'go version|go env GOPATH|go run .',
    ),
    'tar *': (
        "tar cIf 'sh -c x' x.tar f|tar -cIf x y f|tar --use-compress-program=x -cf y z"
        '|tar --use-comp=x -cf y|tar xf x --to-command=y|tar xf x --to-c y'
        '|tar cf x y --checkpoint=1 --checkpoint-action=exec=z|tar xFf x y|tar cf x y --remove-files'
        '|tar -xPf x|tar cf x -T y|tar xf x --rmt-command=y',
        'tar xzf a.tar.gz|tar tvf a.tar|tar -xf a.tar -C dir|tar --list -f a.tar|tar cjf a.tar.bz2 src'
        '|tar cf a.tar --exclude=b src',
    ),
    'zip *': (
        'zip --test --unzip-command=./x a.zip|zip -T -TT ./x a|zip --te --unzip=./x a b|zip -m a b'
        '|zip -rT a b -TT x',
        'zip a.zip b',
    ),
    'pytest *': (
        'pytest -p x|pytest -c x|pytest --basetemp=x|pytest --base=x|pytest -px',
        'pytest -q -k abc tests',
    ),
    'python -m pytest *': (
        'python -m pytest -p evil|python -m pytest --junitxml=x|python -m pytest -c x'
        '|python -m pytest --basetemp x|python -m pytest -o addopts=x|python -m pytest $x'
        '|python -m pytest --junit=x',
        'python -m pytest -q tests|python -m pytest -x -k a tests/test_a.py',
    ),
    'python3 -m pytest *': (
        'python3 -m pytest -qp evil|python3 -m pytest --rootdir=/',
        'python3 -m pytest -x',
    ),
    'python3.12 -m pytest *': (
        'python3.12 -m pytest -p evil',
        'python3.12 -m pytest -v',
    ),
    'uv run pytest *': (
        'uv run pytest -p evil|uv run pytest --junitxml x|uv run pytest $x',
        'uv run pytest -q|uv run pytest tests -k x',
    ),
    'uv run *': (
        'uv run --with evil pytest|uv run -p ./evil pytest|uv run pytest -p evil|uv run -- pytest -c x'
        '|uv run $x|uv run --extra dev pytest -p evil|uv run python -m pytest -p evil'
        '|uv run --python=./evil x',
        'uv run pytest -q',
    ),
    'uv run --extra dev pytest *': (
        'uv run --extra dev pytest -p evil',
        '',
    ),
    'poetry run pytest *': (
        'poetry run pytest -p evil|poetry run pytest --basetemp=x',
        'poetry run pytest -q',
    ),
    'poetry *': (
        'poetry -C x run pytest|poetry run pytest -c x',
        'poetry run pytest|poetry show',
    ),
    'npx *': (
        "npx -p evil x|npx --package=evil x|npx -c 'evil'|npx --call evil|npx eslint -c x"
        '|npx -y eslint --rulesdir x .',
        'npx eslint src|npx jest -t a',
    ),
    'npx jest *': (
        'npx jest --config=x|npx jest --globalSetup ./x',
        'npx jest -t a',
    ),
    'pnpm exec *': (
        'pnpm exec eslint -c x .|pnpm exec mocha -r ./x|pnpm exec -c x',
        'pnpm exec eslint src',
    ),
    'npm exec *': (
        'npm exec -c x|npm exec -- eslint -c x|npm exec --package=x -- y',
        'npm exec -- eslint src',
    ),
    'bundle exec *': (
        'bundle exec rspec -r ./x|bundle exec rake -f x|bundle exec rspec -I x',
        'bundle exec rspec spec',
    ),
    'coverage run *': (
        'coverage run -m pytest -p x|coverage run --rcfile=x -m y',
        '',
    ),
    'sed *': (
        'sed -i s/a/b/ f|sed -ni p f|sed -Ei s/a/b/ f|sed -i.bak p f|sed --in-place=x p f|sed --in p f'
        "|sed -s p f|sed -f x f|sed --file=x f|sed 's/a/b/e' f|sed 's/a/b/ge' f|sed 's/a/b/w x' f"
        "|sed 'e rm x' f|sed '1e' f|sed 'w x' f|sed 'r /etc/passwd' f|sed '$!{w x\n}' f"
        "|sed -e p -e 's/a/b/w x' f|sed -n -e 'e x' f|sed --expression='e x'|sed --expr='e x'"
        '|sed -nes/a/b/e f|sed "$x" f|sed "s/$x/b/" f|sed -- \'s/a/b/e\' f|sed \'s|a|b|;e x\'|sed \'s,a,b,e\' f'
        "|sed '/a/s//b/w x'|sed '\\,a,e x' f|sed 'W x' f|sed 'R x' f|sed -l 5 e f|sed -n '1{p;e x\n}' f"
        "|sed $x|sed -E -s -i p f|sed 's/[/]/x/e' f|sed -- $x f|sed 's/a/b/;#\ne x' f|sed 'y/a/b/;e x' f"
        "|sed ':a\ne x' f|sed 'a\\\nb\ne x' f|sed 's/[/]/p;s/w x/y/' f|sed '/[/]/p;/w x/p' f",
        "sed s/a/b/ f|sed -n 1,5p f|sed -n '$='",
    ),
    'sed -n *': (
        "sed -n -i p f|sed -n 'w x' f|sed -n s/a/b/e f",
        "sed -n 1,5p f|sed -n '$p' f",
    ),
    'sed -i s/a/b/ *': (
        "sed -i s/a/b/ -e 'e x' f",
        'sed -i s/a/b/ f',
    ),
    'awk *': (
        'awk \'BEGIN{system("x")}\'|awk \'{print > "x"}\' f|awk \'{print | "sh"}\'|awk \'"x" | getline\' f'
        '|awk -f x f|awk "{print $x}" f|awk -F, -f x f|gawk -i inplace \'{print}\'|awk \'@load "x"\''
        '|awk \'{printf "a;b" >> "x"}\' f|awk -v \'a=1\' -f x|gawk -e \'BEGIN{system("x")}\''
        '|gawk --source \'BEGIN{system("x")}\'',
        "awk '{print $1}' f",
    ),
    'rg *': (
        'rg --pre x y|rg --pre=x y|rg --hostname-bin x y',
        'rg -n a',
    ),
    'fd *': (
        'fd -x rm|fd . -X rm|fd --exec rm|fd -Hx rm|fd --exec-b rm',
        'fd -e py|fd -H a src',
    ),
    'sort *': (
        'sort -o x f|sort --output=x f|sort -uo x|sort --compress-program=x f|sort -T x f',
        'sort -k2 -u f|sort -rn',
    ),
    'git grep *': (
        'git grep -O a|git grep -Ovim a|git grep --open-files-in-pager=x a',
        'git grep -n a',
    ),
    'git log *': (
        'git log --output=x|git log --ext-diff|git log --textconv',
        'git log --oneline -5',
    ),
    'git diff *': (
        'git diff --ext-diff|git diff --output x',
        'git diff --stat HEAD~1',
    ),
    'git *': (
        'git archive -o x HEAD|git format-patch -o x|git remote-ext a b|git send-email x'
        "|git merge-index x a|git fetch 'ext::sh -c x'|git bundle create x|git -c a.b=c log",
        'git status|git archive HEAD|git fetch origin',
    ),
    'less *': (
        "less -o x f|less '+!x' f|less --lesskey-file=x f|less -k x f",
        'less f',
    ),
    'man *': (
        'man -P x ls|man --pager=x ls|man -H ls|man -C x ls',
        'man ls|man 3 printf',
    ),
    'curl *': (
        'curl -o x u|curl -O u|curl -sSLo x u|curl -K x|curl -T x u|curl --upload-file x u|curl -d @x u'
        "|curl --data-binary @x u|curl --output-dir x u|curl -w '%output{x}' u|curl --conf x u"
        '|curl -F a=@x u|curl -c x u|curl --data-urlencode a@x u',
        "curl -fsSL u|curl -H 'Accept: x' u|curl -I u",
    ),
    'wget *': (
        'wget -O x u|wget --output-d=x u|wget --post-file=x u|wget --use-askpass=x u|wget -e x u'
        '|wget -qO- u|wget -P x u',
        'wget u',
    ),
    'docker *': (
        'docker -H x ps|docker --config x ps|docker --context x ps|docker build --output=x .',
        'docker ps -a',
    ),
    'npm run *': (
        'npm run --script-shell=x a|npm run a --node-options=x|npm run -C x a|npm run --prefix x a',
        'npm run test',
    ),
    'pip install *': (
        'pip install --target x y|pip install -i u y|pip install --log x y',
        'pip install y|pip install -r r.txt',
    ),
    'cargo *': (
        'cargo --config x build|cargo build --conf x|cargo test -Z x|cargo build --target-dir x',
        'cargo test --lib',
    ),
    'make *': (
        "make -f x|make -C x|make --eval=x|make -sC x|make SHELL=./x|make CC=./x all|make 'A=$(shell x)'"
        '|make MAKEFLAGS=x',
        'make -j4 all|make test|make V=1|make -k -B check',
    ),
    'ssh host *': (
        'ssh host -o ProxyCommand=x|ssh host -oProxyCommand=x|ssh host -F x',
        'ssh host uptime',
    ),
    'scp *': (
        'scp -S x a b|scp -oProxyCommand=x a b|scp -F x a b',
        'scp a h:b',
    ),
    'rsync *': (
        'rsync -e x a b|rsync -ave x a b|rsync --rsh=x a b|rsync --rsync-path=x a b|rsync -a --delete a b',
        '',
    ),
    'find *': (
        'find . -exec x {} +|find . -delete|find . -fprint x|find . -execdir x \\;|find . -fls x',
        'find . -name x',
    ),
    'date *': (
        'date -s x|date --set=x|date -us x',
        'date|date -u +%s|date -d tomorrow',
    ),
    'mount *': (
        'mount -t fuse a b|mount -o exec a b',
        'mount',
    ),
    'vim *': (
        "vim -c x f|vim --cmd x f|vim '+!x' f|vim -S x|vim -u x f|vim -es f",
        'vim f',
    ),
    'gcc *': (
        'gcc -wrapper x a.c|gcc @f|gcc -fplugin=x.so a.c|gcc -fplugin x a.c|gcc -specs=x a.c|gcc -Bx a.c'
        '|gcc -B x a.c|gcc --specs=x a.c|gcc -Wl,-plugin=x a.c',
        'gcc -O2 -Wall -o a a.c|gcc -g -I inc -lm a.c',
    ),
    'gcc-13 *': (
        'gcc-13 -fplugin=x a.c',
        'gcc-13 a.c',
    ),
    'node *': (
        'node -r ./x y|node --require=./x y|node --import ./x y|node --loader x y',
        'node x.js',
    ),
    'node --test *': (
        'node --test -r ./x|node --test --import=x a.js',
        'node --test|node --test a.js',
    ),
    'ruby *': (
        'ruby -r ./x y|ruby -r./x y|ruby -I x y|ruby -i y',
        '',
    ),
    'perl *': (
        'perl -i -pe x f|perl -Mx y|perl -Ix y',
        'perl x.pl',
    ),
    'eslint *': (
        'eslint --fix .|eslint -c x .|eslint --rulesdir x .|eslint -o x .',
        'eslint src',
    ),
    'mypy *': (
        'mypy --config-file x|mypy --python-executable=x .',
        'mypy src|mypy --strict src',
    ),
    'split *': (
        'split --filter=x f|split --filt x f',
        '',
    ),
    'xxd *': (
        'xxd a b|xxd -r a b',
        'xxd a',
    ),
    'uniq *': (
        'uniq a b',
        'uniq -c a',
    ),
    'ip *': (
        'ip netns exec a x|ip -batch x|ip -b x',
        'ip addr show',
    ),
    'yq *': (
        'yq -i x f|yq --inplace x f',
        'yq .a f',
    ),
}  # fmt: skip


def _cases(which: int) -> list[tuple[str, str]]:
    return [(pattern, line) for pattern, lines in TABLE.items() for line in _lines(lines[which])]


def _lines(text: str) -> list[str]:
    """The text at its bars; those inside of quotes, or of an example, stand."""
    found, quote = [""], ""
    for char in text:
        if char == "|" and not quote:
            found.append("")
            continue
        quote = "" if char == quote else char if char in "'\"" and not quote else quote
        found[-1] += char
    return [line for line in found if line]


@pytest.mark.parametrize(("pattern", "line"), _cases(0))
def test_a_final_star_does_not_cover_what_runs_loads_or_writes(pattern, line):
    assert not allowed(read(line), [pattern])


@pytest.mark.parametrize(("pattern", "line"), _cases(1))
def test_a_final_star_covers_what_the_program_is_for(pattern, line):
    assert allowed(read(line), [pattern])


@pytest.mark.parametrize(
    "line",
    ["go test --exec=./evil", "tar cIf x y f", "sed -i s/a/b/ f", "sed 's/a/b/e' f", "python -m pytest -p x",
    "vim +x f",
     "uv run --with x pytest -p y", "awk '{print > \"x\"}' f", "gcc @f", "make SHELL=x", "curl -o x u"],
)  # fmt: skip
def test_what_is_spelled_out_in_full_is_covered(line):
    assert allowed(read(line), [line])


# The first word of each is the program that an allow rule names with a final `*`.
ASKED = [
    "uv --quiet run rm x", "ip netns exec a x", "export -i x", "gtar xIf x y", "abduco - x", "docker -vX", "tox -xy",
    "tox -x a", "mytool --verbose", "mytool +x", "mytool --x=y", "mytool -1", "ls -l; mytool -v",
    "curl -o x u", "python -c x",
]  # fmt: skip


@pytest.mark.parametrize("line", ASKED)
def test_an_option_that_is_neither_listed_nor_spelled_out_is_asked_about(line):
    assert not allowed(read(line), ["ls *", *(f"{name} *" for name in line.replace(";", "").split())])
    program = line.split()[-2] if "mytool" in line and ";" in line else line.split()[0]
    assert not allowed(read(line), ["ls *", f"{program} *"])
